"""The generic dialect: model cards and nothing else."""

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.engines.base import Reading
from headway.engines.openai import PLUGIN
from tests.engines import pages

OPENAI = PLUGIN.factory(None)


def test_anything_with_cards_is_it() -> None:
    facts = OPENAI.detect({"/v1/models": pages.cards("somebody", "a", "b", context_length=100)})
    assert (facts.engine, facts.models, facts.max_model_tokens, facts.metrics) == ("openai", ("a", "b"), 100, False)
    assert OPENAI.detect({"/v1/models": b"Internal Server Error"}) is None


def test_it_reports_nothing_and_misses_nothing() -> None:
    assert OPENAI.read({}, ReplicaId("r"), "a", 5.0, 9) == Reading(LoadSample(ReplicaId("r"), 5.0, 9))
    assert OPENAI.read_header("anything", ReplicaId("r"), 5.0) is None
