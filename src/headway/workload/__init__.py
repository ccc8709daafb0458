"""Workloads and what is counted about them: requests, traces, arrival processes, generated chats, statistics.

Pure: traces come in as lines (callers open files), chance comes in as a numpy Generator, times are plain seconds on a
workload's own clock, which starts at 0. The bench replays these values over HTTP; a simulator can replay the same ones.
"""
