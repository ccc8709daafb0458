"""GET /v1/models: one list for the whole fleet, from the engines' own model cards.

Cards are kept as the engines sent them, unknown fields included. Where replicas disagree the smallest
`max_model_len` is shown, because a request may land on any of them; all else is taken from the replica whose id
sorts first. Aliases get a card of their own that names the model behind them.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.engines.cards import LIMITS

Card = dict[str, Any]
SAID_CHARS = 400
"""So much of the names of models is told to whoever asks for another."""


class ModelList:
    """The merged list, built when it is asked for after replicas or their cards changed: of a thousand that come up
    together each would make it anew.
    """

    def __init__(self) -> None:
        self._cards: dict[ReplicaId, list[Card]] = {}
        self._specs: dict[ReplicaId, ReplicaSpec] = {}
        self._merged: dict[str, Card] = {}
        self._page = _encode(())
        self._outdated = False

    def set_cards(self, cards: Mapping[ReplicaId, list[Card]]) -> None:
        """What each engine answers to /v1/models. A replica that is left out keeps what it last said."""
        self._cards.update(cards)
        self._outdated = True

    def set_replicas(self, specs: Mapping[ReplicaId, ReplicaSpec]) -> None:
        """The replicas there are now."""
        self._specs = dict(specs)
        self._cards = {replica: cards for replica, cards in self._cards.items() if replica in self._specs}
        self._outdated = True

    def page(self, only: Collection[str] = ()) -> bytes:
        """The body of /v1/models: every model, or `only` those of them."""
        merged = self._merge()
        return _encode(card for name, card in merged.items() if name in only) if only else self._page

    def card(self, name: str, only: Collection[str] = ()) -> bytes | None:
        """The body of /v1/models/{name}; None if there is none, or it is not among `only`."""
        card = self._merge().get(name)
        return None if card is None or (only and name not in only) else msgspec.json.encode(card)

    def instead(self, only: Collection[str] = ()) -> str:
        """What a client may ask for in place of a model that is not there, as the end of a sentence."""
        names = [name for name in self._merge() if not only or name in only]
        said, room = [], SAID_CHARS
        for name in names:
            room -= len(name) + 4
            if room < 0:
                break
            said.append(f"`{name}`")
        if not said:
            return ""
        more = f", and {len(names) - len(said)} more that /v1/models lists" if len(said) < len(names) else ""
        return f"; known here: {', '.join(said)}{more}"

    def _merge(self) -> dict[str, Card]:
        if not self._outdated:
            return self._merged
        merged: dict[str, Card] = {}
        for replica in sorted(self._specs):
            spec = self._specs[replica]
            known = {card["id"]: card for card in self._cards.get(replica, ()) if isinstance(card.get("id"), str)}
            for alias, name in sorted(spec.serves.items()):
                _add(merged, alias, known.get(name) or _bare(name, spec))
            if not spec.serves:
                for name, card in known.items():
                    _add(merged, name, card)
        self._merged = dict(sorted(merged.items()))
        self._page = _encode(self._merged.values())
        self._outdated = False
        return self._merged


def _add(merged: dict[str, Card], name: str, card: Card) -> None:
    if name != card["id"]:
        card = {**card, "id": name, "root": card.get("root") or card["id"]}
    seen = merged.get(name)
    if seen is None:
        merged[name] = dict(card)
        return
    for field, value in card.items():
        if field not in seen:
            seen[field] = value
        elif field in LIMITS and isinstance(value, int) and isinstance(seen[field], int):
            seen[field] = min(seen[field], value)


def _bare(name: str, spec: ReplicaSpec) -> Card:
    card: Card = {"id": name, "object": "model", "created": 0, "owned_by": spec.engine}
    if spec.max_model_tokens:
        card["max_model_len"] = spec.max_model_tokens
    return card


def _encode(cards: Iterable[Card]) -> bytes:
    return msgspec.json.encode({"object": "list", "data": list(cards)})
