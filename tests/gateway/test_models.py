"""One model list from many."""

import msgspec
import pytest

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.gateway import models as module
from headway.gateway.models import ModelList

A, B = ReplicaId("a"), ReplicaId("b")


def specs(**serves: dict[str, str]) -> dict[ReplicaId, ReplicaSpec]:
    return {ReplicaId(n): ReplicaSpec(ReplicaId(n), "http://x", serves=s, engine="vllm") for n, s in serves.items()}


def listed(models: ModelList) -> list[dict[str, object]]:
    page: dict[str, list[dict[str, object]]] = msgspec.json.decode(models.page())
    return page["data"]


def test_cards_keep_unknown_fields_and_the_smallest_limit() -> None:
    models = ModelList()
    models.set_replicas(specs(a={"m": "m"}, b={"m": "m"}))
    models.set_cards(
        {
            A: [{"id": "m", "max_model_len": 9, "odd": [1], "owned_by": "x"}],
            B: [{"id": "m", "max_model_len": 4, "more": 2}],
        }
    )
    assert listed(models) == [{"id": "m", "max_model_len": 4, "odd": [1], "owned_by": "x", "more": 2}]


def test_aliases_are_listed_and_name_their_root() -> None:
    models = ModelList()
    models.set_replicas(specs(a={"m": "m", "small": "m"}))
    models.set_cards({A: [{"id": "m", "object": "model"}]})
    assert listed(models) == [{"id": "m", "object": "model"}, {"id": "small", "object": "model", "root": "m"}]
    assert msgspec.json.decode(models.card("small") or b"") == {"id": "small", "object": "model", "root": "m"}
    assert models.card("other") is None


def test_what_there_is_instead_of_a_model_that_is_not() -> None:
    models = ModelList()
    assert models.instead() == ""
    models.set_replicas(specs(a={"m": "m", "small": "m"}))
    assert models.instead() == "; known here: `m`, `small`"
    assert models.instead(("small", "absent")) == "; known here: `small`"
    assert models.instead(("absent",)) == ""
    models.set_replicas(specs(a={f"{n:0150}": "m" for n in range(9)}))
    assert models.instead().endswith(", and 7 more that /v1/models lists")


def test_a_replica_without_cards_is_no_error() -> None:
    models = ModelList()
    models.set_replicas(specs(a={"m": "m"}, b={"n": "n"}))
    models.set_cards({A: [{"id": "m"}]})
    assert [card["id"] for card in listed(models)] == ["m", "n"]


def test_removed_replicas_take_their_models_with_them() -> None:
    models = ModelList()
    models.set_replicas(specs(a={"m": "m"}))
    models.set_cards({A: [{"id": "m"}]})
    models.set_replicas({})
    assert listed(models) == []


def test_cards_of_a_replica_that_is_not_configured_are_not_shown() -> None:
    models = ModelList()
    models.set_cards({A: [{"id": "m"}]})
    assert listed(models) == []


def test_replicas_that_come_up_together_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    models, built = ModelList(), []
    encode = module._encode
    monkeypatch.setattr(module, "_encode", lambda cards: built.append(1) or encode(cards))
    fleet = specs(**{f"r{n}": {"m": "m"} for n in range(100)})
    for replica in fleet:
        models.set_replicas(fleet)
        models.set_cards({replica: [{"id": "m"}]})
    assert [models.page() for _ in range(3)] == [encode([{"id": "m"}])] * 3
    assert len(built) == 1
