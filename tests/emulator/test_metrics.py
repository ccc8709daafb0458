"""The page's numbers are those of what happened, and a reader of vLLM's pages understands it."""

import re

import pytest

from headway.core.ids import ReplicaId
from headway.emulator.config import EmulatorConfig, machine
from headway.emulator.metrics import Meters
from headway.emulator.pace import Pace
from headway.engines import vllm
from tests.emulator.process import EmulatorProcess
from tests.emulator.test_api import CHAT, chat
from tests.emulator.wire import get, opened, post


def number(page: str, sample: str) -> float:
    match = re.search(rf"^{re.escape(sample)} (\S+)$", page, re.M)
    assert match, f"{sample} is not on the page"
    return float(match[1])


def page(one: EmulatorProcess) -> str:
    return get(one.port, "/metrics").body.decode()


def test_one_request_moves_the_counters(tiny: EmulatorProcess) -> None:
    labels = '{engine="0",model_name="tiny"}'
    names = [f"vllm:{name}{labels}" for name in ("generation_tokens_total", "time_to_first_token_seconds_count")]
    names += [f"vllm:{name}{labels}" for name in ("inter_token_latency_seconds_count", "prompt_tokens_total")]
    before = page(tiny)
    usage = post(tiny.port, CHAT, chat(max_tokens=7, ignore_eos=True)).json["usage"]
    after = page(tiny)
    moved = [number(after, name) - number(before, name) for name in names]
    assert moved == [7.0, 1.0, 6.0, usage["prompt_tokens"]]
    ended = 'vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'
    assert number(after, ended) - number(before, ended) == 1.0


def test_the_dialect_reads_what_the_engine_holds(slow: EmulatorProcess) -> None:
    body = chat("word " * 200, max_tokens=1500, ignore_eos=True, stream=True)
    with opened(slow.port, body) as answer:
        answer.read(1)
        answers = {path: get(slow.port, path).body for path in ("/metrics", "/is_paused", "/v1/models", "/version")}
    dialect = vllm.PLUGIN.factory(vllm.PLUGIN.config())
    reading = dialect.read(answers, ReplicaId("r"), "tiny", 0.0, 0)
    facts = dialect.detect(answers)
    sample = reading.sample
    assert reading.missing == ()
    assert (sample.running, sample.waiting, sample.sleep_level, sample.kv_capacity_tokens) == (1, 0, 0, 4096)
    assert 190 < (sample.kv_used_tokens or 0) < 600
    assert facts is not None
    assert (facts.engine, facts.models, facts.max_model_tokens) == ("vllm", ("tiny",), 2048)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-120b", "gemma-3-27b", "qwen3-next-80b-a3b"])
def test_the_pool_has_the_bytes_that_the_memory_model_left_for_it(model: str) -> None:
    """Also where windows and states take less than full attention would."""
    config = EmulatorConfig(model=model, gpu="h200-141gb", tensor_parallel_size=2)
    made = machine(config)
    shown = Meters(config, made).page(made.engine().stats(), Pace(1.0)).decode()
    found = re.search(r'kv_cache_memory_bytes="(\d+)"', shown)
    assert found
    assert int(found[1]) == pytest.approx(made.plan.kv_blocks * made.plan.layout.block_bytes, rel=1e-4)


def test_the_clock_tells_its_lag(tiny: EmulatorProcess) -> None:
    assert number(page(tiny), "headway_emulator_clock_lag_ratio") >= 0.0
    assert number(page(tiny), "headway_emulator_time_scale") == 50.0


def test_every_bucket_row_is_cumulative(tiny: EmulatorProcess) -> None:
    rows: dict[str, list[float]] = {}
    for name, value in re.findall(r"^(vllm:\w+_bucket)\{.*\} (\S+)$", page(tiny), re.M):
        rows.setdefault(name, []).append(float(value))
    assert rows
    assert all(row == sorted(row) for row in rows.values())
