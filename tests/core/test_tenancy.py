"""What tenants may use, and what they have used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.commands import Reject
from headway.core.ids import ReplicaId
from headway.core.request import RequestInfo
from headway.core.tenancy import Bucket, Tenancy, held_tokens
from headway.core.tenant import Tenant
from tests.core.house import demand, request

A = ReplicaId("a")


def tenancy(**limits: object) -> Tenancy:
    found = Tenancy()
    found.configure([Tenant("t", **limits)], 0.0)  # type: ignore[arg-type]
    return found


def ask(**facts: object) -> RequestInfo:
    return request("r", tenant="t", **facts)


def code(refusal: Reject | None) -> tuple[int, str]:
    assert refusal is not None
    assert not refusal.shed
    return refusal.status, refusal.code


class TestBucket:
    def test_it_refills_up_to_its_size(self) -> None:
        bucket = Bucket(2.0, 4.0, 0.0)
        for _ in range(4):
            assert bucket.short_s(1.0, 0.0) == 0.0
            bucket.take(1.0)
        assert bucket.short_s(1.0, 0.0) == 0.5
        assert bucket.short_s(1.0, 0.5) == 0.0
        assert bucket.short_s(4.0, 100.0) == 0.0

    def test_what_exceeds_it_may_be_taken_when_it_is_full_and_is_paid_back(self) -> None:
        bucket = Bucket(1.0, 10.0, 0.0)
        assert bucket.short_s(50.0, 0.0) == 0.0
        bucket.take(50.0)
        assert bucket.short_s(1.0, 0.0) == 41.0

    def test_other_limits_keep_what_was_used(self) -> None:
        bucket = Bucket(1.0, 10.0, 0.0)
        bucket.take(8.0)
        bucket.resize(1.0, 5.0)
        assert bucket.short_s(3.0, 0.0) == 1.0

    @given(st.lists(st.tuples(st.floats(0.0, 2.0), st.floats(0.1, 5.0)), max_size=80))
    def test_no_more_is_taken_than_size_and_rate_allow(self, steps: list[tuple[float, float]]) -> None:
        bucket, at, taken = Bucket(3.0, 5.0, 0.0), 0.0, 0.0
        for pause, amount in steps:
            at += pause
            if not bucket.short_s(amount, at):
                bucket.take(amount)
                taken += amount
            assert taken <= 5.0 + 3.0 * at + 1e-6


def test_nobody_is_limited_who_is_not_configured() -> None:
    found = Tenancy()
    asked = ask(policy="p")
    assert found.completed(asked, 0.0) is asked
    assert found.refuses(asked, 0.0) is None
    assert found.refuses_length(asked, demand(asked), 0.0) is None
    found.entered(asked, demand(asked))
    found.left(demand(asked), 50)
    assert found.usages == {}
    assert found.weight("t") == 1.0
    assert not found.shares("t")


def test_a_request_is_completed_with_what_its_tenant_prescribes() -> None:
    found = tenancy(max_tier=0, deadline_s=5.0, precision_floor="fp8", weight=2.0)
    done = found.completed(ask(tier=2), 10.0)
    assert (done.tier, done.deadline, done.precision_floor) == (0, 15.0, "fp8")
    own = ask(tier=-1, deadline=11.0, precision_floor="bf16")
    assert found.completed(own, 10.0) is own
    assert tenancy().completed(ask(precision_floor="odd"), 10.0).precision_floor == "odd"
    assert found.weight("t") == 2.0


@pytest.mark.parametrize(
    ("asked", "granted"),
    [("", "fp8"), ("any", "fp8"), ("int4", "fp8"), ("int8", "fp8"), ("fp16", "bf16"), ("q8", "fp8"), ("odd", "odd")],
)
def test_no_client_takes_less_precision_than_its_tenant(asked: str, granted: str) -> None:
    assert tenancy(precision_floor="int8").completed(ask(precision_floor=asked), 0.0).precision_floor == granted


def test_names_that_are_not_allowed() -> None:
    found = tenancy(models=("m",), policies=("p",))
    assert [found.may_use("t", model) for model in ("m", "x")] == [True, False]
    assert found.may_use("another", "x")
    assert tenancy().may_use("t", "x")
    assert code(found.refuses(ask(policy="q"), 0.0)) == (403, "policy_not_allowed")
    assert found.refuses(ask(policy="p"), 0.0) is None
    assert found.refuses(ask(), 0.0) is None


def test_requests_alive_are_bounded() -> None:
    found = tenancy(max_concurrent=2)
    asked = ask()
    for _ in range(2):
        assert found.refuses(asked, 0.0) is None
        found.entered(asked, demand(asked))
    assert code(found.refuses(asked, 0.0)) == (429, "concurrency_limit")
    found.left(demand(asked), 50)
    assert found.refuses(asked, 0.0) is None


def test_requests_per_second() -> None:
    found = tenancy(requests_per_s=2.0, burst_s=1.0)
    asked = ask()
    for _ in range(2):
        assert found.refuses(asked, 0.0) is None
        found.entered(asked, demand(asked))
    refusal = found.refuses(asked, 0.0)
    assert code(refusal) == (429, "rate_limit_exceeded")
    assert refusal is not None
    assert refusal.retry_after_s == 1.0
    assert found.refuses(asked, refusal.retry_after_s) is None, "Retry-After comes true"


def test_tokens_per_second_are_charged_by_what_was_produced() -> None:
    found = tenancy(tokens_per_s=100.0, burst_s=4.0)
    asked = ask()
    first = demand(asked, prompt=100, output=200.0)
    assert found.refuses_length(asked, first, 0.0) is None
    found.entered(asked, first)
    refusal = found.refuses_length(asked, first, 0.0)
    assert code(refusal) == (429, "rate_limit_exceeded")
    assert refusal is not None
    assert refusal.retry_after_s == 2.0
    found.sent(first, A)
    found.settled(first, A)
    found.left(first, 0)
    assert found.refuses_length(asked, first, 0.0) is None, "it produced nothing"
    found.entered(asked, first)
    assert found.refuses_length(asked, first, 0.0) is not None
    found.left(first, None)
    assert found.refuses_length(asked, first, 0.0) is None, "it was never served"


def test_the_share_of_memory_counts_what_is_promised() -> None:
    found = tenancy(kv_share=0.5)
    asked = demand(ask(), prompt=100, output=50.0)
    assert found.shares("t")
    assert not found.over_share(asked, {A: 200}), "one may always run"
    found.sent(asked, A)
    assert found.over_share(asked, {A: 200})
    assert not found.over_share(asked, {A: 600})
    assert not found.over_share(asked, {A: 0}), "an unknown capacity is no reason"
    found.settled(asked, A)
    assert not found.over_share(asked, {A: 200})
    assert found.usages["t"].promised == {}
    assert held_tokens(asked) == 150.0


def test_accounts_survive_a_change_of_limits() -> None:
    found = tenancy(max_concurrent=1)
    asked = ask()
    found.entered(asked, demand(asked))
    found.configure([Tenant("t", max_concurrent=2), Tenant("u")], 1.0)
    assert found.usages["t"].alive == 1
    assert found.refuses(asked, 1.0) is None
    found.configure([Tenant("u")], 2.0)
    found.left(demand(asked), 50)
    found.settled(demand(asked), A)
    assert set(found.usages) == {"u"}
    found.configure([Tenant("t")], 3.0)
    found.left(demand(asked), 50)
    assert found.usages["t"].alive == 0, "an end of before is not counted below zero"


@pytest.mark.parametrize("rate", [0.5, 3.0])
def test_the_burst_lets_one_through_at_least(rate: float) -> None:
    assert tenancy(requests_per_s=rate, burst_s=0.1).refuses(ask(), 0.0) is None
