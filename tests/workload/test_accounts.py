"""The accounting identity."""

from hypothesis import given
from hypothesis import strategies as st

from headway.telemetry import access
from headway.workload.accounts import KINDS, Accounts, count


def test_kinds_are_the_gateways_own_words() -> None:
    assert KINDS == access.ACCOUNTS


@given(st.lists(st.sampled_from(KINDS)))
def test_booking_every_end_balances(kinds: list[str]) -> None:
    accounts = count(kinds, len(kinds))  # type: ignore[arg-type]
    assert accounts.balanced
    assert accounts.shed == kinds.count("shed")


@given(st.lists(st.sampled_from(KINDS)), st.integers(1, 5))
def test_a_lost_end_does_not_balance(kinds: list[str], lost: int) -> None:
    assert not count(kinds, len(kinds) + lost).balanced  # type: ignore[arg-type]


@given(st.lists(st.sampled_from(KINDS)), st.lists(st.sampled_from(KINDS)))
def test_runs_add_up(first: list[str], second: list[str]) -> None:
    both = count(first + second, len(first + second))  # type: ignore[arg-type]
    assert count(first, len(first)) + count(second, len(second)) == both  # type: ignore[arg-type]


def test_empty() -> None:
    assert Accounts().balanced
