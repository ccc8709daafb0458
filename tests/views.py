"""Views and speeds with something changed: they are no Structs."""

from typing import Any, TypeVar

from headway.core.view import SPEED, VIEW, ReplicaView, Speed

Made = TypeVar("Made", ReplicaView, Speed)


def changed(value: Made, **changes: Any) -> Made:
    """The same, but for these."""
    names = VIEW if isinstance(value, ReplicaView) else SPEED
    return type(value)(**({name: getattr(value, name) for name in names} | changes))
