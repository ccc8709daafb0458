"""Headway: a load balancer for LLM inference fleets that routes on real KV-cache headroom.

The rooms of this package and the rules between them are described in docs/ARCHITECTURE.md and kept by
import-linter. This file stays empty of code on purpose: importing a room must not import the others.
"""

__version__ = "0.1.0"
