"""What is kept for critical requests."""

from headway.core.ids import ReplicaId
from headway.core.reserve import Reserve
from headway.core.view import ReplicaView
from tests.core.house import House
from tests.views import changed

IDS = tuple(ReplicaId(name) for name in "abcd")


def views(**changes: object) -> list[ReplicaView]:
    house = House()
    house.add(*IDS)
    return [changed(house.view(name), **changes) for name in IDS]


def test_whole_replicas_first_and_a_part_of_one_more() -> None:
    reserve = Reserve(IDS, 0.375)
    found = views(kv_capacity_tokens=1000, peak_mean=400.0, in_flight=1)
    assert [reserve.leaves(view, 100.0) for view in found] == [True, True, True, False]
    assert [reserve.leaves(view, 101.0) for view in found] == [True, True, False, False], "half of c is reserved"
    assert reserve.binds(found)
    assert [reserve.whole(view.spec.id) for view in found] == [False, False, False, True]


def test_a_part_of_one_is_no_reason_to_refuse_an_idle_or_unknown_one() -> None:
    reserve = Reserve(IDS[:1], 0.5)
    assert reserve.leaves(views(kv_capacity_tokens=1000, in_flight=0)[0], 900.0)
    assert reserve.leaves(views(kv_capacity_tokens=0, in_flight=5)[0], 900.0)


def test_nothing_is_reserved_while_nobody_else_is_left() -> None:
    reserve = Reserve(IDS, 0.25)
    found = views()
    assert reserve.binds(found[:1])
    assert not reserve.binds(found[3:])
    assert not reserve.binds([])
