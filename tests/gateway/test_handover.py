"""KV that engines hand over: the source is left first, and whatever fails then costs time only."""

import json
from collections.abc import Callable

import pytest

from headway.core.commands import Command, Migrate
from headway.core.events import AttemptFinished
from headway.core.ids import AttemptId, ReplicaId, RequestId
from headway.core.replica import ReplicaSpec
from headway.engines.llamacpp import PLUGIN
from headway.gateway import handover
from headway.gateway import mover as module
from headway.gateway.config import GatewayConfig, Moving
from headway.gateway.handover import Domains
from headway.gateway.target import Target
from headway.telemetry.exposition import Page
from headway.telemetry.moves import Moves
from tests.gateway.stage import CHAT, COMPLETIONS, R1, R2, Connection, Stage, dispatch
from tests.gateway.test_mover import state, whole
from tests.interpreted import interpreted

pytestmark = interpreted
Make = Callable[..., Stage]
SHARED = ("one", "one", "one")
DEAR_S = 5.0


def slots_are_free(s: Stage) -> None:
    """All of both replicas can be had again."""
    for target in s.pool.targets.values():
        claims = [s.plane.slots.claim(target, s.exchange.parsed) for _ in range(2)]
        assert None not in claims, target
        for claim in claims:
            assert claim is not None
            claim.leave()


def handed_over(s: Stage, saving: Connection) -> Connection:
    """The engines do what they are told: the connection on which the target is asked what ids spell."""
    assert (saving.target.spec.id, saving.path) == ("r0", "/slots/0?action=save")
    saving.answers({"n_saved": 1000})
    restoring = s.pool.connections[-1]
    assert (restoring.target.spec.id, restoring.path) == ("r1", "/slots/0?action=restore")
    assert restoring.body == saving.body
    restoring.answers({"n_restored": 1000})
    return s.pool.connections[-1]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("place", [3, 8, 21])
def test_a_handover(stage: Make, path: str, place: int) -> None:
    s = stage(SHARED)
    source = s.running(place, path)
    assert b'"id_slot":0' in source.body
    saving = s.migrate(replay_s=DEAR_S)
    assert source.dropped
    assert state(s) == "ALONE"
    target = s.spelled(handed_over(s, saving))
    assert b'"id_slot":0' in target.body
    target.begins()
    target.plays()
    whole(s)
    assert s.kinds == [("0", "migrated"), ("1", "ok")]
    slots_are_free(s)


def test_there_and_back_again(stage: Make) -> None:
    """Whoever goes on has a slot, too, and can be handed over from there."""
    s = stage(SHARED)
    s.running(6)
    target = s.spelled(handed_over(s, s.migrate(replay_s=DEAR_S)))
    target.begins()
    target.plays(9)
    saving = s.migrate(number=2, to=R2, source=1, replay_s=DEAR_S)
    assert (saving.target.spec.id, saving.path) == ("r1", "/slots/0?action=save")
    saving.answers({})
    s.pool.connections[-1].answers({})
    target = s.spelled(s.pool.connections[-1])
    target.begins()
    target.plays()
    whole(s)
    assert s.kinds == [("0", "migrated"), ("1", "migrated"), ("2", "ok")]
    slots_are_free(s)


def asked_to(half: str, s: Stage) -> Connection:
    """The connection on which an engine is asked to save, or another to restore."""
    saving = s.migrate(replay_s=DEAR_S)
    if half == "restore":
        saving.answers({})
    return s.pool.connections[-1]


