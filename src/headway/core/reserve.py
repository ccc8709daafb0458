"""The share of a model's replicas that is kept for what is critical.

Whole replicas first (the last of them, by id), and the rest of the share as a part of one more replica's KV pool. A
part of every pool alone would not do: what bounds a first token is who else is being prefilled, not who holds memory.
It is no reason for an outage: while nobody else may be used, nothing is reserved.
"""

from collections.abc import Sequence

from headway.core.ids import ReplicaId
from headway.core.view import ReplicaView


class Reserve:
    """What is reserved of the replicas with these ids."""

    __slots__ = ("_shares", "ids")

    def __init__(self, ids: tuple[ReplicaId, ...], share: float) -> None:
        self.ids = ids
        self._shares: dict[ReplicaId, float] = {}
        left = share * len(ids)
        for replica_id in reversed(ids):
            if left > 1e-9:
                self._shares[replica_id] = min(1.0, left)
            left -= 1.0

    def binds(self, candidates: Sequence[ReplicaView]) -> bool:
        """Whether somebody is left for the others, so that the reserve can stand."""
        return not all(self.whole(view.id) for view in candidates)

    def whole(self, replica_id: ReplicaId) -> bool:
        """Whether nobody else ever goes there."""
        return self._shares.get(replica_id, 0.0) >= 1.0

    def leaves(self, view: ReplicaView, peak: float) -> bool:
        """Whether a request that will hold so many tokens may go there."""
        share = self._shares.get(view.id, 0.0)
        if not share:
            return True
        room = view.kv_capacity_tokens * (1.0 - share)
        return share < 1.0 and (view.in_flight == 0 or view.peak_mean + peak <= room or not view.kv_capacity_tokens)
