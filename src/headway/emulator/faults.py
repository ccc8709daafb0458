"""What can be made to go wrong, on purpose, and until when. Set through `control`, obeyed by `service` and `api`."""

import enum
from typing import Annotated

import msgspec


class FaultKind(enum.StrEnum):
    """Every fault. See `Fault` for their parameters."""

    CRASH = "crash"  # the process is gone, as if killed
    HANG = "hang"  # connections are accepted, nothing is answered, not even probes; streams fall silent
    PAUSE = "pause"  # the engine stands still, everything else answers (as vLLM's /pause)
    SLOW = "slow"  # every step takes `factor` times as long
    OOM = "oom"  # the engine core dies: in-band errors, 500, then the process ends
    QUEUE_FULL = "queue_full"  # 503, the queue is full
    FREEZE_METRICS = "freeze_metrics"  # /metrics repeats its last page
    DROP_CONNECTIONS = "drop_connections"  # all open connections are reset, once
    SIGTERM_HANG = "sigterm_hang"  # on SIGTERM, streams fall silent while the port refuses (vLLM's default)


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault. `after_tokens`: it strikes when the engine has generated so many more tokens. `for_s`: real seconds
    until it heals by itself, 0 = never."""

    kind: FaultKind
    factor: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    after_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0
    for_s: Annotated[float, msgspec.Meta(ge=0, le=1e8)] = 0.0


ONCE = frozenset({FaultKind.CRASH, FaultKind.OOM, FaultKind.DROP_CONNECTIONS})
"""These strike and are over; the others last."""
