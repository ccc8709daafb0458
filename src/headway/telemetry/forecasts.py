"""How good forecasts were: what was expected of each request beside what came, over the whole fleet and per model.

On the request's path numbers are only put aside; medians and percentiles are worked out when somebody asks. Errors are
`|forecast - truth| / truth`. Of a window of the latest ones nothing is averaged away: an hour after a model's outputs
have doubled, its page is about the outputs of now.
"""

from collections import deque
from typing import Final

from headway.core.commands import Settled
from headway.core.outcome import OutcomeKind
from headway.telemetry.tally import Histogram, Table

RATIO_BOUNDS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)
"""Real over forecast: symmetric around 1 on a logarithmic scale, finest where a good forecast lies."""

KEEP: Final = 512
"""Latest errors of a kind: five of them lie beyond the 99th percentile."""

MAX_MODELS: Final = 32
"""Models with a window of their own (48 kB each); all further ones share one."""

QUANTITIES: Final = ("output_tokens", "prompt_tokens", "ttft_seconds", "kv_peak_tokens")
"""What is forecast of every request. The KV peak is all that it holds at its end: prompt and output."""

Summary = dict[str, float]
"""Of one quantity: `p50`, `p99` (errors), `samples`, and `coverage` where there is an interval."""

_OK: Final = OutcomeKind.OK


class Window:
    """The latest errors of one quantity, and whether the truth lay in its interval, if it has one."""

    __slots__ = ("errors", "inside")

    def __init__(self) -> None:
        self.errors: deque[float] = deque(maxlen=KEEP)
        self.inside: deque[bool] = deque(maxlen=KEEP)

    def add(self, forecast: float, truth: float) -> None:
        """One more; `truth` is positive."""
        self.errors.append(abs(forecast - truth) / truth)

    def summary(self) -> Summary:
        """Median, 99th percentile, how many, and the share inside of the interval."""
        ordered = sorted(self.errors)
        count = len(ordered)
        found: Summary = {"p50": _quantile(ordered, 0.5), "p99": _quantile(ordered, 0.99), "samples": count}
        if self.inside:
            found["coverage"] = sum(self.inside) / len(self.inside)
        return found


class ModelForecasts:
    """The windows of one model."""

    __slots__ = ("kv_peak", "output", "prompt", "ttft")

    def __init__(self) -> None:
        self.output = Window()
        self.prompt = Window()
        self.ttft = Window()
        self.kv_peak = Window()

    def settled(self, entry: Settled) -> None:
        """Compare one attempt's end with what was forecast. Of outputs that were cut off nothing is known."""
        outcome, ttft_s, high = entry.outcome, entry.ttft_s, entry.forecast_output_high
        if ttft_s is not None and ttft_s > 0.0 and entry.forecast_ttft_s > 0.0:
            self.ttft.add(entry.forecast_ttft_s, ttft_s)
        prompt, output, believed = outcome.prompt_tokens, entry.output_tokens, entry.forecast_prompt_tokens
        if prompt > 0 and believed:
            self.prompt.add(believed, prompt)
        if outcome.kind is not _OK or output <= 0 or not high:
            return
        expected, low = entry.forecast_output_tokens, entry.forecast_output_low
        self.output.add(expected, output)
        self.output.inside.append(low <= output <= high)
        if prompt > 0:
            held = prompt + output
            self.kv_peak.add(believed + expected, held)
            self.kv_peak.inside.append(believed + low <= held <= believed + high)

    def summary(self) -> dict[str, Summary]:
        """By quantity, those of which something is known."""
        windows = zip(QUANTITIES, (self.output, self.prompt, self.ttft, self.kv_peak), strict=True)
        return {name: window.summary() for name, window in windows if window.errors}


class Forecasts:
    """Ratios over the whole fleet since the start (per replica they would be most of the page), and the latest errors
    by model."""

    __slots__ = ("models", "output", "ttft")

    def __init__(self) -> None:
        self.ttft = Histogram(RATIO_BOUNDS)
        self.output = Histogram(RATIO_BOUNDS)
        self.models: Table[ModelForecasts] = Table(lambda _: ModelForecasts(), limit=MAX_MODELS)

    def settled(self, entry: Settled) -> None:
        """Compare one attempt's end with what was forecast, where both are known."""
        if entry.ttft_s is not None and entry.forecast_ttft_s > 0.0:
            self.ttft.observe(entry.ttft_s / entry.forecast_ttft_s)
        tokens, expected = entry.outcome.output_tokens, entry.forecast_output_tokens
        if tokens and expected > 0.0:
            self.output.observe(tokens / expected)
        self.models[entry.model,].settled(entry)

    def summary(self) -> dict[str, dict[str, Summary]]:
        """By model and quantity."""
        return {model: tally.summary() for (model,), tally in self.models.items()}


def _quantile(ordered: list[float], p: float) -> float:
    """The least error that a share `p` of them does not exceed; 0 without any."""
    return ordered[min(len(ordered) - 1, int(p * len(ordered)))] if ordered else 0.0
