"""What dialects share in reading JSON answers: decoding without trust, and the cards of `/v1/models`."""

from collections.abc import Mapping
from typing import Any

import msgspec

MODELS_PATH = "/v1/models"
LIMITS = ("max_model_len", "context_length", "max_context_length")
"""What engines call the longest context in a card."""


def decode(body: bytes | None) -> Any:
    """The decoded JSON, None if it is absent or is no JSON."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def mapping(body: bytes | None) -> dict[str, Any]:
    """The decoded JSON object, empty if it is something else."""
    value = decode(body)
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """A decoded JSON array, empty if it is something else."""
    return value if isinstance(value, list) else []


def listing(value: object) -> list[dict[str, Any]]:
    """The objects of a decoded JSON array, empty if it is something else."""
    return [item for item in items(value) if isinstance(item, dict)]


def text(value: object) -> str:
    """A JSON string, empty if it is something else."""
    return value if isinstance(value, str) else ""


def models(answers: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The model cards of an answered `/v1/models` that have an id."""
    cards = listing(mapping(answers.get(MODELS_PATH)).get("data"))
    return [card for card in cards if text(card.get("id"))]


def owned_by(cards: list[dict[str, Any]], owner: str) -> bool:
    """Whether the engine that wrote these cards calls itself so."""
    return any(card.get("owned_by") == owner for card in cards)


def names(cards: list[dict[str, Any]]) -> tuple[str, ...]:
    """The ids of the cards, in order."""
    return tuple(card["id"] for card in cards)


def told(cards: list[dict[str, Any]]) -> list[Any]:
    """What the cards say of names, weights and longest contexts, in order."""
    return [card.get(name) for card in cards for name in ("id", "root", *LIMITS)]
