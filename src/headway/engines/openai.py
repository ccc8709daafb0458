"""Any server that speaks the OpenAI API and says nothing of its load: counted by our own ledger only."""

from collections.abc import Mapping

from headway.core.plugin import Plugin
from headway.engines import cards
from headway.engines.base import Dialect, Facts
from headway.engines.gauges import whole


class OpenAi(Dialect):
    """A generic endpoint. Its health is that it lists its models."""

    name = "openai"
    health_path = cards.MODELS_PATH
    detect_paths = (cards.MODELS_PATH,)

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Anything with model cards; asked last, after the dialects that know more."""
        models = cards.models(answers)
        if not models:
            return None
        lengths = [whole(card.get("max_model_len")) or whole(card.get("context_length")) or 0 for card in models]
        return Facts(engine=self.name, models=cards.names(models), max_model_tokens=max(lengths), metrics=False)


PLUGIN = Plugin("openai", lambda _config: OpenAi())