FAILURES: dict[str, Callable[[Connection], None]] = {
    "dies": lambda c: c.dies(),
    "refuses": lambda c: c.refuses(501),
    "finds fault": lambda c: c.refuses(400),
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("half", ["save", "restore"])
def test_what_is_not_handed_over_is_computed_again(stage: Make, half: str, how: str) -> None:
    s = stage(SHARED)
    s.running(8)
    asking = asked_to(half, s)
    FAILURES[how](asking)
    target = s.spelled(s.pool.connections[-1])
    target.begins()
    target.plays()
    whole(s)
    assert s.kinds == [("0", "migrated"), ("1", "ok")]
    slots_are_free(s)


@pytest.mark.parametrize("half", ["save", "restore"])
def test_nor_is_what_takes_too_long(stage: Make, half: str) -> None:
    s = stage(SHARED)
    s.running(8)
    asking = asked_to(half, s)
    s.exchange.expired(s.client.deadline)
    assert asking.dropped
    target = s.spelled(s.pool.connections[-1])
    target.begins()
    target.plays()
    whole(s)
    slots_are_free(s)


@pytest.mark.parametrize("half", ["save", "restore"])
def test_a_client_that_leaves(stage: Make, half: str) -> None:
    s = stage(SHARED)
    s.running(8)
    asking = asked_to(half, s)
    s.exchange.client_gone()
    assert asking.dropped
    s.closed()
    assert [kind for _, kind in s.kinds] == ["migrated", "client_closed"]
    slots_are_free(s)


def test_a_target_that_dies_has_it(stage: Make) -> None:
    """Nobody has it then, and the brain says who goes on."""
    s = stage(SHARED)
    s.running(8)
    target = s.spelled(handed_over(s, s.migrate(replay_s=DEAR_S)))

    def elsewhere(_event: AttemptFinished) -> list[Command]:
        return [dispatch(s.request, 2, R2, resumes=True)]

    s.brain.then.append(elsewhere)
    target.dies()
    target = s.spelled(s.pool.connections[-1])
    assert target.target.spec.id == R2
    target.begins()
    target.plays()
    whole(s)
    slots_are_free(s)


@pytest.mark.parametrize("stores", [("one", "other", "one"), ("one", "", "one"), ("", "one", "one")])
def test_replicas_that_share_no_folder(stage: Make, stores: tuple[str, ...]) -> None:
    s = stage(stores)
    s.running(8)
    assert s.migrate(replay_s=DEAR_S).path == COMPLETIONS
    assert state(s) == "WARMING"
    s.exchange.client_gone()


def test_what_is_computed_sooner_is_not_handed_over(stage: Make) -> None:
    s = stage(SHARED)
    s.running(8)
    s.migrate(replay_s=0.1)
    assert state(s) == "WARMING"
    s.exchange.client_gone()
    slots_are_free(s)


def test_a_target_without_a_free_slot(stage: Make) -> None:
    s = stage(SHARED)
    s.running(8)
    claims = [s.plane.slots.claim(s.pool.targets[R1], s.exchange.parsed) for _ in range(2)]
    assert None not in claims
    s.migrate(replay_s=DEAR_S)
    assert state(s) == "WARMING"
    s.exchange.client_gone()


def test_a_source_without_a_slot(stage: Make) -> None:
    """Its client had chosen one for himself."""
    s = stage(SHARED)
    source = s.running(8, id_slot=1)
    assert b'"id_slot":0' not in source.body
    s.migrate(replay_s=DEAR_S)
    assert state(s) == "WARMING"
    s.exchange.client_gone()
    slots_are_free(s)


# vLLM: the target fetches, the source goes on.

TICKET = {"remote_block_ids": [[1, 2]], "remote_host": "r0"}


def fetching(s: Stage) -> Connection:
    """The connection on which the source is asked for what it has computed."""
    exporting = s.migrate(replay_s=DEAR_S)
    assert (exporting.target.spec.id, exporting.path) == ("r0", COMPLETIONS)
    sent = json.loads(exporting.body)
    assert (sent["max_tokens"], sent["stream"], sent["stream_options"]) == (1, False, None)
    assert sent["kv_transfer_params"]["do_remote_decode"] is True
    return exporting


def fetched(s: Stage, exporting: Connection) -> Connection:
    """The source answers: the connection on which the target is warmed by it."""
    exporting.answers({"choices": [], "kv_transfer_params": TICKET})
    warming = s.pool.connections[-1]
    sent, asked = json.loads(warming.body), json.loads(exporting.body)
    assert (warming.target.spec.id, sent["kv_transfer_params"], sent["max_tokens"]) == ("r1", TICKET, 1)
    assert sent["prompt"] == asked["prompt"], "the source says where these are, and no others"
    return warming


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_fetch(stage: Make, path: str) -> None:
    s = stage(SHARED, pulls=True)
    source = s.running(8, path, stream_options={"include_usage": True})
    exporting = fetching(s)
    source.plays(2)
    warming = fetched(s, exporting)
    source.plays(2)
    assert (state(s), source.dropped) == ("WARMING", False)
    target = s.spelled(s.warmed(warming))
    assert "kv_transfer_params" not in json.loads(target.body), "its own cache has them now"
    target.begins()
    target.plays()
    whole(s)
    assert s.kinds == [("0", "migrated"), ("1", "ok")]


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("half", ["export", "fetch", "no ticket"])
def test_what_cannot_be_fetched_is_computed_again(stage: Make, half: str, how: str) -> None:
    s = stage(SHARED, pulls=True)
    s.running(8)
    asking = fetching(s)
    if half == "no ticket":
        asking.answers({"choices": [], "kv_transfer_params": None})
    else:
        FAILURES[how](fetched(s, asking) if half == "fetch" else asking)
    warming = s.pool.connections[-1]
    assert warming.target.spec.id == "r1"
    assert "kv_transfer_params" not in json.loads(warming.body)
    target = s.spelled(s.warmed(warming))
    target.begins()
    target.plays()
    whole(s)
    assert s.kinds == [("0", "migrated"), ("1", "ok")]


@pytest.mark.parametrize("half", ["export", "fetch"])
def test_a_source_that_dies_meanwhile(stage: Make, half: str) -> None:
    """The target is all there is then."""
    s = stage(SHARED, pulls=True)
    source = s.running(8)
    asking = fetching(s)
    if half == "fetch":
        asking = fetched(s, asking)
    source.dies()
    assert asking.dropped
    target = s.spelled(s.pool.connections[-1])
    target.begins()
    target.plays()
    whole(s)


@pytest.mark.parametrize("half", ["export", "fetch"])
def test_a_client_that_leaves_while_it_is_fetched(stage: Make, half: str) -> None:
    s = stage(SHARED, pulls=True)
    s.running(8)
    asking = fetching(s)
    if half == "fetch":
        asking = fetched(s, asking)
    s.exchange.client_gone()
    assert asking.dropped
    s.closed()


def told(s: Stage) -> bool:
    """Whether one handover is told as failed, and held against its domain."""
    failed = list(s.plane.domains._failures.values()) == [1]
    page = Page()
    s.plane.domains.counters.fill(page)
    assert (b'kv_handovers_total{result="failed"} 1' in page.text()) is failed
    return failed


@pytest.mark.parametrize("pulls", [False, True])
def test_what_takes_too_long_has_failed(stage: Make, pulls: bool) -> None:
    s = stage(SHARED, pulls)
    s.running(8)
    if pulls:
        fetching(s)
        s.timers.fire(s.plane.config.moving.warm_s)  # type: ignore[union-attr]
        assert state(s) == "PLAIN"
    else:
        asked_to("save", s)
        s.exchange.expired(s.client.deadline)
    assert told(s)
    s.exchange.client_gone()


@pytest.mark.parametrize("pulls", [False, True])
def test_what_nobody_wants_any_more_has_not_failed(stage: Make, pulls: bool) -> None:
    s = stage(SHARED, pulls)
    s.running(8)
    fetching(s) if pulls else asked_to("save", s)
    s.exchange.client_gone()
    assert not told(s)


def test_a_domain_whose_handovers_fail_is_left_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a stream of llama.cpp's some time."""
    clock = [0.0]
    monkeypatch.setattr(handover, "now", lambda: clock[0])
    domains = Domains(Moves())

    def there(domain: str) -> Target:
        spec = ReplicaSpec(R1, "http://r:1", "llamacpp", "m", max_num_seqs=2, kv_domain=domain)
        return Target(spec, GatewayConfig(moving=Moving()), PLUGIN.factory(PLUGIN.config()))

    one, two = there("one"), there("two")
    order = Migrate(RequestId("q"), AttemptId("a"), AttemptId("b"), R1, "m", "why", 1000, DEAR_S)

    def pays(target: Target) -> bool:
        return domains.pays(target, target, order, 1.0)

    domains.failed(one)
    assert pays(one), "once is no rule"
    alone = handover.ALONE_S
    for _ in range(2000):
        domains.failed(one)
        assert not pays(one)
        assert pays(two)
        clock[0] += alone - 0.1
        assert not pays(one)
        clock[0] += 0.1
        assert pays(one), "it is tried again"
        alone = min(2.0 * alone, handover.ALONE_MOST_S)
    domains.measured(one, 1000, 0.01)
    domains.failed(one)
    assert pays(one), "it worked in between"


def test_nobody_hands_over_where_that_is_off(stage: Make) -> None:
    for pulls in (False, True):
        s = stage(SHARED, pulls, handover_s=0.0)
        s.running(8)
        warming = s.migrate(replay_s=DEAR_S)
        assert (state(s), warming.target.spec.id) == (module.STATES[module.WARMING], "r1")
        s.exchange.client_gone()


def test_what_it_costs_is_learned() -> None:
    """A slow folder is found out, and a folder that became fast again."""
    domains = Domains(Moves())
    spec = ReplicaSpec(R1, "http://r:1", "llamacpp", "m", max_num_seqs=2, kv_domain="one")
    there = Target(spec, GatewayConfig(moving=Moving()), PLUGIN.factory(PLUGIN.config()))

    def pays(tokens: int, replay_s: float, most_s: float = 1.0) -> bool:
        order = Migrate(RequestId("q"), AttemptId("a"), AttemptId("b"), ReplicaId("r1"), "m", "why", tokens, replay_s)
        return domains.pays(there, there, order, most_s)

    assert pays(1000, 0.2)
    assert not pays(1000, 0.1)
    assert not pays(20_000, 60.0), "its client would wait too long"
    domains.measured(there, 1000, 1.008)
    assert not pays(1000, 0.9)
    for _ in range(9):
        domains.measured(there, 1000, 0.009)
    assert pays(1000, 0.02)
    assert pays(20_000, 60.0)
    domains.measured(there, 0, 0.001)  # nothing was there: not faster than free
    assert pays(1000, 0.02)
