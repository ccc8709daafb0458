"""What to send and what came of it: plain values."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from headway.workload.accounts import Accounts
from headway.workload.request import Request
from headway.workload.stats import Record, Slo, Summary

Endpoint = Literal["chat", "completions"]


class BenchPlan(msgspec.Struct, frozen=True):
    """One run. All times are seconds of the server's clock; `time_scale` of them pass in one real second (1 for
    everything but emulators that were told to run faster).

    `url` is the address with or without /v1. `model` empty: the first one /v1/models names.
    `duration_s` 0: send everything. Requests due in the first `warmup_s` are sent but not in the summary.
    `max_concurrency` 0: none. `patience_s` is how long after the last due moment answers may come; then they are
    aborted. `request_timeout_s` 0: a single request may take as long as it likes.
    `exact_output`: the server is told to generate exactly `output_tokens` (max_tokens and ignore_eos, which vLLM,
    SGLang and llama.cpp know). Otherwise it ends where it likes, at `max_tokens` at the latest (0: says nothing).
    `usage`: ask for a usage report at the end of streams.
    """

    url: str
    requests: Sequence[Request]
    model: str = ""
    endpoint: Endpoint = "chat"
    stream: bool = True
    exact_output: bool = True
    max_tokens: int = 0
    usage: bool = True
    seed: int = 0
    api_key: str = ""
    duration_s: float = 0.0
    warmup_s: float = 0.0
    patience_s: float = 60.0
    request_timeout_s: float = 0.0
    max_concurrency: int = 0
    time_scale: float = 1.0
    slo: Slo = Slo()

    @property
    def base(self) -> str:
        """The address without a trailing slash or /v1."""
        return self.url.rstrip("/").removesuffix("/v1").rstrip("/")

    def due(self) -> list[Request]:
        """The requests that will be sent, by arrival."""
        kept = [r for r in self.requests if not self.duration_s or r.arrival_s < self.duration_s]
        return sorted(kept, key=lambda request: request.arrival_s)

    @property
    def window_s(self) -> float:
        """The span in which counted requests are due."""
        end = self.duration_s or max((request.arrival_s for request in self.requests), default=0.0)
        return max(0.0, end - self.warmup_s)


class Progress(msgspec.Struct, frozen=True):
    """Where a run stands."""

    elapsed_s: float
    total: int
    started: int
    finished: int
    in_flight: int
    accounts: Accounts


Watch = Callable[[Progress], None]
"""Told where a run stands, a few times a second."""


class ClientLoad(msgspec.Struct, frozen=True):
    """Whether the client itself was the bottleneck.

    `cpu_share`: CPU seconds per real second, of one core. `late_p99_s`: how much later than due requests were sent,
    those that waited for the concurrency cap left out (real seconds).
    """

    cpu_share: float
    late_p99_s: float
    wall_s: float

    @property
    def suspect(self) -> bool:
        """True when the figures may say more about this client than about the server."""
        return self.cpu_share > 0.9 or self.late_p99_s > 0.05


class BenchResult(msgspec.Struct, frozen=True):
    """`summary` is of the measured window; `accounts` are of everything that was sent, warm-up included."""

    model: str
    summary: Summary
    accounts: Accounts
    client: ClientLoad
    records: tuple[Record, ...]
    time_scale: float = 1.0
    stopped: bool = False
