from importlib.metadata import EntryPoint

import pytest

from headway.compose.registry import PluginError, find
from headway.core.plugin import Plugin

PLUGIN = Plugin("mine", lambda config: config)
NO_PLUGIN = 5


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, "headway.plugins")


def test_finds_what_lives_in_the_rooms() -> None:
    registry = find([])
    assert {"headroom", "round_robin", "p2c", "lmetric"} <= set(registry.policies)
    assert {"vllm", "sglang", "llamacpp", "openai", "ollama"} <= set(registry.engines)


def test_names_are_unique_and_match_the_plugins() -> None:
    for table in (find([]).policies, find([]).engines):
        assert all(name == plugin.name for name, plugin in table.items())


def test_third_parties_join() -> None:
    registry = find([entry("policy.mine", f"{__name__}:PLUGIN")])
    assert registry.policies["mine"] is PLUGIN
    assert "mine" not in registry.engines


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("policy.broken", "no.such.module:PLUGIN", "policy.broken of unknown package cannot be loaded"),
        ("policy.broken", f"{__name__}:ABSENT", "cannot be loaded: AttributeError"),
        ("policy.number", f"{__name__}:NO_PLUGIN", "is a int, not a headway Plugin"),
        ("colour.mine", f"{__name__}:PLUGIN", "policy.<name> or engine.<name>"),
        ("policy.p2c", f"{__name__}:PLUGIN", "already a policy"),
    ],
)
def test_errors_name_the_plugin(name: str, value: str, words: str) -> None:
    with pytest.raises(PluginError, match=words.replace("(", r"\(")):
        find([entry(name, value)])
