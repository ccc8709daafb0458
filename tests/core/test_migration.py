"""Moving running requests: one end for each attempt, one for each request, and nothing lost in between."""

import random

import pytest

from headway.core.commands import Command, Dispatch, Evict, Hold, Migrate, Moved, Reject
from headway.core.constants import AdmissionConfig, BrainConfig, MigrationConfig
from headway.core.decision import Decision
from headway.core.events import DrainAsked, EvictionRefused, MigrateAsked, ReplicasChanged, RequestCancelled, TimerFired
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.migration import LIVES_ON, MOST_ATTEMPTS, NEXT, Phase, Signal
from headway.core.outcome import OutcomeKind
from headway.core.tenant import Tier
from tests.core.house import FewestInFlight, House, decision, entries, only, sent_to

A, B = ReplicaId("a"), ReplicaId("b")


def ready(*names: str, capacity: int = 10_000, **settings: object) -> House:
    migration = MigrationConfig(**{"enabled": True, "cooldown_s": 0.0, **settings})  # type: ignore[arg-type]
    house = House(
        FewestInFlight(binds_late=True), BrainConfig(admission=AdmissionConfig(pace=False), migration=migration)
    )
    house.add(*(names or ("a", "b")), kv_capacity_tokens=capacity)
    return house


def running(house: House, name: str = "r", tokens: int = 50, **facts: object) -> None:
    """A request that has said so much."""
    facts.setdefault("max_output_tokens", 1000)
    house.ask(name, resumable=True, **facts)
    house.first(f"{name}-0")
    house.grow(**{f"{name}_0": tokens})


def move(house: House, name: str = "r", target: str = "") -> list[Command]:
    return house.tell(MigrateAsked(house.now, RequestId(name), ReplicaId(target)))


def results(commands: list[Command]) -> list[str]:
    return [moved.result for moved in entries(commands, Moved)]


def quiet(house: House) -> None:
    after = house.brain.snapshot(house.now)
    assert (after.in_flight, after.queued) == (0, 0)
    assert all((view.in_flight, view.reserved_tokens, view.context_tokens) == (0, 0.0, 0.0) for view in after.views)
    assert house.brain._migration.under_way == []


def test_a_move_that_succeeds() -> None:
    house = ready()
    running(house)
    commands = move(house)
    (migrate,) = only(commands, Migrate)
    replay_s = 150 / house.view("b").speed.prefill_tokens_per_s
    assert migrate == Migrate(RequestId("r"), "r-0", "r-1", B, "m", "operator", 150, replay_s)
    assert results(commands) == ["begun"]
    assert [house.view(name).in_flight for name in "ab"] == [1, 1], "both are reserved for"
    assert house.view("b").prefill_backlog_tokens == 150, "what was generated is prompt there"
    house.grow(r_0=55)
    house.first("r-1")
    commands = house.end("r-0", OutcomeKind.MIGRATED, committed=True, output_tokens=56)
    assert results(commands) == ["cut"]
    assert [house.view(name).in_flight for name in "ab"] == [0, 1]
    house.end("r-1", output_tokens=300)
    quiet(house)


def test_a_target_that_fails_costs_nothing() -> None:
    house = ready()
    running(house)
    move(house)
    commands = house.end("r-1", OutcomeKind.CONNECT_FAILED)
    assert results(commands) == ["abandoned"]
    assert only(commands, Dispatch) == only(commands, Reject) == []
    assert only(move(house), Migrate) == [], "b is out of rotation"
    house.end("r-0", output_tokens=100)
    quiet(house)


def test_a_source_that_ends_first_ends_the_request() -> None:
    house = ready()
    running(house)
    move(house)
    assert results(house.end("r-0", output_tokens=60)) == ["abandoned"]
    assert house.brain._jobs == {}
    house.end("r-1", OutcomeKind.CANCELLED)
    quiet(house)


