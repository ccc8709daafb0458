"""The variants behind one public name: which precision it stands for, and whom a request may be given to.

A name stands for the precision of its most wanted variant, as far as that is known: `ReplicaSpec.variants` says which
place a replica's variant has among those its operator listed; where nobody listed any, the highest precision there is.
If the most wanted of several does not say, it is taken to be unquantised: such engines mostly do not. What the operator
listed first stays what the name stands for while its replicas are away. A replica whose precision is not known counts
as what its name stands for. A request takes what its name stands for or anything better; less only if
it said so, and is then told what it got.
"""

from collections.abc import Sequence
from typing import Final

from headway.core.commands import Reject
from headway.core.ids import ReplicaId
from headway.core.precision import FLOORS, FULL, known
from headway.core.precision import floor as named
from headway.core.replica import ReplicaSpec
from headway.core.request import RequestInfo

HEADER: Final = "x-headway-precision"
"""Response header that names the precision of an answer that has less of it than its name stands for."""

_RANKS: Final = {name: rank for rank, name in FLOORS.items()}


def with_floor(request: RequestInfo) -> RequestInfo:
    """A request whose floor has the name it has in FLOORS: there are few, whatever clients write. One that is no
    precision stays, to be refused."""
    floor = named(request.precision_floor)
    return request.changed(precision_floor=floor) if floor and floor != request.precision_floor else request


class Variants:
    """Precisions by rank. `nominal`: what the name stands for; `lowest`, `highest`: of its replicas; all 0 if unknown.
    `uniform`: whoever states no floor may be given to all of them."""

    __slots__ = ("_listed", "_place", "_ranks", "highest", "lowest", "nominal", "uniform")

    def __init__(self) -> None:
        self.nominal = self.lowest = self.highest = 0
        self.uniform = True
        self._place = 0
        self._listed = False
        self._ranks: dict[ReplicaId, int] = {}

    def reset(self, name: str, specs: Sequence[ReplicaSpec]) -> None:
        """These replicas serve the name now."""
        stated = {spec.id: known(spec.precision)[1] for spec in specs}
        self._listed = self._listed or any(name in spec.variants for spec in specs)
        place = min((spec.variants.get(name, 0) for spec in specs), default=0)
        first = max((stated[spec.id] for spec in specs if spec.variants.get(name, 0) == place), default=0)
        if not first and any(stated.values()):
            first = FULL
        if first and not (self._listed and self.nominal and place > self._place):
            self._place, self.nominal = place, first
        self._ranks = {replica_id: rank or self.nominal for replica_id, rank in stated.items()}
        self.lowest, self.highest = min(self._ranks.values(), default=0), max(self._ranks.values(), default=0)
        self.uniform = self.lowest >= self.nominal

    @property
    def lasting(self) -> bool:
        """Whether what the name stands for is to be remembered when nobody serves it any more."""
        return self._listed

    @property
    def floors(self) -> Sequence[int]:
        """Ranks that some of the replicas reach and others do not, in order."""
        return sorted({rank for rank in self._ranks.values() if rank > self.lowest})

    def needs(self, floor: str) -> int:
        """The rank that a request with this floor (a name of FLOORS, or empty) needs."""
        return _RANKS.get(floor) or self.nominal

    def reach(self, replica_id: ReplicaId, rank: int) -> bool:
        """Whether a replica is as precise."""
        return self._ranks[replica_id] >= rank

    def refuses(self, request: RequestInfo) -> Reject | None:
        """A refusal if no replica that there is, in use or not, is precise enough."""
        floor = request.precision_floor
        if floor and floor not in _RANKS:
            text = f"`{floor[:64]}` is no precision; there are {', '.join(_RANKS)}"
            return Reject(request.id, 400, "precision_unavailable", text)
        needed = self.needs(floor)
        if needed <= self.highest:
            return None
        best = FLOORS.get(self.highest, "")
        text = f"the model `{request.model[:256]}` is not served in {FLOORS[needed]} or better" + (
            f" at the moment; to take {best}, say so as the least precision" if best else ""
        )
        return Reject(request.id, 400, "precision_unavailable", text)

    def disclosed(self, spec: ReplicaSpec) -> tuple[tuple[str, str], ...]:
        """What the client is to be told about an answer of this replica."""
        if self._ranks.get(spec.id, self.nominal) >= self.nominal:
            return ()
        return ((HEADER, known(spec.precision)[0]),)

    def stood_in(self, spec: ReplicaSpec) -> tuple[tuple[str, str], ...]:
        """The same, of a replica of another model that answers for this one. What does not say is no news."""
        name, rank = known(spec.precision)
        return ((HEADER, name),) if 0 < rank < (self.nominal or FULL) else ()
