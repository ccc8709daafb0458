"""Names of things. Plain strings, distinct for the type checker only."""

from typing import NewType

RequestId = NewType("RequestId", str)
"""One client request. Minted by the body, fixed length, never taken from the client (engines abort by prefix)."""

AttemptId = NewType("AttemptId", str)
"""One try of a request at one replica: the request id, a dash and one digit. Sent upstream as x-request-id."""

ReplicaId = NewType("ReplicaId", str)
"""One registration of a serving engine. Registering the same URL again yields a new id, so that late news of the
old registration cannot touch the new one."""


def attempt_id(request: RequestId, number: int) -> AttemptId:
    """The id of the `number`-th attempt (0..9) of a request."""
    return AttemptId(f"{request}-{number}")
