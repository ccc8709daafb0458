"""Load reports in response headers, as the Open Request Cost Aggregation standard writes them: TEXT and JSON.

The engine answers `endpoint-load-metrics-format: TEXT` in a request with `endpoint-load-metrics` in the response. vLLM
writes the value with and without the format's word in front, depending on its version; Triton uses other names.
"""

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.engines import cards
from headway.engines.gauges import usable

HEADER = "endpoint-load-metrics"
USAGES = ("kv_cache_usage_perc", "kv_cache_utilization")
WAITING = "num_requests_waiting"
SIZE = "max_token_capacity"
LONGEST = 8192  # characters; a header beyond our limits on heads is not read


def sample(value: str, replica_id: ReplicaId, taken_at: float) -> LoadSample | None:
    """A partial sample from the header's value, None if nothing in it is usable."""
    values = _values(value[:LONGEST].strip())
    usage = next((values[name] for name in USAGES if name in values), None)
    if usage is not None and usage > 1.0:
        usage = None
    waiting, size = values.get(WAITING), values.get(SIZE)
    if usage is None and waiting is None:
        return None
    return LoadSample(
        replica_id,
        taken_at,
        kv_capacity_tokens=None if size is None else round(size),
        kv_usage=usage,
        waiting=None if waiting is None else round(waiting),
        partial=True,
    )


def _values(value: str) -> dict[str, float]:
    word, _, rest = value.partition(" ")
    if word.upper() in ("TEXT", "JSON"):
        value = rest.strip()
    pairs = _json(value) if value.startswith("{") else _text(value)
    return {name: number for name, number in pairs.items() if usable(number)}


def _text(value: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for pair in value.split(","):
        name, _, number = pair.partition("=")
        try:
            numbers[name.strip().removeprefix("named_metrics.")] = float(number)
        except ValueError:
            continue  # the other pairs still count
    return numbers


def _json(value: str) -> dict[str, float]:
    report = cards.mapping(value.encode())
    named = report.get("named_metrics")
    everything = {**report, **(named if isinstance(named, dict) else {})}
    return {
        name: float(number)
        for name, number in everything.items()
        if isinstance(number, int | float) and not isinstance(number, bool)
    }
