"""Ollama is known by its own list; it has no load report."""

from headway.engines.ollama import LOADED, PLUGIN, TAGS, VERSION

OLLAMA = PLUGIN.factory(None)


def test_it_is_known_by_its_tags_loaded_models_first() -> None:
    answers = {
        VERSION: b'{"version":"0.12.0"}',
        TAGS: b'{"models":[{"name":"a:latest"},{"name":"b:7b"}]}',
        LOADED: b'{"models":[{"name":"b:7b","size_vram":5,"context_length":4096}]}',
    }
    facts = OLLAMA.detect(answers)
    assert (facts.engine, facts.version, facts.models) == ("ollama", "0.12.0", ("b:7b", "a:latest"))
    assert (facts.max_model_tokens, facts.metrics) == (4096, False)
    assert OLLAMA.polls == ()


def test_an_empty_shelf_is_still_ollama() -> None:
    assert OLLAMA.detect({TAGS: b'{"models":[]}'}).models == ()


def test_a_version_alone_is_not_ollama() -> None:
    assert OLLAMA.detect({VERSION: b'{"version":"1"}'}) is None
