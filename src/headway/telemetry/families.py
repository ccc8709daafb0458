"""From tallies to metrics. Names follow Prometheus' conventions: base units, counters end in `_total`."""

from collections.abc import Mapping

from headway import __version__
from headway.telemetry.exposition import Page, label_text
from headway.telemetry.forecasts import Forecasts
from headway.telemetry.tally import Counter, ModelTally, ReplicaTally, Table, TenantTally

MODEL_HISTOGRAMS = (
    ("headway_request_duration_seconds", "From arrival to the last byte.", "duration"),
    ("headway_time_to_first_token_seconds", "From arrival to the first content.", "ttft"),
    ("headway_queue_time_seconds", "Time a request was held by Headway.", "queue"),
)
MODEL_COUNTERS = (
    ("headway_retries_total", "Attempts beyond a request's first.", "retries"),
    ("headway_prompt_tokens_total", "Prompt tokens of finished requests.", "prompt_tokens"),
    ("headway_cached_prompt_tokens_total", "Prompt tokens found in an engine's prefix cache.", "cached_tokens"),
    ("headway_output_tokens_total", "Tokens generated for clients.", "output_tokens"),
    ("headway_request_bytes_total", "Bytes of request bodies.", "bytes_in"),
    ("headway_response_bytes_total", "Bytes of response bodies.", "bytes_out"),
)
QUANTILES = (("0.5", "p50"), ("0.99", "p99"))
WINDOW_GAUGES = (
    ("headway_forecast_coverage_ratio", "Share of the latest truths inside of their 90 % interval.", "coverage"),
    ("headway_forecast_samples", "How many forecasts the latest errors are of.", "samples"),
)


def single(page: Page, name: str, kind: str, documentation: str, value: float) -> None:
    """A metric without labels."""
    page.family(name, kind, documentation)
    page.sample(value)


def build_info(page: Page) -> None:
    """The version of Headway as a label, as Prometheus users join it."""
    page.family("headway_build_info", "gauge", "Version of Headway.")
    page.sample(1, label_text(("version",), (__version__,)))


def counted(
    page: Page, name: str, documentation: str, labels: tuple[str, ...], table: Mapping[tuple[str, ...], Counter]
) -> None:
    """A counter per label combination of a table."""
    page.family(name, "counter", documentation)
    for values, counter in table.items():
        page.sample(counter.value, label_text(labels, values))


def model_metrics(page: Page, models: Table[ModelTally]) -> None:
    """Latencies and token counts per model."""
    for name, text, attribute in MODEL_HISTOGRAMS:
        page.family(name, "histogram", text)
        for (model,), tally in models.items():
            histogram = getattr(tally, attribute)
            page.histogram(histogram.cumulative(), histogram.total, ("model", model))
    for name, text, attribute in MODEL_COUNTERS:
        page.family(name, "counter", text)
        for labels, tally in models.items():
            page.sample(getattr(tally, attribute), label_text(("model",), labels))


def tenant_metrics(page: Page, tenants: Table[TenantTally]) -> None:
    """Requests and tokens per tenant of the settings."""
    page.family("headway_tenant_requests_total", "counter", "Requests ended, by whose they are.")
    for (tenant,), tally in tenants.items():
        for account, count in tally.accounts.items():
            page.sample(count, label_text(("tenant", "account"), (tenant, account)))
    page.family("headway_tenant_tokens_total", "counter", "Tokens of finished requests, by whose they are.")
    for (tenant,), tally in tenants.items():
        for kind, count in (("prompt", tally.prompt_tokens), ("output", tally.output_tokens)):
            page.sample(count, label_text(("tenant", "kind"), (tenant, kind)))


def attempt_metrics(page: Page, replicas: Table[ReplicaTally]) -> None:
    """Attempts by outcome per replica."""
    page.family("headway_attempts_total", "counter", "Attempts ended.")
    for (replica,), tally in replicas.items():
        for kind, count in tally.outcomes():
            page.sample(count, label_text(("replica", "outcome"), (replica, kind)))


def forecast_metrics(page: Page, forecasts: Forecasts) -> None:
    """How wrong forecasts of requests were: over the fleet since the start, and of late by model."""
    page.family("headway_ttft_forecast_ratio", "histogram", "Time to first token, real over forecast.")
    page.histogram(forecasts.ttft.cumulative(), forecasts.ttft.total)
    page.family("headway_output_forecast_ratio", "histogram", "Output tokens, real over forecast.")
    page.histogram(forecasts.output.cumulative(), forecasts.output.total)
    rows = [(m, quantity, s) for m, found in forecasts.summary().items() for quantity, s in found.items()]
    page.family("headway_forecast_error_ratio", "gauge", "Error of the latest forecasts over the truth.")
    for model, quantity, summary in rows:
        for quantile, name in QUANTILES:
            page.sample(summary[name], label_text(("model", "quantity", "quantile"), (model, quantity, quantile)))
    for metric, text, name in WINDOW_GAUGES:
        page.family(metric, "gauge", text)
        for model, quantity, summary in rows:
            if name in summary:
                page.sample(summary[name], label_text(("model", "quantity"), (model, quantity)))