def test_a_source_that_is_lost_leaves_the_request_to_the_target() -> None:
    house = ready()
    running(house)
    move(house)
    assert results(house.end("r-0", OutcomeKind.TRUNCATED, committed=True, sent=True, resumable=True)) == [
        "failed_over"
    ]
    house.first("r-1")
    house.end("r-1", output_tokens=200)
    quiet(house)


def test_who_loses_its_replica_in_the_middle_goes_on_elsewhere() -> None:
    house = ready()
    running(house, tokens=70)
    house.wait(3.0)
    commands = house.end("r-0", OutcomeKind.TRUNCATED, committed=True, sent=True, resumable=True, output_tokens=70)
    (dispatch,) = only(commands, Dispatch)
    assert (dispatch.replica_id, dispatch.resumes, dispatch.attempt_id) == (B, True, "r-1")
    assert decision(commands).queued_s == 0.0, "it ran meanwhile"
    assert results(commands) == ["failed_over"]
    assert house.view("b").prefill_backlog_tokens == 170
    house.end("r-1", output_tokens=90)
    quiet(house)


def test_what_cannot_be_continued_ends_as_before() -> None:
    house = ready()
    running(house)
    commands = house.end("r-0", OutcomeKind.TRUNCATED, committed=True, sent=True)
    assert only(commands, Dispatch) == only(commands, Reject) == []
    quiet(house)


def test_a_poison_does_not_go_round() -> None:
    house = ready("a", "b", "c", "d", failovers_max=2)
    running(house)
    for number in range(2):
        commands = house.end(f"r-{number}", OutcomeKind.TRUNCATED, committed=True, resumable=True, output_tokens=50)
        assert only(commands, Dispatch)[0].resumes
        house.first(f"r-{number + 1}")
    commands = house.end("r-2", OutcomeKind.TRUNCATED, committed=True, resumable=True, output_tokens=50)
    assert results(commands) == ["refused"]
    assert [(one.status, one.code) for one in only(commands, Reject)] == [(502, "upstream_failed")]
    quiet(house)


def test_moves_that_came_to_nothing_leave_one_try_for_a_failover() -> None:
    house = ready()
    running(house)
    for number in range(1, MOST_ATTEMPTS):
        assert results(move(house)) == ["begun"]
        house.end(f"r-{number}", OutcomeKind.CANCELLED, detail="the target was late")
    assert results(move(house)) == ["refused"]
    (dispatch,) = only(lose(house), Dispatch)
    assert (dispatch.attempt_id, dispatch.resumes) == (f"r-{MOST_ATTEMPTS}", True)
    commands = lose(house, dispatch.attempt_id)
    assert [one.code for one in only(commands, Reject)] == ["upstream_failed"], "ids have one digit"
    quiet(house)


def test_a_replica_that_never_went_on_is_not_held_against_the_request() -> None:
    house = ready("a", "b", "c", "d", failovers_max=1)
    running(house)
    seen = {"a"}
    for number in range(3):
        commands = house.end(f"r-{number}", OutcomeKind.RESET, committed=True, resumable=True, output_tokens=50)
        seen.add(only(commands, Dispatch)[0].replica_id)
    assert seen == {"a", "b", "c", "d"}, "each is tried once"


def test_without_room_the_survivor_waits() -> None:
    house = ready(capacity=1000)
    running(house, prompt_tokens=600, max_output_tokens=100)
    running(house, "s", prompt_tokens=600, max_output_tokens=100)
    house.tell(DrainAsked(house.now, A))
    commands = house.end("r-0", OutcomeKind.TRUNCATED, committed=True, resumable=True, output_tokens=50)
    assert only(commands, Hold) != []
    assert only(commands, Dispatch) == []
    commands = house.wait(20.0).end("s-0", output_tokens=60)
    assert [d.request_id for d in only(commands, Dispatch)] == ["r"]
    assert only(commands, Dispatch)[0].resumes
    house.end("r-1", output_tokens=60)
    quiet(house)


