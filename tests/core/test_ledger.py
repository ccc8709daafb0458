"""Tokens are conserved: in any order of news, sums equal their entries, never go below zero, and end at zero."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from headway.core.constants import LedgerConfig
from headway.core.entry import Entry
from headway.core.ids import AttemptId, ReplicaId
from headway.core.ledger import Account, Ledger
from headway.core.memory import HORIZONS, Outlook
from tests.core.house import demand, request

OUTLOOK = Outlook([0.5**i for i in range(len(HORIZONS))])
REPLICAS = [ReplicaId("a"), ReplicaId("b")]


def entry(name: str, replica: str = "a", prompt: int = 100, hit: int = 0, reserve: int = 50, at: float = 0.0) -> Entry:
    part = OUTLOOK.share(float(prompt))
    return Entry(
        AttemptId(name),
        request(name),
        ReplicaId(replica),
        prompt,
        hit,
        hit,
        reserve,
        0,
        part,
        at,
        at,
        0.1,
        demand(request(name), prompt, float(reserve)),
    )


def books(*replicas: str) -> Ledger:
    ledger = Ledger()
    for replica in replicas or ("a",):
        ledger.account(ReplicaId(replica))
    return ledger


def sums(account: Account) -> tuple[int, ...]:
    return (
        account.in_flight,
        account.started,
        account.decoding,
        account.prefill,
        account.context,
        account.hits,
        account.reserved,
    )


class Conservation(RuleBasedStateMachine):
    """Any order of any news."""

    attempts = Bundle("attempts")
    ended = Bundle("ended")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = books(*REPLICAS)
        self.serial = 0
        self.at = 0.0

    def tick(self) -> float:
        self.at += 0.01
        return self.at

    @rule(
        target=attempts,
        replica=st.sampled_from(REPLICAS),
        prompt=st.integers(1, 5000),
        share=st.floats(0, 1),
        reserve=st.integers(0, 2000),
    )
    def open(self, replica: ReplicaId, prompt: int, share: float, reserve: int) -> AttemptId:
        self.serial += 1
        item = entry(f"r{self.serial}-0", replica, prompt, int((prompt - 1) * share), reserve)
        self.ledger.open(item, self.tick())
        return item.attempt_id

    @rule(attempt=attempts)
    def first_token(self, attempt: AttemptId) -> None:
        self.ledger.first_token(attempt, self.tick())

    @rule(counts=st.lists(st.tuples(attempts, st.integers(0, 3000)), max_size=4))
    def progress(self, counts: list[tuple[AttemptId, int]]) -> None:
        self.ledger.progress(counts, self.tick())

    @rule(attempt=attempts, reserve=st.integers(0, 3000))
    def revise(self, attempt: AttemptId, reserve: int) -> None:
        found = self.ledger.entries.get(attempt)
        if found is not None:
            account = self.ledger.accounts[found.replica_id]
            account.revise(found, reserve, OUTLOOK.share(float(found.prompt + found.generated)))
            account.curve.reset(e.share for e in account.entries.values())

    @rule(target=ended, attempt=consumes(attempts))
    def settle(self, attempt: AttemptId) -> object:
        return attempt if self.ledger.settle(attempt, self.tick()) else multiple()

    @rule(attempt=ended)
    def late_news(self, attempt: AttemptId) -> None:
        before = [sums(account) for account in self.ledger.accounts.values()]
        ignored = self.ledger.ignored
        assert self.ledger.settle(attempt, self.tick()) is None
        assert self.ledger.first_token(attempt, self.tick()) is None
        assert self.ledger.progress([(attempt, 10)], self.tick()) == []
        assert self.ledger.ignored == ignored + 3
        assert [sums(account) for account in self.ledger.accounts.values()] == before

    @invariant()
    def sums_equal_entries(self) -> None:
        for replica, account in self.ledger.accounts.items():
            mine = [e for e in self.ledger.entries.values() if e.replica_id == replica]
            started = [e for e in mine if e.started]
            assert sums(account) == (
                len(mine),
                len(started),
                sum(e.first_token_at is not None for e in mine),
                sum(e.uncached for e in mine if not e.started),
                sum(e.prompt + e.generated for e in started),
                sum(e.hit for e in started),
                sum(e.outstanding for e in mine),
            )
            assert min(sums(account)) >= 0
            assert list(account.entries.values()) == mine

    @invariant()
    def the_log_explains_the_change(self) -> None:
        for account in self.ledger.accounts.values():
            since = account.since(-1.0)
            assert since.in_flight == account.in_flight
            assert since.started == account.started
            assert since.prefill == account.prefill
            assert since.context == account.context

    def teardown(self) -> None:
        for attempt in list(self.ledger.entries):
            self.ledger.settle(attempt, self.tick())
        for account in self.ledger.accounts.values():
            assert sums(account) == (0,) * 7
            assert account.curve.peak(2.0) == (0.0, 0.0)


Conservation.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestConservation = pytest.mark.slow(Conservation.TestCase)


def test_a_life_moves_tokens_from_promised_to_held_to_nothing() -> None:
    ledger = books()
    account = ledger.accounts[ReplicaId("a")]
    ledger.open(entry("r-0", hit=40), 1.0)
    assert (account.prefill, account.reserved, account.context, account.dispatched) == (60, 50, 0, 60)
    ledger.first_token(AttemptId("r-0"), 2.0)
    assert (account.prefill, account.context, account.hits, account.decoding) == (0, 100, 40, 1)
    assert ledger.progress([(AttemptId("r-0"), 30)], 2.5) == ["a"]
    assert (account.context, account.reserved, account.generated) == (130, 20, 30)
    ledger.progress([(AttemptId("r-0"), 70)], 3.0)
    assert account.reserved == 0
    found = ledger.settle(AttemptId("r-0"), 4.0)
    assert found is not None
    assert found.heard_at == 3.0
    assert sums(account) == (0,) * 7


def test_progress_before_the_first_token_starts_the_attempt() -> None:
    ledger = books()
    ledger.open(entry("r-0"), 1.0)
    ledger.progress([(AttemptId("r-0"), 0)], 2.0)
    found = ledger.entries[AttemptId("r-0")]
    assert found.started
    assert found.first_token_at == 2.0


def test_counts_never_go_back() -> None:
    ledger = books()
    ledger.open(entry("r-0"), 1.0)
    ledger.progress([(AttemptId("r-0"), 9)], 2.0)
    assert ledger.progress([(AttemptId("r-0"), 5)], 3.0) == []
    assert ledger.accounts[ReplicaId("a")].context == 109


def test_an_attempt_is_opened_once() -> None:
    ledger = books()
    ledger.open(entry("r-0"), 1.0)
    with pytest.raises(ValueError, match="r-0"):
        ledger.open(entry("r-0"), 2.0)


def test_a_presumed_start_is_started_once() -> None:
    ledger = books()
    item = entry("r-0")
    ledger.open(item, 1.0)
    ledger.accounts[ReplicaId("a")].start(item, 1.5)
    ledger.first_token(item.attempt_id, 2.0)
    assert ledger.accounts[ReplicaId("a")].context == 100
    assert ledger.accounts[ReplicaId("a")].decoding == 1


def test_decoding_time_is_integrated() -> None:
    ledger = books()
    account = ledger.accounts[ReplicaId("a")]
    for name, at in (("r-0", 1.0), ("s-0", 3.0)):
        ledger.open(entry(name), at)
        ledger.first_token(AttemptId(name), at)
    ledger.settle(AttemptId("r-0"), 4.0)
    assert account.advance(6.0) == (4.0 - 1.0) + (6.0 - 3.0)


def test_since_tells_what_a_report_cannot_know() -> None:
    ledger = books()
    account = ledger.accounts[ReplicaId("a")]
    ledger.open(entry("r-0"), 1.0)
    ledger.open(entry("s-0", prompt=70), 2.0)
    since = account.since(2.0)
    assert (since.in_flight, since.prefill, since.dispatched) == (1, 70, 70)
    assert account.since(0.0).in_flight == 1, "older changes are forgotten"


def test_a_tick_may_name_replicas_in_any_order() -> None:
    ledger = books("a", "b")
    for name, replica in (("r-0", "a"), ("s-0", "b"), ("t-0", "a"), ("u-0", "b")):
        ledger.open(entry(name, replica), 0.0)
    told = [(AttemptId(name), count) for name, count in (("s-0", 3), ("r-0", 5), ("x-0", 9), ("u-0", 0), ("t-0", 7))]
    assert ledger.progress(told, 1.0) == ["b", "a"], "each that advanced, once"
    assert [ledger.accounts[r].generated for r in REPLICAS] == [12, 3]
    assert [ledger.accounts[r].since(1.0).context for r in REPLICAS] == [212, 203]
    assert ledger.progress(told, 2.0) == []
    assert ledger.ignored == 2


def test_the_log_is_bounded() -> None:
    account = Account(LedgerConfig(log_entries=10))
    for i in range(100):
        account.ticked = 1
        account.grown(float(i))
    assert account.since(0.0).context == 10


def test_accounts_live_until_they_are_empty() -> None:
    ledger = books()
    ledger.open(entry("r-0"), 1.0)
    ledger.drop(ReplicaId("a"))
    assert ReplicaId("a") in ledger.accounts
    ledger.settle(AttemptId("r-0"), 2.0)
    ledger.drop(ReplicaId("a"))
    ledger.drop(ReplicaId("a"))
    assert not ledger.accounts
