"""Views, speeds and demands changed and compared: they are no Structs."""

from typing import Any, TypeVar

from headway.core.demand import Demand
from headway.core.view import SPEED, VIEW, ReplicaView, Speed

Made = TypeVar("Made", ReplicaView, Speed)


def changed(value: Made, **changes: Any) -> Made:
    """The same, but for these."""
    names = VIEW if isinstance(value, ReplicaView) else SPEED
    return type(value)(**({name: getattr(value, name) for name in names} | changes))


DEMAND = (
    "request", "prompt_tokens", "output_mean", "output_sigma", "output_limit", "hits", "output_low", "output_middle",
    "output_high",
)  # fmt: skip


def told(value: ReplicaView | Speed | Demand) -> list[str]:
    """All there is of it, to see whether somebody changed it."""
    names = VIEW if isinstance(value, ReplicaView) else SPEED if isinstance(value, Speed) else DEMAND
    parts = [getattr(value, name) for name in names]
    return [str(told(part)) if isinstance(part, Speed) else repr(part) for part in parts]