OTHERS = [{"model": "other"}, {"version": "2"}, {"precision": "fp8"}, {"engine": "vllm"}]


def lose(house: House, attempt: str = "r-0", kind: OutcomeKind = OutcomeKind.RESET, tokens: int = 50) -> list[Command]:
    return house.end(attempt, kind, committed=True, sent=True, resumable=True, output_tokens=tokens)


@pytest.mark.parametrize("other", OTHERS)
def test_a_survivor_goes_on_as_it_began(other: dict[str, str]) -> None:
    """Other models, versions and precisions would say something else, and other engines could not take over."""
    house = ready("a", "c")
    running(house)
    house.add("b", kv_capacity_tokens=10_000, **other)
    house.wait(60.0)
    running(house, "busy")
    assert house.view("c").in_flight > house.view("b").in_flight
    commands = lose(house)
    assert sent_to(commands) == "c"
    assert decision(commands).exclusions["unlike"] == 1


@pytest.mark.parametrize("other", OTHERS)
def test_who_finds_no_replica_of_its_make_waits_for_one(other: dict[str, str]) -> None:
    house = ready("a")
    running(house)
    house.add("b", kv_capacity_tokens=10_000, **other)
    house.wait(60.0).tell(DrainAsked(house.now, A))
    commands = lose(house)
    assert only(commands, Hold) != []
    assert sent_to(house.ask("new", prompt_tokens=10)) is not None
    assert sent_to(house.wait(1.0).add("c", kv_capacity_tokens=10_000)) == "c"


@pytest.mark.parametrize("other", OTHERS)
def test_who_finds_no_replica_of_its_make_goes_back(other: dict[str, str]) -> None:
    """As it would if those of another make were not there."""
    house = ready("a")
    running(house)
    house.add("b", kv_capacity_tokens=10_000, **other)
    assert sent_to(lose(house.wait(60.0))) == "a"


@pytest.mark.parametrize("other", OTHERS)
def test_who_was_evicted_goes_on_as_it_began(other: dict[str, str]) -> None:
    house = ready("a", capacity=1000)
    running(house, "x", prompt_tokens=600, max_output_tokens=300, tier=Tier.LOW)
    running(house, "y", prompt_tokens=50, max_output_tokens=100)
    house.ask("urgent", prompt_tokens=700, max_output_tokens=50, tier=Tier.HIGH)
    house.tell(TimerFired(house.now, "rebalance:"))
    commands = lose(house, "x-0", OutcomeKind.EVICTED)
    assert sent_to(commands) == "a"
    house.add("b", kv_capacity_tokens=10_000, **other)
    assert [one.request_id for one in house.brain.snapshot(house.now).held] == ["x"]
    assert sent_to(house.wait(60.0).report("b", running=0, waiting=0, kv_used_tokens=0)) is None
    assert [(d.request_id, d.replica_id) for d in only(house.end("urgent-0"), Dispatch)] == [("x", "a")]


def test_who_outlived_its_make_is_told() -> None:
    house = ready("a")
    house.add("b", kv_capacity_tokens=10_000, engine="vllm")
    running(house)
    house.tell(ReplicasChanged(house.now, removed=(A,)))
    assert [one.code for one in only(lose(house), Reject)] == ["no_replica"]
    assert house.brain._jobs == {}


def rooms(**limits: int) -> House:
    """Replicas with so much context each, and a long run on the first."""
    house = ready("a")
    house.tell(ReplicasChanged(house.now, removed=(A,)))
    for name, limit in limits.items():
        house.add(name, kv_capacity_tokens=20_000, max_model_tokens=limit)
    return house


