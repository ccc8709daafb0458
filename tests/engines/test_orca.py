"""Load reports in response headers, in every wording seen."""

import pytest

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.engines import orca

ME = ReplicaId("r")


def read(value: str) -> LoadSample | None:
    return orca.sample(value, ME, 7.0)


@pytest.mark.parametrize(
    "value",
    [
        "named_metrics.kv_cache_usage_perc=0.25,named_metrics.num_requests_waiting=3",
        "TEXT named_metrics.kv_cache_usage_perc=0.25, named_metrics.num_requests_waiting=3.0, cpu_utilization=9",
        '{"named_metrics":{"kv_cache_usage_perc":0.25,"num_requests_waiting":3}}',
        'JSON {"cpu_utilization": 0.3, "named_metrics": {"kv_cache_usage_perc": 0.25, "num_requests_waiting": 3.0}}',
    ],
)
def test_text_and_json_say_the_same(value: str) -> None:
    assert read(value) == LoadSample(ME, 7.0, kv_usage=0.25, waiting=3, partial=True)


def test_triton_names_its_fraction_and_pool_otherwise() -> None:
    sample = read("TEXT named_metrics.kv_cache_utilization=0.5,named_metrics.max_token_capacity=4000")
    assert sample == LoadSample(ME, 7.0, kv_usage=0.5, kv_capacity_tokens=4000, partial=True)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "TEXT",
        "JSON {",
        "JSON []",
        'JSON {"named_metrics": 3}',
        "named_metrics.kv_cache_usage_perc=nan",
        "named_metrics.kv_cache_usage_perc=1.5",
        "named_metrics.num_requests_waiting=-1",
        'JSON {"named_metrics": {"num_requests_waiting": true}}',
        "BIN \x00\x01",
        "cpu_utilization=0.3",
    ],
)
def test_what_says_nothing_usable_is_no_sample(value: str) -> None:
    assert read(value) is None


def test_one_bad_value_leaves_the_other() -> None:
    sample = read("named_metrics.kv_cache_usage_perc=inf,named_metrics.num_requests_waiting=2")
    assert sample == LoadSample(ME, 7.0, waiting=2, partial=True)
