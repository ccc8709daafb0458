"""The last report of an engine, read as other people's gateways read it: as it stands, whatever was sent since."""

from headway.core.replica import LoadSample


def usage(sample: LoadSample | None, capacity: int) -> float:
    """Share of the KV pool in use (0..1), 0 where the report does not say. `capacity`: the pool's size in tokens as
    known otherwise, 0 if it is not."""
    if sample is None:
        return 0.0
    share = sample.kv_usage
    if share is None:
        pool = sample.kv_capacity_tokens or capacity
        share = (sample.kv_used_tokens or 0) / pool if pool else 0.0
    return min(1.0, max(0.0, share))


def waiting(sample: LoadSample | None) -> int:
    """Requests waiting in the engine, 0 where the report does not say."""
    return (sample.waiting or 0) if sample is not None else 0