@pytest.mark.parametrize(
    ("limit", "said", "room", "goes"),
    [
        (0, 600, 1008, False),  # it is longer already
        (0, 300, 1008, True),  # it may end before the limit, and would be lost otherwise
        (2000, 300, 1008, False),  # an engine refuses what may grow beyond its room
        (400, 300, 1008, True),
        (20_000, 300, 8000, False),
        (20_000, 300, 8192, True),  # no more than there was where it ran
        (20_000, 300, 0, True),  # nobody knows
    ],
)
def test_a_survivor_goes_where_there_is_room_for_it(limit: int, said: int, room: int, goes: bool) -> None:
    house = rooms(a=8192)
    running(house, prompt_tokens=500, prompt_bytes=2000, max_output_tokens=limit, tokens=said)
    house.add("b", kv_capacity_tokens=20_000, max_model_tokens=room)
    commands = lose(house, tokens=said)
    assert sent_to(commands) == ("b" if goes else "a")


@pytest.mark.parametrize(
    ("limit", "room", "goes"), [(0, 1008, False), (0, 8192, True), (400, 1008, True), (2000, 1008, False)]
)
def test_a_move_goes_where_there_is_room_for_all_it_may_say(limit: int, room: int, goes: bool) -> None:
    house = rooms(a=8192)
    running(house, prompt_tokens=500, prompt_bytes=2000, max_output_tokens=limit, tokens=300)
    house.add("b", kv_capacity_tokens=20_000, max_model_tokens=room)
    house.wait(60.0).report("a", running=1, waiting=0, kv_used_tokens=800)
    house.report("b", running=0, waiting=0, kv_used_tokens=0)
    assert results(move(house)) == ["begun" if goes else "refused"]


def test_room_where_it_ran_need_not_be_known() -> None:
    """Its replica is gone with all that was known of it: what there is of the run must fit."""
    house = rooms(a=8192, b=1008, c=8192)
    running(house, prompt_tokens=500, prompt_bytes=2000, max_output_tokens=4000, tokens=600)
    house.tell(ReplicasChanged(house.now, removed=(A,)))
    assert sent_to(lose(house, tokens=600)) == "c"


def test_a_model_that_nobody_serves_any_more_is_an_error() -> None:
    house = ready()
    running(house)
    house.tell(ReplicasChanged(house.now, removed=(A, B)))
    commands = house.end("r-0", OutcomeKind.TRUNCATED, committed=True, resumable=True, output_tokens=50)
    assert [one.code for one in only(commands, Reject)] == ["no_replica"]
    assert house.brain._jobs == {}


def test_eviction_makes_room_for_what_matters_and_loses_nothing() -> None:
    house = ready("a", "b", capacity=1000)
    for name in ("x", "y"):
        running(house, name, prompt_tokens=600, max_output_tokens=300, tier=Tier.LOW)
    assert sent_to(house.ask("urgent", prompt_tokens=700, max_output_tokens=50, tier=Tier.HIGH)) is None
    commands = house.wait(0.5).tell(TimerFired(house.now, "rebalance:"))
    (evict,) = only(commands, Evict)
    assert evict.reason == "urgent"
    name = evict.attempt_id.removesuffix("-0")
    commands = house.end(evict.attempt_id, OutcomeKind.EVICTED, committed=True, resumable=True, output_tokens=50)
    assert results(commands) == ["evicted"]
    assert [d.request_id for d in only(commands, Dispatch)] == ["urgent"]
    held = house.brain.snapshot(house.now).held
    assert [one.request_id for one in held] == [name]
    commands = house.end("urgent-0", output_tokens=20)
    assert [(d.request_id, d.resumes) for d in only(commands, Dispatch)] == [(name, True)]
    house.end(f"{name}-1", output_tokens=200)
    other = "y" if name == "x" else "x"
    house.end(f"{other}-0", output_tokens=200)
    quiet(house)


