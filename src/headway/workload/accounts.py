"""The five ways a request can end for its client, and the identity they must keep."""

from collections.abc import Iterable
from typing import Literal, get_args

import msgspec

Kind = Literal["ok", "client_error", "server_error", "client_closed", "shed"]
"""ok: a complete answer. client_error: 4xx that blames the request. server_error: 5xx, an error inside a 200, a cut or
incomplete answer, no answer at all. client_closed: we gave up waiting. shed: Headway's own refusal for lack of room."""

KINDS: tuple[Kind, ...] = get_args(Kind)


class Accounts(msgspec.Struct, frozen=True):
    """Requests by how they ended. Additive, so that runs can be summed."""

    started: int = 0
    ok: int = 0
    client_error: int = 0
    server_error: int = 0
    client_closed: int = 0
    shed: int = 0

    @property
    def balanced(self) -> bool:
        """Whether each request that was started ended in exactly one way."""
        return self.started == self.ok + self.client_error + self.server_error + self.client_closed + self.shed

    def __add__(self, other: "Accounts") -> "Accounts":
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Accounts(*(a + b for a, b in zip(mine, theirs, strict=True)))


def count(kinds: Iterable[Kind], started: int) -> Accounts:
    """Book each ended request under its kind. `started` is counted by who starts them, not derived from the ends."""
    totals = dict.fromkeys(KINDS, 0)
    for kind in kinds:
        totals[kind] += 1
    return Accounts(started=started, **totals)
