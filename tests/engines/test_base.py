"""What holds for every dialect, ours and other people's: the contract."""

import importlib
import pkgutil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headway.engines
from headway.core.ids import ReplicaId
from headway.core.plugin import Plugin
from headway.engines.base import Dialect
from headway.engines.cards import MODELS_PATH

MODULES = [importlib.import_module(f"headway.engines.{m.name}") for m in pkgutil.iter_modules(headway.engines.__path__)]
PLUGINS = {module.PLUGIN.name: module.PLUGIN for module in MODULES if hasattr(module, "PLUGIN")}
DIALECTS: list[Dialect] = [plugin.factory(None) for plugin in PLUGINS.values()]
ME = ReplicaId("r")

every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda d: d.name)
scraps = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"null", b"[]", b"{}", b'{"data":[{}]}', b'[{"is_processing":true}]', b'{"loads":[{}]}', b"[{}]"]),
)
odd = st.sampled_from([None, True, -1, 5, 1.5, 1e308, "", "x", [], [5], [[]], [None], {}, {"x": 5}])
OWNERS = ["vllm", "sglang", "llamacpp", "tensorrt_llm", "somebody", 3]
CARD = ("aliases", "parent", "root", "max_model_len", "context_length", "max_context_length", "meta")
SERVER = {  # what engines say of themselves, on whichever path
    "vllm_config": ("model_config", "quantization", "dtype"),
    "default_generation_settings": ("n_ctx",),
    "mem_fraction_static": (),
    "tp_size": (),
    "models": ("name", "context_length"),
    "model_id": (),
    "max_total_tokens": (),
    **dict.fromkeys(
        ("total_slots", "model_alias", "build_info", "model_ftype", "version", "quantization", "dtype"), ()
    ),
    **dict.fromkeys(("served_model_name", "max_batch_total_tokens", "model_dtype", "endpoint_slots"), ()),
}


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
@given(data=st.data())
def test_an_odd_value_anywhere_in_what_an_engine_says_of_itself_raises_nothing(dialect: Dialect, data: Any) -> None:
    """Model cards whose `aliases` were a number kept every replica of the list from being registered."""
    card = {"id": "m", "owned_by": data.draw(st.sampled_from(OWNERS)), **{name: data.draw(odd) for name in CARD}}
    server: dict[str, Any] = {}
    for name, inner in SERVER.items():
        fields = {field: data.draw(odd) for field in inner}
        server[name] = data.draw(st.sampled_from([fields, [fields], data.draw(odd)]))
    answers = dict.fromkeys(dialect.detect_paths, msgspec.json.encode(server))
    facts = dialect.detect({**answers, MODELS_PATH: msgspec.json.encode({"data": [card]})})
    assert facts is None or all(isinstance(name, str) and name for name in facts.models)


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
