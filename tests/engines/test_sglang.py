"""SGLang's JSON loads and, where they are absent, its page."""

import ast
from pathlib import Path

import msgspec
import pytest

from headway.core.ids import ReplicaId
from headway.engines.base import Reading
from headway.engines.sglang import LOADS, PAGE, PLUGIN, SERVER
from tests.engines import pages

SGLANG = PLUGIN.factory(None)
ME = ReplicaId("r")


def read(loads: bytes | None = None, page: str | bytes | None = None) -> Reading:
    answers = {} if loads is None else {LOADS: loads}
    if page is not None:
        answers[PAGE] = page.encode() if isinstance(page, str) else page
    return SGLANG.read(answers, ME, "tiny", 5.0, 9)


def test_ranks_add_up() -> None:
    reading = read(pages.SGLANG_LOADS)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens) == (16384, 5000)
    assert (sample.running, sample.waiting, sample.max_num_seqs) == (5, 2, 4096)
    assert reading.missing == ()


@pytest.mark.parametrize("value", [b"null", b'"4860"x', b"-1", b"1e400", b"true"])
def test_a_rank_that_does_not_state_its_use_leaves_it_unknown(value: bytes) -> None:
    reading = read(pages.SGLANG_LOADS.replace(b'"num_used_tokens":4860', b'"num_used_tokens":' + value))
    assert reading.sample.kv_used_tokens is None
    assert reading.missing


def test_no_loads_means_broken_and_not_idle() -> None:
    reading = read(b'{"loads":[]}')
    assert reading.sample.running is None
    assert "sglang:num_running_reqs" in reading.missing


def test_the_page_stands_in_and_copies_of_tensor_ranks_count_once() -> None:
    reading = read(page=pages.SGLANG)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens, sample.running, sample.waiting) == (8192, 4748, 4, 2)
    assert (sample.prompt_tokens_total, sample.generated_tokens_total) == (10890, 15208)
    assert (sample.prefix_hits_total, sample.prefix_queries_total) == (9278, 10890)
    assert reading.missing == ()


def test_a_page_without_used_tokens_has_the_fraction() -> None:
    page = "\n".join(line for line in pages.SGLANG.splitlines() if "num_used_tokens" not in line)
    assert read(page=page).sample.kv_used_tokens == round(0.58 * 8192)


def test_a_page_without_sizes_has_only_the_fraction() -> None:
    page = "\n".join(line for line in pages.SGLANG.splitlines() if "_tokens{" not in line)
    reading = read(page=page)
    assert (reading.sample.kv_capacity_tokens, reading.sample.kv_used_tokens) == (None, None)
    assert reading.sample.kv_usage == pytest.approx(0.58)
    assert reading.missing == ("sglang:max_total_num_tokens",)


def test_the_loads_win_over_the_page() -> None:
    assert read(pages.SGLANG_LOADS, pages.SGLANG).sample.running == 5


def test_it_is_known_by_its_cards_or_its_server_description() -> None:
    server = b'{"version":"0.5.23","served_model_name":"tiny","dtype":"float32","tp_size":1,"mem_fraction_static":0.1}'
    facts = SGLANG.detect({"/v1/models": pages.cards("sglang", "tiny", max_model_len=8192), SERVER: server})
    assert (facts.engine, facts.version, facts.models, facts.max_model_tokens, facts.precision) == (
        "sglang",
        "0.5.23",
        ("tiny",),
        8192,
        "float32",
    )
    assert SGLANG.detect({SERVER: server}).models == ("tiny",)
    assert SGLANG.detect({SERVER: b'{"version":"1"}', "/v1/models": pages.cards("vllm", "x")}) is None


@pytest.mark.shared
def test_recorded_loads(shared: Path) -> None:
    folder = shared / "fixtures/sglang"
    idle = read((folder / "v1-loads-idle.body").read_bytes())
    assert (idle.sample.kv_used_tokens, idle.sample.running, idle.sample.kv_capacity_tokens) == (0, 0, 8192)
    assert idle.missing == ()
    entry = ast.literal_eval((folder / "v1-loads-busy.body").read_text())  # recorded as one Python value
    busy = read(msgspec.json.encode({"loads": [entry]}))
    assert (busy.sample.kv_used_tokens, busy.sample.running, busy.sample.waiting) == (4860, 4, 2)


@pytest.mark.shared
def test_recorded_pages(shared: Path) -> None:
    reading = read(page=(shared / "fixtures/sglang/metrics-busy.body").read_bytes())
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens, sample.running, sample.waiting) == (8192, 4748, 4, 2)
    assert reading.missing == ()


@pytest.mark.shared
def test_recorded_detection(shared: Path) -> None:
    folder = shared / "fixtures/sglang"
    recorded = (("/v1/models", "v1-models-idle.body"), (SERVER, "server_info-idle.body"))
    answers = {path: (folder / name).read_bytes() for path, name in recorded}
    facts = SGLANG.detect(answers)
    assert (facts.version, facts.models, facts.max_model_tokens) == ("0.5.23", ("tiny",), 8192)
