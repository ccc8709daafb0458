"""Workloads made to fit: shorter prompts, nothing longer than a context, one tenant's requests only."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from headway.workload.columns import TraceError
from headway.workload.request import Request, Segment, Workload

_NAMED = 12
"""Names in a message."""


def shorten(load: Workload, factor: float) -> Workload:
    """All lengths times `factor`, rounded so that equal prefixes stay equal; at least one token each.

    For traces of longer contexts than a fleet has. What it breaks: the ratio of fixed to length-dependent costs.
    """
    shorter = _Shorter(factor)
    requests = [shorter(request) for request in load.requests]
    return Workload(load.name, requests, load.span_s, (*load.how, f"all lengths x {factor:g}"))


def within(load: Workload, longest: int) -> Workload:
    """Without the requests whose prompt and output are longer than `longest` tokens together. Raises TraceError if all
    are."""
    kept = [request for request in load.requests if request.prompt_tokens + request.output_tokens <= longest]
    if load.requests and not kept:
        shortest = min(request.prompt_tokens + request.output_tokens for request in load.requests)
        raise TraceError(
            f"no request has {longest:,} tokens or fewer, prompt and output: the shortest has {shortest:,}"
        )
    gone = len(load.requests) - len(kept)
    how = f"left out {gone:,} of {len(load.requests):,} requests longer than {longest:,} tokens"
    return Workload(load.name, kept, load.span_s, (*load.how, how) if gone else load.how)


def only(load: Workload, tenant: str) -> Workload:
    """One tenant's requests. Raises TraceError if there are none."""
    kept = [request for request in load.requests if request.tenant == tenant]
    if not kept:
        raise TraceError(f"no request of a tenant named {tenant!r}; {_tenants(load)}")
    return Workload(load.name, kept, load.span_s, (*load.how, f"tenant {tenant} only"))


def _tenants(load: Workload) -> str:
    names = sorted({request.tenant for request in load.requests} - {""})
    if not names:
        return "this workload names none (--columns tenant=... says which column does)"
    return f"there are {', '.join(names[:_NAMED])}" + (f" and {len(names) - _NAMED:,} more" * (len(names) > _NAMED))


class _Shorter:
    """Scales ends of segments, not segments: a prefix of n tokens becomes n * factor, whatever its segments are."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.made: dict[tuple[int, int], Segment] = {}
        """By the original's identity and the new length, so that what was one object stays one."""

    def __call__(self, request: Request) -> Request:
        return Request(
            request.arrival_s,
            tuple(self._segments(request.segments)),
            max(1, round(request.output_tokens * self.factor)),
            request.session,
            request.turn,
            request.shape,
            request.tenant,
        )

    def _segments(self, segments: Sequence[Segment]) -> list[Segment]:
        ends = accumulate((segment.tokens for segment in segments), initial=0)
        lengths = [round(end * self.factor) - round(start * self.factor) for start, end in pairwise(ends)]
        shorter = [self._one(segment, tokens) for segment, tokens in zip(segments, lengths, strict=True) if tokens]
        return shorter or [self._one(segment, 1) for segment in segments[-1:]]

    def _one(self, segment: Segment, tokens: int) -> Segment:
        place = (id(segment), tokens)
        return self.made.get(place) or self.made.setdefault(place, Segment(segment.key, tokens, segment.role))
