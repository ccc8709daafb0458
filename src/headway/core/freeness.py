"""How free a replica is, as Llumnix measures it (Sun et al., OSDI 2024): free memory per running request.

    freeness = (free - waiting) / running      tokens of the KV pool; those that wait count as if they held theirs

It is how many more tokens each running request may say before the pool is full. Less than 0 where more is promised than
there is. Kept for comparison: the policy `freeness` sends requests by it, and the strategy `freeness` moves them by it.
"""

from headway.core.view import ReplicaView

SCARCE = 48.0
"""Below this a replica gives a request away: three blocks of 16 tokens for each of its requests. A choice of ours, not
checked against Llumnix itself."""


def freeness(view: ReplicaView, more: float = 0.0) -> float:
    """Tokens per running request (of a replica without any: as if it were one), with `more` tokens in one more request,
    if given. A pool of unknown size has room for nothing."""
    waiting = max(0.0, view.prefill_backlog_tokens - view.dispatched_tokens)  # what was sent since counts as used
    free = view.kv_capacity_tokens - view.kv_used_tokens - waiting - more
    return free / max(1.0, view.running + (1.0 if more else 0.0))
