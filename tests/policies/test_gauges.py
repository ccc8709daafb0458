"""A report as it stands, and nothing where it does not say."""

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.policies.gauges import usage, waiting


def sample(**gauges: object) -> LoadSample:
    return LoadSample(ReplicaId("a"), 0.0, **gauges)  # type: ignore[arg-type]


def test_usage_is_the_share_reported_or_tokens_over_the_pool() -> None:
    assert usage(sample(kv_usage=0.3, kv_used_tokens=9), 10) == 0.3
    assert usage(sample(kv_used_tokens=9, kv_capacity_tokens=12), 10) == 0.75
    assert usage(sample(kv_used_tokens=9), 10) == 0.9
    assert usage(sample(kv_used_tokens=99), 10) == 1.0


def test_what_is_not_said_counts_as_nothing() -> None:
    assert usage(None, 10) == usage(sample(), 10) == usage(sample(kv_used_tokens=9), 0) == 0.0
    assert waiting(None) == waiting(sample()) == 0
    assert waiting(sample(waiting=4)) == 4
