"""What holds for every dialect, ours and other people's: the contract."""

import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway.engines
from headway.core.ids import ReplicaId
from headway.core.plugin import Plugin
from headway.engines.base import Dialect

MODULES = [importlib.import_module(f"headway.engines.{m.name}") for m in pkgutil.iter_modules(headway.engines.__path__)]
PLUGINS = {module.PLUGIN.name: module.PLUGIN for module in MODULES if hasattr(module, "PLUGIN")}
DIALECTS: list[Dialect] = [plugin.factory(None) for plugin in PLUGINS.values()]
ME = ReplicaId("r")

every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
scraps = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"null", b"[]", b"{}", b'{"data":[{}]}', b'[{"is_processing":true}]', b'{"loads":[{}]}', b"[{}]"]),
)


def test_every_engine_is_there() -> None:
    assert set(PLUGINS) == {"vllm", "sglang", "trtllm", "llamacpp", "openai", "ollama", "tgi"}
    assert all(isinstance(plugin, Plugin) for plugin in PLUGINS.values())


@every_dialect
def test_paths_and_names_are_well_formed(dialect: Dialect) -> None:
    assert PLUGINS[dialect.name].name == dialect.name
    paths = [dialect.health_path, *dialect.detect_paths, *(poll.path for poll in dialect.polls)]
    assert all(path.startswith("/") for path in paths)
    assert {poll.unless for poll in dialect.polls if poll.unless} <= {poll.path for poll in dialect.polls}
    assert dialect.sample_header == dialect.sample_header.lower()
    assert bool(dialect.sample_header) == bool(dialect.request_headers)


@every_dialect
@given(data=st.data())
def test_whatever_an_engine_answers_nothing_is_raised_and_nothing_invented(dialect: Dialect, data: Any) -> None:
    answers = {path: data.draw(scraps) for path in {*dialect.detect_paths, *(poll.path for poll in dialect.polls)}}
    dialect.detect(answers)
    reading = dialect.read(answers, ME, "m", 3.0, 4)
    assert (reading.sample.replica_id, reading.sample.taken_at, reading.sample.epoch) == (ME, 3.0, 4)
    for field in ("kv_capacity_tokens", "kv_used_tokens", "running", "waiting"):
        value = getattr(reading.sample, field)
        assert value is None or (isinstance(value, int) and value >= 0)


@every_dialect
def test_an_engine_that_answers_nothing_says_nothing(dialect: Dialect) -> None:
    assert dialect.detect({}) is None
    sample = dialect.read({}, ME, "m", 3.0, 4).sample
    assert sample.running is sample.waiting is sample.kv_used_tokens is sample.kv_capacity_tokens is None


@every_dialect
@given(value=st.text(max_size=100))
def test_headers_are_read_without_trust(dialect: Dialect, value: str) -> None:
    sample = dialect.read_header(value, ME, 3.0)
    assert sample is None or sample.partial
