"""How long prompts and outputs are: tokens per byte of prompt, and the distribution of output lengths."""

from collections.abc import Sequence

import msgspec

from headway.core.request import RequestInfo


class LengthConfig(msgspec.Struct, frozen=True):
    """Constants of the length model."""

    bytes_per_token: float = 4.0
    output_mean: float = 256.0
    bins: int = 64
    shrink: float = 50.0
    max_models: int = 256


class LengthModel:
    """What is known about lengths, fleet-wide and per model."""

    def __init__(self, config: LengthConfig | None = None) -> None:
        self._config = config or LengthConfig()

    def prompt_tokens(self, request: RequestInfo) -> int:
        """Prompt tokens: exact if given, else estimated from bytes; at least 1."""
        return request.prompt_tokens or max(
            1, int(request.prompt_bytes / self._config.bytes_per_token) + request.media_tokens
        )

    def prompt_tokens_at_least(self, request: RequestInfo) -> int:
        """A lower bound that is safe to refuse a request on."""
        return request.prompt_tokens or max(1, request.prompt_bytes // 16)

    def observe_prompt(self, request: RequestInfo, prompt_tokens: int) -> None:
        """Learn from the engine's own count."""

    def forecast(self, model: str, limit: int) -> tuple[float, float]:
        """Mean and sigma of output tokens, capped by limit (0 = none)."""
        mean = self._config.output_mean
        return (min(mean, limit) if limit else mean, mean)

    def observe_output(self, model: str, tokens: int, censored: bool) -> None:
        """Learn from an ended output. `censored`: ended by max_tokens or cancel."""

    def left(self, model: str, generated: int, limit: int) -> tuple[float, float]:
        """Mean and variance of the remaining output given `generated`."""
        mean = self._config.output_mean
        left = min(mean, limit - generated) if limit else mean
        return (left, left * left)

    def survival(self, model: str, generated: int, limit: int, ahead: Sequence[int]) -> Sequence[float]:
        """P(still running after `ahead` more tokens), one per entry of `ahead`."""
        mean = self._config.output_mean
        return [0.0 if limit and generated + a >= limit else 2.0 ** (-a / mean) for a in ahead]
