"""Who has which slot of an engine: as the engine would choose, one each, and free again whatever happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.engines.llamacpp import PLUGIN
from headway.gateway.config import GatewayConfig, Moving
from headway.gateway.slots import SlotKeeper, Slots, slot_edit
from headway.gateway.target import Target
from headway.wire.body import Body
from headway.wire.splice import splice

ONE = Body("m", prefix_hashes=(1, 2, 3))
MOVING = Moving()


def target(count: int = 2, store: str = "here", moving: Moving | None = MOVING) -> Target:
    spec = ReplicaSpec(ReplicaId("r"), "http://r:1", "llamacpp", "m", max_num_seqs=count, kv_domain=store)
    return Target(spec, GatewayConfig(moving=moving), PLUGIN.factory(PLUGIN.config()))


def test_where_most_of_the_prompt_is_cached() -> None:
    slots = Slots(3)
    taken = [slots.take(prefix) for prefix in ((1, 2, 3), (1, 2, 9, 9), (7,))]
    for slot in (2, 0, 1):
        slots.free(slot)
    assert taken == [0, 1, 2]
    assert slots.take((1, 2, 9, 9, 5)) == 1
    assert slots.take((7, 7)) == 2
    assert slots.take((1, 2, 3, 4)) == 0
    assert slots.take(()) is None, "all are taken"


def test_else_where_nobody_was_for_the_longest_time() -> None:
    slots = Slots(3)
    for _ in range(3):
        slots.take(())
    for slot in (1, 2, 0):
        slots.free(slot)
    assert [slots.take((5,)) for _ in range(3)] == [1, 2, 0]


@given(st.lists(st.one_of(st.none(), st.lists(st.integers(0, 2), max_size=4).map(tuple)), max_size=40))
def test_no_slot_is_two_peoples(steps: list[tuple[int, ...] | None]) -> None:
    """None: whoever came first leaves."""
    keeper, there = SlotKeeper(), target(3)
    claims = []
    for prefix in steps:
        if prefix is None:
            if claims:
                gone = claims.pop(0)
                gone.leave()
                gone.leave()  # again changes nothing
            continue
        claim = keeper.claim(there, Body("m", prefix_hashes=prefix))
        assert (claim is None) == (len(claims) == 3)
        claims += [claim] if claim is not None else []
        assert len({claim.slot for claim in claims}) == len(claims)


@pytest.mark.parametrize(
    ("there", "parsed"),
    [
        (target(store=""), ONE),
        (target(moving=None), ONE),
        (target(count=0), ONE),
        (target(), Body("m", sequences=2)),
        (target(), Body("m", generates=False)),
        (target(), Body("m", form=True)),
    ],
)
def test_who_gets_none(there: Target, parsed: Body) -> None:
    assert SlotKeeper().claim(there, parsed) is None


def test_an_engine_with_other_slots_than_before() -> None:
    """It was started anew: whoever was there is gone, and what he leaves is not a slot of the new one."""
    keeper = SlotKeeper()
    old = keeper.claim(target(1), ONE)
    new = keeper.claim(target(2), ONE)
    assert old is not None
    assert new is not None
    old.leave()
    last = keeper.claim(target(2), ONE)
    assert last is not None
    assert {new.slot, last.slot} == {0, 1}
    assert keeper.claim(target(2), ONE) is None
    assert "left" in repr(old)


def test_the_body_says_which() -> None:
    body = b' {"model":"m"}'
    edit = slot_edit(body, "id_slot", 3)
    assert edit is not None
    assert splice(body, [edit]) == b' {"id_slot":3,"model":"m"}'


def test_whoever_has_chosen_for_himself_is_left_alone() -> None:
    assert slot_edit(b'{"model":"m","id_slot":1}', "id_slot", 3) is None


def test_a_body_of_countless_fields_is_left_alone() -> None:
    body = b'{"model":"m",' + b",".join(b'"k%d":1' % n for n in range(100_000)) + b"}"
    assert slot_edit(body, "id_slot", 3) is None