def test_an_eviction_that_comes_too_late_changes_nothing() -> None:
    house = ready("a", "b", capacity=1000)
    for name in ("x", "y"):
        running(house, name, prompt_tokens=600, max_output_tokens=300, tier=Tier.LOW)
    house.ask("urgent", prompt_tokens=700, max_output_tokens=50, tier=Tier.HIGH)
    (evict,) = only(house.wait(0.5).tell(TimerFired(house.now, "rebalance:")), Evict)
    commands = house.end(evict.attempt_id, output_tokens=60)
    assert results(commands) == ["abandoned"]
    assert [d.request_id for d in only(commands, Dispatch)] == ["urgent"]


def test_an_eviction_that_cannot_be_performed_is_over() -> None:
    """The request stays, may be moved otherwise, and is not asked for again for ever."""
    house = ready("a", "b", capacity=1000, evictions_max=1)
    for name in ("x", "y"):
        running(house, name, prompt_tokens=600, max_output_tokens=300, tier=Tier.LOW)
    house.ask("urgent", prompt_tokens=700, max_output_tokens=50, tier=Tier.HIGH)
    evicted: list[str] = []
    for _ in range(3):
        commands = house.wait(0.5).tell(TimerFired(house.now, "rebalance:"))
        for evict in only(commands, Evict):
            evicted.append(evict.attempt_id)
            told = house.tell(EvictionRefused(house.now, evict.attempt_id))
            (record,) = entries(told, Moved)
            assert (record.result, record.reason) == ("abandoned", "urgent (it cannot be continued)")
            assert house.brain._migration.under_way == []
    assert evicted
    assert len(set(evicted)) == len(evicted), "nobody is asked for twice"
    assert house.brain.snapshot(house.now).in_flight == 2
    ignored = house.brain.ignored
    for attempt in ("x-0", "nobody-0"):
        assert house.tell(EvictionRefused(house.now, AttemptId(attempt))) == []
    assert house.brain.ignored == ignored + 2
    for attempt in ("x-0", "y-0"):
        house.end(attempt, output_tokens=60)
    house.end("urgent-0", output_tokens=20)
    quiet(house)


def test_a_refusal_concerns_evictions_only() -> None:
    house = ready()
    running(house)
    move(house)
    assert house.tell(EvictionRefused(house.now, AttemptId("r-0"))) == []
    house.end("r-0", OutcomeKind.MIGRATED, committed=True, output_tokens=56)
    house.end("r-1", output_tokens=60)
    quiet(house)


def test_a_held_survivor_can_leave_or_run_out_of_time() -> None:
    house = ready("a", "b", capacity=1000)
    running(house, prompt_tokens=600, max_output_tokens=100)
    running(house, "s", prompt_tokens=600, max_output_tokens=100)
    house.tell(DrainAsked(house.now, A))
    house.end("r-0", OutcomeKind.TRUNCATED, committed=True, resumable=True, output_tokens=50)
    house.tell(RequestCancelled(house.now, RequestId("r")))
    house.end("s-0", output_tokens=60)
    quiet(house)


def test_evicted_when_its_model_is_gone() -> None:
    house = ready("a", "b", capacity=1000)
    for name in ("x", "y"):
        running(house, name, prompt_tokens=600, max_output_tokens=300, tier=Tier.LOW)
    house.ask("urgent", prompt_tokens=700, max_output_tokens=50, tier=Tier.HIGH)
    (evict,) = only(house.wait(0.5).tell(TimerFired(house.now, "rebalance:")), Evict)
    house.tell(ReplicasChanged(house.now, removed=(A, B)))
    commands = house.end(evict.attempt_id, OutcomeKind.EVICTED, committed=True, resumable=True, output_tokens=50)
    assert [one.code for one in only(commands, Reject)] == ["no_replica"]
    assert RequestId(evict.attempt_id.removesuffix("-0")) not in house.brain._jobs


def test_a_dry_run_only_says_so() -> None:
    house = ready(dry_run=True)
    running(house)
    commands = move(house)
    assert results(commands) == ["planned"]
    assert only(commands, Migrate) == []
    house.end("r-0", output_tokens=60)
    quiet(house)


