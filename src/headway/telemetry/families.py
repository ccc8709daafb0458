"""From tallies to prometheus_client's metric families. Names follow Prometheus' conventions: base units, `_total`."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headway import __version__
from headway.telemetry.tally import Counter, Histogram, ModelTally, ReplicaTally, Table

MODEL_HISTOGRAMS = (
    ("headway_request_duration_seconds", "From arrival to the last byte.", "duration"),
    ("headway_time_to_first_token_seconds", "From arrival to the first content.", "ttft"),
    ("headway_queue_time_seconds", "Time a request was held by Headway.", "queue"),
)
MODEL_COUNTERS = (
    ("headway_retries", "Attempts beyond a request's first.", "retries"),
    ("headway_prompt_tokens", "Prompt tokens of finished requests.", "prompt_tokens"),
    ("headway_cached_prompt_tokens", "Prompt tokens found in an engine's prefix cache.", "cached_tokens"),
    ("headway_output_tokens", "Tokens generated for clients.", "output_tokens"),
    ("headway_request_bytes", "Bytes of request bodies.", "bytes_in"),
    ("headway_response_bytes", "Bytes of response bodies.", "bytes_out"),
)
REPLICA_HISTOGRAMS = (
    ("headway_ttft_forecast_ratio", "Time to first token, real over forecast.", "ttft_ratio"),
    ("headway_output_forecast_ratio", "Output tokens, real over forecast.", "output_ratio"),
)


def single(name: str, documentation: str, value: float) -> Metric:
    """A counter without labels."""
    return CounterMetricFamily(name, documentation, value=value)


def gauge(name: str, documentation: str, value: float) -> Metric:
    """A gauge without labels."""
    return GaugeMetricFamily(name, documentation, value=value)


def build_info() -> Metric:
    """The version of Headway as a label, as Prometheus users join it."""
    info = GaugeMetricFamily("headway_build_info", "Version of Headway.", labels=("version",))
    info.add_metric((__version__,), 1)
    return info


def counted(name: str, documentation: str, labels: tuple[str, ...], table: Mapping[tuple[str, ...], Counter]) -> Metric:
    """A counter per label combination of a table."""
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, counter in table.items():
        family.add_metric(values, counter.value)
    return family


def model_metrics(models: Table[ModelTally]) -> Iterator[Metric]:
    """Latencies and token counts per model."""
    for name, text, attribute in MODEL_HISTOGRAMS:
        yield _histograms(name, text, "model", models, attribute)
    for name, text, attribute in MODEL_COUNTERS:
        family = CounterMetricFamily(name, text, labels=("model",))
        for labels, tally in models.items():
            family.add_metric(labels, getattr(tally, attribute))
        yield family


def replica_metrics(replicas: Table[ReplicaTally]) -> Iterator[Metric]:
    """Attempts by outcome and the forecast's error per replica."""
    attempts = CounterMetricFamily("headway_attempts", "Attempts ended.", labels=("replica", "outcome"))
    for (replica,), tally in replicas.items():
        for kind, count in tally.outcomes():
            attempts.add_metric((replica, kind), count)
    yield attempts
    for name, text, attribute in REPLICA_HISTOGRAMS:
        yield _histograms(name, text, "replica", replicas, attribute)


def _histograms(
    name: str, text: str, label: str, table: Table[ModelTally] | Table[ReplicaTally], attribute: str
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=(label,))
    for labels, tally in table.items():
        histogram: Histogram = getattr(tally, attribute)
        family.add_metric(labels, histogram.cumulative(), histogram.total)
    return family
