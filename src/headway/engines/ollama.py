"""Ollama: no metrics; it tells which models it has and how long a context the loaded ones were given.

It answers 503 when its own queue is full, and loads a model on the first request for it. Source: its API documentation.
"""

from collections.abc import Mapping

from headway.core.plugin import Plugin
from headway.engines import cards
from headway.engines.base import Dialect, Facts
from headway.engines.gauges import whole

VERSION = "/api/version"
TAGS = "/api/tags"
LOADED = "/api/ps"


class Ollama(Dialect):
    """Ollama's server, through its OpenAI endpoints."""

    name = "ollama"
    ports = (11434,)
    health_path = VERSION
    detect_paths = (VERSION, TAGS, LOADED)
    endless = True

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by its own list of models."""
        tags = cards.mapping(answers.get(TAGS)).get("models")
        if not isinstance(tags, list):
            return None
        loaded = cards.listing(cards.mapping(answers.get(LOADED)).get("models"))
        names = [cards.text(model.get("name")) for model in loaded + cards.listing(tags)]
        return Facts(
            engine=self.name,
            version=cards.text(cards.mapping(answers.get(VERSION)).get("version")),
            models=tuple(dict.fromkeys(filter(None, names))),
            max_model_tokens=max((whole(model.get("context_length")) or 0 for model in loaded), default=0),
            metrics=False,
        )


PLUGIN = Plugin("ollama", lambda _config: Ollama())
