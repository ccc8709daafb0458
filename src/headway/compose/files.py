"""Open files are the scarcest thing a proxy has: every client and every upstream connection is one.

Health checks, scrapes and the admin port must work when clients have taken all the rest.
"""

import resource

import msgspec

from headway.compose.plan import Plan

ENOUGH = 1_048_576
MACOS = 10_240
"""macOS refuses more than this although it reports no limit."""

KEPT = 32
"""Files that are not client traffic: standard streams, listeners, admin connections, one scrape per replica."""


def raise_file_limit() -> int:
    """Lift the soft limit as far as this process may; returns what is allowed now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    for limit in (wanted, MACOS):
        if soft >= limit:
            return soft
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            continue
        return limit
    return soft


def within_file_limit(plan: Plan, files: int) -> Plan:
    """The plan with as many client connections as `files` have room for, unless the settings state a number.

    A client needs two files at worst: its own connection and one to a replica.
    """
    limits = plan.gateway.limits
    if limits.max_connections:
        return plan
    kept = KEPT + 2 * len(plan.entries)
    room = max(8, (files - kept) // 2)
    gateway = msgspec.structs.replace(plan.gateway, limits=msgspec.structs.replace(limits, max_connections=room))
    return msgspec.structs.replace(plan, gateway=gateway)
