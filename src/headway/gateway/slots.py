"""Which slot of its engine each attempt has, where engines keep KV in numbered slots and hand it over from there.

The OpenAI API does not tell which slot a request got, so it is given one (`KvMove.slot_field`), chosen as llama.cpp
itself would choose: where most of its prompt is cached, else where nobody was for the longest time. Whoever finds all
slots taken is given none, and queues with the engine; neither is whoever has chosen for himself, or takes several.
"""

from collections.abc import Sequence
from typing import Final

from headway.core.ids import ReplicaId
from headway.gateway.target import Target
from headway.wire.body import Body
from headway.wire.resume_body import has
from headway.wire.spans import TooManyKeys
from headway.wire.splice import Edit, Octets

NOTHING: Final[tuple[int, ...]] = ()


class Claim:
    """A slot that somebody has. `leave` may be called more than once."""

    __slots__ = ("_slots", "slot", "target")

    def __init__(self, slots: "Slots", target: Target, slot: int) -> None:
        self._slots: Slots | None = slots
        self.target = target
        self.slot = slot

    def __repr__(self) -> str:
        return f"<Claim {self.target.spec.id} {self.slot}{'' if self._slots else ' left'}>"

    def leave(self) -> None:
        """It is free for others. What is in it stays there until somebody comes."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.free(self.slot)


class Slots:
    """Those of one replica."""

    __slots__ = ("_cached", "_free", "count")

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count))  # whoever left longest ago first
        self._cached = [NOTHING] * count  # the prefix that was computed there last

    def take(self, prefix: tuple[int, ...]) -> int | None:
        """A free slot for a prompt with these hashes of its blocks, None if there is none."""
        if not self._free:
            return None
        slot = max(self._free, key=lambda free: _common(self._cached[free], prefix))  # of equals the first
        self._free.remove(slot)
        self._cached[slot] = prefix
        return slot

    def free(self, slot: int) -> None:
        """Nobody needs it any more."""
        self._free.append(slot)


class SlotKeeper:
    """All replicas'."""

    def __init__(self) -> None:
        self._slots: dict[ReplicaId, Slots] = {}

    def claim(self, target: Target, parsed: Body) -> Claim | None:
        """A slot for a request of one sequence."""
        if target.kv is None or parsed.sequences != 1 or not parsed.generates or parsed.form:
            return None
        slots = self._slots.get(target.spec.id)
        if slots is None or slots.count != target.spec.max_num_seqs:
            slots = self._slots[target.spec.id] = Slots(target.spec.max_num_seqs)
        slot = slots.take(parsed.prefix_hashes)
        return None if slot is None else Claim(slots, target, slot)


def slot_edit(body: Octets, field: str, slot: int) -> Edit | None:
    """The edit that asks for a slot; None where the client has asked for one, or for too much to be sure of that."""
    try:
        if has(body, field):
            return None
    except TooManyKeys:
        return None
    at = body.find(b"{") + 1
    return at, at, b'"%b":%d,' % (field.encode(), slot)


def _common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Blocks that two prompts begin with. Hashes are chained, so equal ones have the same before them."""
    low, high = 0, min(len(ours), len(theirs))
    while low < high:
        middle = (low + high + 1) // 2
        if ours[middle - 1] == theirs[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low
