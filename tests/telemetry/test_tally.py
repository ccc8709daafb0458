from hypothesis import given
from hypothesis import strategies as st

from headway.telemetry.tally import LATENCY_BOUNDS_S, Counter, Histogram, Table


@given(st.lists(st.floats(0, 1000)))
def test_histogram_is_cumulative_and_complete(values: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    pairs = histogram.cumulative()
    assert pairs[-1] == ("+Inf", float(len(values)))
    for bound, count in pairs[:-1]:
        assert count == sum(value <= float(bound) for value in values)


def test_bounds_grow() -> None:
    assert list(LATENCY_BOUNDS_S) == sorted(set(LATENCY_BOUNDS_S))


def test_table_folds_when_full() -> None:
    table: Table[Counter] = Table(lambda _: Counter(), limit=3, fold=lambda labels: ("other", labels[1]))
    for number in range(100):
        table[f"m{number}", "ok"].value += 1
        table[f"m{number}", "shed"].value += 1
    assert len(table) == 5
    assert sum(counter.value for counter in table.values()) == 200
    assert table["other", "shed"].value > 90
