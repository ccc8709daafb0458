"""A consistent-hash ring of replicas: which of them a session belongs to, and who is next.

Only hashing and order live here; whether an owner may be used, or has too much to do, is `affinity`'s business. A ring
knows no session: what it holds grows with replicas alone, however many session keys clients make up. The hash is
blake2b, because the same key must belong to the same replica in every process and after every restart, which Python's
own `hash` does not promise.

Source: Karger et al., Consistent hashing and random trees (1997).
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Final

from headway.core.ids import ReplicaId

_POINT_BYTES: Final = 8
CIRCLE: Final = 2 ** (8 * _POINT_BYTES)
"""Places on a ring."""

_DIGEST_BYTES: Final = 64
"""The most that blake2b yields at once: eight points."""

_LARGEST_WEIGHT: Final = 16.0
"""Weights beyond count as this: points cost memory, and whoever gives all replicas a weight of 1,000 means 1."""


def place(tenant: str, session: str) -> int:
    """Where on the ring a session lies: a number of 64 bits. Sessions of one name of two tenants have nothing in
    common, and no choice of names makes them meet (the tenant's length goes first)."""
    owner = tenant.encode("utf-8", "surrogatepass")
    said = b"%d:%b%b" % (len(owner), owner, session.encode("utf-8", "surrogatepass"))
    return int.from_bytes(blake2b(said, digest_size=_POINT_BYTES).digest(), "big")


class Ring:
    """Replicas on a circle of 2^64 places, `points` each (times their weight)."""

    __slots__ = ("_hashed", "_owners", "_places", "_points")

    def __init__(self, points: int = 200) -> None:
        self._points = points
        self._hashed: dict[ReplicaId, list[int]] = {}
        self._places: list[int] = []
        self._owners: list[ReplicaId] = []

    def __len__(self) -> int:
        return len(self._hashed)

    def reset(self, weights: Mapping[ReplicaId, float]) -> None:
        """Have exactly these replicas. The points of each depend on its own id and weight only, so that nobody else's
        sessions move when it comes or goes."""
        known, hashed = self._hashed, dict[ReplicaId, list[int]]()
        for replica_id, weight in weights.items():
            count = max(1, round(self._points * min(weight, _LARGEST_WEIGHT)))
            points = known.get(replica_id, [])
            hashed[replica_id] = points if len(points) == count else _points(replica_id, count)
        self._hashed = hashed
        around = sorted((at, replica_id) for replica_id, points in hashed.items() for at in points)
        self._places = [at for at, _ in around]
        self._owners = [replica_id for _, replica_id in around]

    def walk(self, at: int) -> Iterator[ReplicaId]:
        """Every replica once: the owner of this place, then those who follow it on the circle."""
        owners, count, left = self._owners, len(self._owners), len(self._hashed)
        first = bisect_right(self._places, at)
        met: set[ReplicaId] = set()
        for index in range(first, first + count):
            replica_id = owners[index % count]
            if replica_id not in met:
                yield replica_id
                met.add(replica_id)
                if len(met) == left:
                    return


def _points(replica_id: ReplicaId, count: int) -> list[int]:
    """The first `count` places of a replica."""
    name = replica_id.encode("utf-8", "surrogatepass")
    found: list[int] = []
    for number in range((count * _POINT_BYTES + _DIGEST_BYTES - 1) // _DIGEST_BYTES):
        digest = blake2b(name, digest_size=_DIGEST_BYTES, salt=number.to_bytes(8, "big")).digest()
        found += [int.from_bytes(digest[k : k + _POINT_BYTES], "big") for k in range(0, _DIGEST_BYTES, _POINT_BYTES)]
    return found[:count]
