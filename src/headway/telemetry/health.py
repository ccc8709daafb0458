"""Log lines about replicas that leave and return: the news an operator looks for first.

Probes and trials in between are steps on the way and told at debug only.
"""

import structlog

from headway.core.commands import HealthChanged

log = structlog.get_logger(__name__)

NEWS = {
    "open": ("warning", "replica taken out of use"),
    "closed": ("info", "replica in use"),
    "panic": ("warning", "most replicas are out of use: all that can be reached are used again"),
    "calm": ("info", "enough replicas are in use again"),
}
"""Level and words by the state that was entered."""


def tell_of_health(changed: HealthChanged) -> None:
    """One line."""
    level, words = NEWS.get(changed.state, ("debug", f"replica {changed.state}"))
    about = {"replica": changed.replica_id} if changed.replica_id else {}
    getattr(log, level)(words, **about, reason=changed.reason)