def told(commands: list[Command]) -> list[tuple[str, str]]:
    return [(moved.result, moved.reason) for moved in entries(commands, Moved)]


def refused(why: str) -> list[tuple[str, str]]:
    return [("refused", f"operator ({why})")]


@pytest.mark.parametrize(("pinned", "why"), [("seed", "seed"), ("", "it cannot be continued")])
def test_what_is_pinned_is_refused_and_why(pinned: str, why: str) -> None:
    house = ready()
    house.ask("r", pinned=pinned)
    house.first("r-0")
    assert told(move(house)) == refused(f"it is pinned: {why}")
    assert entries(house.ask("s", pinned="echo"), Decision)[0].pinned == "echo"


def test_what_cannot_move_now_is_refused_and_why() -> None:
    house = ready("a", "b", "c")
    house.ask("r", resumable=True)
    assert told(move(house)) == refused("it has not begun")
    assert move(house, "nobody") == []
    house.first("r-0")
    move(house)
    assert told(move(house)) == refused("it is being moved")
    house.end("r-1", OutcomeKind.CANCELLED)
    house.brain._jobs[RequestId("r")].tries.made = MOST_ATTEMPTS
    assert told(move(house)) == refused(f"it was sent to replicas {MOST_ATTEMPTS} times")
    house.brain._jobs[RequestId("r")].tries.made = 2
    house.brain._fleet.ledger.entries[AttemptId("r-0")].aborting = True
    assert told(move(house)) == refused("it is being ended")


@pytest.mark.parametrize(
    ("detail", "why"), [("the target was late", "cancelled, the target was late"), ("", "cancelled")]
)
def test_what_became_of_a_move_is_told(detail: str, why: str) -> None:
    house = ready()
    running(house)
    move(house)
    assert told(house.end("r-1", OutcomeKind.CANCELLED, detail=detail)) == [("abandoned", f"operator (target: {why})")]
    move(house)
    assert told(house.end("r-0", detail="all was said")) == [("abandoned", "operator (source: ok, all was said)")]


def test_only_to_where_it_would_go_on_as_it_is() -> None:
    house = ready("a")
    house.add("b", kv_capacity_tokens=10_000, precision="fp8")
    house.wait(60.0).report("a", running=0, waiting=0, kv_used_tokens=0)
    running(house)
    assert results(move(house, target="b")) == ["refused"]
    assert results(move(house)) == ["refused"]


@pytest.mark.parametrize("bound", [{"moves_max": 1}, {"cooldown_s": 60.0}])
def test_moves_are_few_and_cool_down_but_for_an_operators(bound: dict[str, object]) -> None:
    house = ready("a", "b", **bound)
    running(house)
    move(house)
    assert results(move(house)) == ["refused"], "one at a time"
    house.first("r-1")
    house.end("r-0", OutcomeKind.MIGRATED, committed=True, output_tokens=51)
    house.tell(DrainAsked(house.now, B))
    assert only(house.wait(0.5).tell(TimerFired(house.now, "rebalance:")), Migrate) == []
    assert results(move(house)) == ["begun"]
    house.first("r-2")
    house.end("r-1", OutcomeKind.MIGRATED, committed=True, output_tokens=52)
    house.end("r-2", output_tokens=90)
    quiet(house)


def test_a_drained_replica_is_emptied() -> None:
    house = ready("a", "b")
    for name in ("r", "s", "t", "u"):
        running(house, name)
    house.tell(DrainAsked(house.now, A))
    moved = []
    for _ in range(4):
        commands = house.wait(0.5).tell(TimerFired(house.now, "rebalance:"))
        for migrate in only(commands, Migrate):
            assert migrate.reason == "drain"
            moved.append(migrate.request_id)
            house.first(migrate.attempt_id)
            house.end(migrate.source, OutcomeKind.MIGRATED, committed=True, output_tokens=60)
    assert len(moved) == 2
    assert house.view("a").in_flight == 0


