"""What the brain believes about a request before it runs. A plain class and not a Struct, as `entries`."""

from typing import Final, final

from headway.core.ids import ReplicaId
from headway.core.request import RequestInfo

SHORT_OUTPUT_TOKENS: Final = 50.0
"""Outputs expected below this are short: done within a few seconds, before they can hurt."""


@final
class Demand:
    """What the brain forecasts for a request before it runs (tokens).

    `output_mean` and `output_sigma` describe the forecast output length, already capped by the client's limit.
    `hits` maps replicas to prompt tokens believed to be in their prefix cache; absent means 0.
    `output_low` and `output_high` are to hold nine in ten outputs, `output_middle` is as likely exceeded as not (all 0
    where nothing is generated).
    """

    __slots__ = (
        "hits", "output_high", "output_limit", "output_low", "output_mean", "output_middle", "output_sigma",
        "prompt_tokens", "request",
    )  # fmt: skip

    def __init__(
        self,
        request: RequestInfo,
        prompt_tokens: int,
        output_mean: float,
        output_sigma: float,
        output_limit: int,
        hits: dict[ReplicaId, int],
        output_low: int = 0,
        output_middle: int = 0,
        output_high: int = 0,
    ) -> None:
        self.request: Final = request
        self.prompt_tokens: Final = prompt_tokens
        self.output_mean: Final = output_mean
        self.output_sigma: Final = output_sigma
        self.output_limit: Final = output_limit
        self.hits: Final = hits
        self.output_low: Final = output_low
        self.output_middle: Final = output_middle
        self.output_high: Final = output_high

    @property
    def output_class(self) -> str:
        """ "short" or "long", by what is expected of each of its outputs; empty where nothing is generated."""
        if not self.request.generates:
            return ""
        return "short" if self.output_mean < SHORT_OUTPUT_TOKENS * self.request.sequences else "long"

    def hit(self, replica: ReplicaId) -> int:
        """Prompt tokens believed cached at a replica, at most prompt_tokens - 1."""
        return self.hits.get(replica, 0)
