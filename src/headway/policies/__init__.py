"""Routing policies: one file each, ending in `PLUGIN`.

A policy ranks the replicas that may take a request, by a cost (lower is better); the scheduler chooses. It sees views
and a demand, keeps state per model at most, and knows neither the scheduler nor any other policy. To add one, add a
file here (or an entry point in the group `headway.plugins`); the contract tests find it.
"""