def test_every_signal_has_its_row() -> None:
    assert {phase for phase, _ in NEXT} == {Phase.READYING, Phase.EVICTING}
    assert {signal for _, signal in NEXT} == set(Signal)
    assert set(NEXT.values()) > LIVES_ON


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_storm_of_moves_keeps_accounts(seed: int) -> None:
    """Random moves, cuts, losses, failures, cancellations: each request ends once, and nothing is left over."""
    rng = random.Random(seed)
    house = ready("a", "b", "c", capacity=4000, moves_max=5, fleet_share=1.0)
    live: dict[str, str] = {}  # attempt -> request
    ended: dict[str, int] = {}
    sources: dict[str, str] = {}
    held: set[str] = set()

    def perform(commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Dispatch):
                held.discard(command.request_id)
                live[command.attempt_id] = command.request_id
            elif isinstance(command, Migrate):
                live[command.attempt_id] = command.request_id
                sources[command.source] = command.attempt_id
            elif isinstance(command, Hold):
                held.add(command.request_id)
            elif isinstance(command, Reject):
                held.discard(command.request_id)
                ended[command.request_id] = ended.get(command.request_id, 0) + 1
            elif isinstance(command, Evict):
                finish(command.attempt_id, OutcomeKind.EVICTED, resumable=True)

    def finish(attempt: str, kind: OutcomeKind = OutcomeKind.OK, resumable: bool = False) -> None:
        request = live.pop(attempt)
        target = sources.pop(attempt, None)
        over = not resumable and kind is not OutcomeKind.MIGRATED and attempt not in sources.values()
        if target is not None and over:
            perform(house.end(target, OutcomeKind.CANCELLED))
            live.pop(target, None)
        for source, own in list(sources.items()):
            if own == attempt:
                del sources[source]
                over = False
        if over:
            ended[request] = ended.get(request, 0) + 1
        perform(house.end(attempt, kind, committed=True, sent=True, resumable=resumable, output_tokens=60))

    for step in range(400):
        house.wait(rng.expovariate(20.0))
        roll = rng.random()
        if roll < 0.3:
            name = f"q{step}"
            tier = rng.choice((-1, 0, 1))
            perform(house.ask(name, resumable=rng.random() < 0.8, tier=tier, prompt_tokens=rng.randrange(10, 1500)))
        elif roll < 0.4:
            perform(house.tell(TimerFired(house.now, "rebalance:")))
        elif roll < 0.45:
            name = rng.choice("abc")
            perform(house.tell(DrainAsked(house.now, ReplicaId(name), rng.random() < 0.4)))
        elif live:
            attempt = rng.choice(sorted(live))
            if roll < 0.6:
                perform(house.first(attempt))
                perform(house.grow(**{attempt.replace("-", "_"): rng.randrange(1, 60)}))
            elif roll < 0.7:
                perform(move(house, live[attempt]))
            elif roll < 0.8 and attempt in sources:
                target = sources.pop(attempt)
                perform(house.first(target))
                del live[attempt]
                perform(house.end(attempt, OutcomeKind.MIGRATED, committed=True, output_tokens=60))
            elif roll < 0.85:
                target_of = attempt in sources.values()
                finish(attempt, OutcomeKind.TRUNCATED, resumable=not target_of)
            else:
                finish(attempt)
    for name in "abc":
        perform(house.tell(DrainAsked(house.now, ReplicaId(name), False)))
    for _ in range(1000):
        if not live and not held:
            break
        house.wait(0.5)
        perform(house.tell(TimerFired(house.now, "queue:m")))
        for attempt in sorted(live):
            if attempt in live:
                finish(attempt)
    assert set(ended.values()) <= {1}
    assert house.brain._jobs == {}
    quiet(house)
