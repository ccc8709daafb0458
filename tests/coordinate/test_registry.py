"""Every registration has an id of its own; full lists become changes."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headway.coordinate.registry import Change, Registry, replica_name
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec


def spec(url: str, **more: object) -> ReplicaSpec:
    return ReplicaSpec(ReplicaId("suggested"), url, **more)  # type: ignore[arg-type]


A, B = spec("http://a:1"), spec("http://b:2/prefix")


def ids(registry: Registry) -> list[str]:
    return [each.id for each in registry.specs()]


def test_ids_are_host_port_and_path() -> None:
    registry = Registry()
    change = registry.publish("static", [A, B])
    assert [each.id for each in change.upserted] == ids(registry) == ["a:1", "b:2/prefix"]
    assert replica_name("http://[::1]:8") == "[::1]:8"


def test_the_same_list_again_changes_nothing() -> None:
    registry = Registry()
    registry.publish("static", [A, B])
    assert not registry.publish("static", [A, B])


def test_new_facts_keep_the_id() -> None:
    registry = Registry()
    registry.publish("static", [A, B])
    change = registry.publish("static", [spec(A.url, model="m"), B])
    assert [(each.id, each.model) for each in change.upserted] == [("a:1", "m")]
    assert change.removed == ()


def test_a_url_that_left_and_came_back_is_another_registration() -> None:
    registry = Registry()
    registry.publish("static", [A])
    assert registry.publish("static", []) == Change(removed=(ReplicaId("a:1"),))
    assert [each.id for each in registry.publish("static", [A]).upserted] == ["a:1#2"]
    assert registry.find(ReplicaId("a:1")) is None


def test_adding_a_registered_url_anew_replaces_the_registration() -> None:
    registry = Registry()
    registry.publish("static", [A])
    change = registry.add("admin", A)
    assert ([each.id for each in change.upserted], change.removed) == (["a:1#2"], ("a:1",))
    assert ids(registry) == ["a:1#2"]


def test_sources_do_not_remove_each_others_replicas_and_the_first_one_keeps_a_url() -> None:
    registry = Registry()
    registry.publish("static", [A])
    assert not registry.publish("local", [A])
    registry.publish("local", [A, B])
    registry.publish("local", [])
    assert ids(registry) == ["a:1"]


def test_a_registration_can_be_removed_once() -> None:
    registry = Registry()
    registry.publish("static", [A])
    assert registry.remove(ReplicaId("a:1")) == Change(removed=(ReplicaId("a:1"),))
    assert not registry.remove(ReplicaId("a:1"))


def test_a_registration_learns_new_facts_in_place() -> None:
    registry = Registry()
    registry.publish("static", [A])
    (known,) = registry.specs()
    wiser = msgspec.structs.replace(known, model="m")
    assert registry.replace(wiser) == Change((wiser,))
    assert not registry.replace(wiser)
    assert not registry.replace(msgspec.structs.replace(wiser, id=ReplicaId("nobody")))
    assert registry.specs() == (wiser,)


def test_a_list_that_is_only_repeated_undoes_nothing() -> None:
    """A source repeats its list while one of its replicas is still looked for."""
    registry = Registry()
    registry.publish("static", [A])
    wiser = msgspec.structs.replace(registry.specs()[0], serves={"adapter": "adapter"})
    registry.replace(wiser)
    assert not registry.publish("static", [A])
    assert registry.specs() == (wiser,)
    assert [each.id for each in registry.publish("static", [A, B]).upserted] == ["b:2/prefix"]
    registry.remove(wiser.id)
    assert not registry.publish("static", [A, B]), "an operator removed it"
    assert [each.id for each in registry.publish("static", [spec(A.url, model="m"), B]).upserted] == ["a:1#2"]


def test_whoever_was_second_to_list_a_url_gets_it_when_the_first_one_gives_it_up() -> None:
    registry = Registry()
    registry.publish("static", [A])
    registry.publish("local", [A])
    registry.publish("static", [])
    assert [each.id for each in registry.publish("local", [A]).upserted] == ["a:1#2"]


def test_a_url_listed_twice_counts_once() -> None:
    registry = Registry()
    registry.publish("static", [A, spec(A.url, model="later")])
    assert [each.model for each in registry.specs()] == ["later"]


actions = st.lists(st.tuples(st.sampled_from(["x", "y"]), st.lists(st.sampled_from("abcd"), max_size=4)), max_size=20)


@given(actions)
def test_changes_applied_in_order_are_the_registry_and_ids_never_return(steps: list[tuple[str, list[str]]]) -> None:
    registry, mirror, removed = Registry(), {}, set()
    for source, names in steps:
        change = registry.publish(source, [spec(f"http://{name}:1", model=source) for name in names])
        for gone in change.removed:
            del mirror[gone]
            removed.add(gone)
        for each in change.upserted:
            assert each.id not in removed
            mirror[each.id] = each
        assert sorted(mirror.values(), key=msgspec.json.encode) == sorted(registry.specs(), key=msgspec.json.encode)
