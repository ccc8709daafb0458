"""What is said about a run: latencies, percentiles, goodput, accounts.

Definitions, all as a client sees them, in seconds:

- TTFT: from the moment the request was due to be sent to its first piece of text. Counting from the due moment keeps
  a slow client or its own concurrency cap from hiding delay (no coordinated omission).
- ITL: between two neighbouring pieces of text of one answer. A piece may hold several tokens.
- TPOT: (last piece - first piece) / (output tokens - 1), for answers of two tokens or more.
- E2E: from the due moment to the end of the answer.
- percentile q: the nearest rank, i.e. the smallest measured value that at least the share q of values do not exceed.
  It is always a value that happened; nothing is interpolated.
- goodput: requests per second that ended ok and met both SLOs. Refusals, errors and aborts are misses.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from headway.workload.accounts import Accounts, Kind, count


class Slo(msgspec.Struct, frozen=True):
    """Service objectives of a request. The first token may take longer the longer the prompt is."""

    ttft_s: float = 1.0
    ttft_per_prompt_token_s: float = 0.00025
    tpot_s: float = 0.05

    def ttft_limit_s(self, prompt_tokens: int) -> float:
        """Seconds a prompt of this length may wait for its first token."""
        return self.ttft_s + self.ttft_per_prompt_token_s * prompt_tokens

    def __str__(self) -> str:
        per_token_ms = self.ttft_per_prompt_token_s * 1000
        return f"TTFT <= {self.ttft_s:g} s + {per_token_ms:g} ms per prompt token, TPOT <= {self.tpot_s * 1000:g} ms"


class Record(msgspec.Struct, frozen=True):
    """One request that ended. Times are seconds since the run's start, on the workload's clock.

    `piece_times` holds the arrival of each piece of text in order. Token counts are the server's own usage report
    where it gave one, else the length that was asked for (prompt) and the number of pieces (output).
    `error` is a short stable word for everything but ok.
    """

    due_s: float
    sent_s: float
    end_s: float
    kind: Kind
    piece_times: tuple[float, ...] = ()
    status: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""
    stream: bool = True
    capped: bool = False
    shape: str = ""

    @property
    def ttft_s(self) -> float | None:
        """Time to the first piece of text, None without any (or without streaming)."""
        return self.piece_times[0] - self.due_s if self.piece_times and self.stream else None

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first, None where it says nothing."""
        if not self.stream or self.output_tokens < 2 or len(self.piece_times) < 2:
            return None
        return (self.piece_times[-1] - self.piece_times[0]) / (self.output_tokens - 1)

    @property
    def e2e_s(self) -> float:
        """Time to the end of the answer."""
        return self.end_s - self.due_s

    @property
    def lag_s(self) -> float:
        """How much later than due it was sent: the client's fault, or its cap's."""
        return self.sent_s - self.due_s


class Spread(msgspec.Struct, frozen=True):
    """A measured quantity in a few figures (s); percentiles by nearest rank. None where nothing was measured."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Summary(msgspec.Struct, frozen=True):
    """A whole run. `window_s` is the span in which the counted requests were due."""

    accounts: Accounts
    errors: dict[str, int]
    window_s: float
    goodput_rps: float
    goodput_share: float
    request_rps: float
    output_tokens_per_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft: Spread
    itl: Spread
    tpot: Spread
    e2e: Spread
    lag: Spread
    capped: int
    slo: Slo


def percentile(ordered: Sequence[float], q: float) -> float:
    """The nearest rank of a sorted, non-empty sequence; q in (0, 1]."""
    return ordered[max(0, math.ceil(q * len(ordered) - 1e-9) - 1)]


def spread(values: Iterable[float]) -> Spread:
    """Figures of a set of values in any order."""
    ordered = np.sort(np.fromiter(values, dtype=np.float64))
    if not len(ordered):
        return Spread()
    ranks = {f"p{p}": float(percentile(ordered, p / 100)) for p in (50, 90, 95, 99)}  # type: ignore[arg-type]
    return Spread(count=len(ordered), mean=float(ordered.mean()), max=float(ordered[-1]), **ranks)


def met(record: Record, slo: Slo) -> bool:
    """Whether a request counts as good.

    Without streaming the first token cannot be seen, so both objectives are tested together: the answer must have
    come within the TTFT limit plus TPOT for each further token.
    """
    if record.kind != "ok":
        return False
    limit = slo.ttft_limit_s(record.prompt_tokens)
    if not record.stream:
        return record.e2e_s <= limit + slo.tpot_s * max(0, record.output_tokens - 1)
    ttft, tpot = record.ttft_s, record.tpot_s
    return (record.e2e_s if ttft is None else ttft) <= limit and (tpot is None or tpot <= slo.tpot_s)


def summarize(records: Sequence[Record], started: int, window_s: float, slo: Slo) -> Summary:
    """Condense a run. Latencies are of requests that ended ok; goodput and accounts are of all."""
    good = [record for record in records if record.kind == "ok"]
    kept = sum(met(record, slo) for record in good)
    output = sum(record.output_tokens for record in records)
    return Summary(
        accounts=count((record.kind for record in records), started),
        errors=dict(sorted(Counter(f"{r.kind}:{r.error}" for r in records if r.kind != "ok").items())),
        window_s=window_s,
        goodput_rps=kept / window_s if window_s > 0 else 0.0,
        goodput_share=kept / started if started else 0.0,
        request_rps=started / window_s if window_s > 0 else 0.0,
        output_tokens_per_s=output / window_s if window_s > 0 else 0.0,
        prompt_tokens=sum(record.prompt_tokens for record in records),
        cached_tokens=sum(record.cached_tokens for record in records),
        output_tokens=output,
        ttft=spread(r.ttft_s for r in good if r.ttft_s is not None),
        itl=spread(gap for r in good if r.stream for gap in np.diff(r.piece_times)),
        tpot=spread(r.tpot_s for r in good if r.tpot_s is not None),
        e2e=spread(r.e2e_s for r in good),
        lag=spread(r.lag_s for r in records),
        capped=sum(record.capped for record in records),
        slo=slo,
    )
