"""A workload in a few figures, to be printed beside the results that were measured with it."""

from collections.abc import Iterable, Sequence

import msgspec

from headway.workload.request import Request
from headway.workload.stats import percentile


class Outline(msgspec.Struct, frozen=True):
    """Size and shape of a workload. Lengths in tokens, quantiles are nearest ranks (0 when empty).

    `reusable` is the share of prompt tokens that an unbounded prefix cache would hold when they are asked for.
    """

    requests: int
    sessions: int
    span_s: float
    rate_rps: float
    prompt_p50: int
    prompt_p90: int
    output_p50: int
    output_p90: int
    reusable: float


def outline(requests: Sequence[Request]) -> Outline:
    """Describe a workload."""
    prompts = sorted(request.prompt_tokens for request in requests) or [0]
    outputs = sorted(request.output_tokens for request in requests) or [0]
    span = max((request.arrival_s for request in requests), default=0.0)
    return Outline(
        requests=len(requests),
        sessions=len({request.session for request in requests if request.session}),
        span_s=span,
        rate_rps=len(requests) / span if span > 0 else 0.0,
        prompt_p50=int(percentile(prompts, 0.5)),
        prompt_p90=int(percentile(prompts, 0.9)),
        output_p50=int(percentile(outputs, 0.5)),
        output_p90=int(percentile(outputs, 0.9)),
        reusable=reusable(requests),
    )


def reusable(requests: Iterable[Request]) -> float:
    """Share of prompt tokens whose whole prefix was part of an earlier prompt (0 for an empty workload)."""
    seen: set[tuple[int, int, int]] = set()
    hits = total = 0
    for request in requests:
        chain = 0
        for segment in request.segments:
            link = (chain, segment.key, segment.tokens)
            total += segment.tokens
            if link in seen:
                hits += segment.tokens
            seen.add(link)
            chain = hash(link)  # of integers only: the same in every process
    return hits / total if total else 0.0
