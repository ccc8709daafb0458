"""vLLM's page: pool and use, several engines, old names, sleep, and values that cannot be true."""

from pathlib import Path

import msgspec
import pytest

from headway.core.ids import ReplicaId
from headway.engines.base import Reading
from headway.engines.cards import MODELS_PATH
from headway.engines.vllm import PAGE, PAUSED, PLUGIN, SERVER, VERSION
from tests.engines import pages

VLLM = PLUGIN.factory(None)
ME = ReplicaId("r")


def read(page: str | bytes, model: str = "tiny", **more: bytes) -> Reading:
    body = page.encode() if isinstance(page, str) else page
    return VLLM.read({PAGE: body, **{f"/{path}": text for path, text in more.items()}}, ME, model, 5.0, 9)


def test_every_gauge_of_a_page() -> None:
    reading = read(pages.VLLM)
    sample = reading.sample
    assert (sample.replica_id, sample.taken_at, sample.epoch, sample.partial) == (ME, 5.0, 9, False)
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens, sample.kv_usage) == (1536, 768, 0.5)
    assert (sample.running, sample.waiting, sample.preemptions_total) == (2, 1, 3)
    assert (sample.prefix_queries_total, sample.prefix_hits_total) == (1771, 64)
    assert (sample.prompt_tokens_total, sample.generated_tokens_total) == (1771, 3746)
    assert sample.sleep_level == 0
    assert (reading.missing, reading.started_at, reading.rejections_total) == ((), 1.79597926675e9, 3)


def test_data_parallel_engines_add_up_and_fractions_weigh_by_capacity() -> None:
    reading = read(pages.VLLM_DATA_PARALLEL)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens) == (4000, 500 + 750)
    assert sample.kv_usage == pytest.approx(1250 / 4000)
    assert (sample.running, sample.waiting, sample.preemptions_total) == (7, 1, 3)
    assert (sample.prompt_tokens_total, sample.generated_tokens_total) == (300, 30)
    assert reading.missing == ()


def test_a_size_without_an_engine_holds_for_each_of_them() -> None:
    page = pages.VLLM_DATA_PARALLEL.replace('engine="0",kv_cache_size', "kv_cache_size")
    page = "\n".join(line for line in page.splitlines() if '"3000"' not in line) + "\n"
    assert read(page).sample.kv_capacity_tokens == 2000


def test_an_engine_of_unknown_size_leaves_the_fraction_only() -> None:
    page = "\n".join(line for line in pages.VLLM_DATA_PARALLEL.splitlines() if '"3000"' not in line) + "\n"
    sample = read(page).sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens) == (None, None)
    assert sample.kv_usage == pytest.approx(0.375)


def test_old_names_and_sizes_in_blocks() -> None:
    reading = read(pages.VLLM_OLD)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens, sample.running) == (1600, 160, 4)
    assert (sample.prefix_queries_total, sample.prefix_hits_total) == (50, 10)
    assert (sample.sleep_level, reading.started_at, reading.rejections_total) == (None, None, None)
    assert reading.missing == ()


@pytest.mark.parametrize(("model", "running", "waiting"), [("a", 1, 0), ("b", 50, 900)])
def test_the_models_of_one_engine_are_not_mixed(model: str, running: int, waiting: int) -> None:
    sample = read(pages.VLLM_TWO_MODELS, model).sample
    assert (sample.running, sample.waiting) == (running, waiting)


def test_an_empty_page_is_all_missing_and_nothing_is_zero() -> None:
    reading = read("")
    assert reading.sample.running is reading.sample.waiting is reading.sample.kv_used_tokens is None
    assert {"vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"} <= set(reading.missing)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e308", "1.01", "garbage", ""])
def test_a_use_that_cannot_be_true_is_missing(value: str) -> None:
    reading = read(pages.VLLM.replace('kv_cache_usage_perc{engine="0",model_name="tiny"} 0.5',
                                      f'kv_cache_usage_perc{{engine="0",model_name="tiny"}} {value}'))  # fmt: skip
    assert (reading.sample.kv_used_tokens, reading.sample.kv_usage) == (None, None)
    assert reading.sample.kv_capacity_tokens == 1536
    assert "vllm:kv_cache_usage_perc" in reading.missing
    assert reading.sample.running == 2


@pytest.mark.parametrize("size", ["None", "0", "nan", "-5"])
def test_a_pool_of_no_known_size_is_missing(size: str) -> None:
    page = pages.VLLM.replace('kv_cache_size_tokens="1536",num_gpu_blocks="48"', f'kv_cache_size_tokens="{size}"')
    reading = read(page)
    assert reading.sample.kv_capacity_tokens is None
    assert reading.sample.kv_usage == 0.5
    assert reading.missing == ("vllm:cache_config_info{kv_cache_size_tokens}",)


@pytest.mark.parametrize(("state", "level"), [("awake", 0), ("weights_offloaded", 1), ("discard_all", 2)])
def test_sleep_states_are_levels(state: str, level: int) -> None:
    page = pages.VLLM.replace('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0')
    page = page.replace(f'sleep_state="{state}"}} 0.0', f'sleep_state="{state}"}} 1.0')
    assert read(page).sample.sleep_level == level


@pytest.mark.parametrize(("body", "level"), [(b'{"is_paused":true}', 1), (b'{"is_paused":false}', 0), (b"garbage", 0)])
def test_a_paused_engine_counts_as_asleep(body: bytes, level: int) -> None:
    assert read(pages.VLLM, is_paused=body).sample.sleep_level == level
    assert PAUSED == "/is_paused"


@pytest.mark.parametrize(
    "page", [b"\x00\xff\xfe" * 1000, b"<html>no</html>", b"{" * 10_000, b"vllm:num_requests_running{"]
)
def test_garbage_reads_as_missing(page: bytes) -> None:
    assert "vllm:num_requests_running" in read(page).missing


def test_a_page_without_its_last_newline_is_read() -> None:
    assert read(pages.VLLM.rstrip("\n")).sample.kv_capacity_tokens == 1536


def test_it_is_known_by_its_cards() -> None:
    answers = {"/v1/models": pages.cards("vllm", "tiny", "lora", max_model_len=2048), VERSION: b'{"version":"0.32.0"}'}
    facts = VLLM.detect({**answers, PAGE: pages.VLLM.encode()})
    assert (facts.engine, facts.version, facts.models, facts.max_model_tokens) == (
        "vllm",
        "0.32.0",
        ("tiny", "lora"),
        2048,
    )
    assert (facts.kv_capacity_tokens, facts.metrics) == (1536, True)
    assert VLLM.detect(answers).metrics, "a page that is not there now may be there later: see observe.detect"


def test_it_is_known_by_its_metrics_when_cards_are_guarded() -> None:
    assert VLLM.detect({PAGE: pages.VLLM.encode()}).models == ()


@pytest.mark.parametrize("answers", [{}, {"/v1/models": pages.cards("sglang", "x")}, {PAGE: pages.LLAMACPP.encode()}])
def test_others_are_not_taken_for_it(answers: dict[str, bytes]) -> None:
    assert VLLM.detect(answers) is None


def test_the_header_is_read_as_asked_for() -> None:
    assert VLLM.request_headers == (("endpoint-load-metrics-format", "TEXT"),)
    sample = VLLM.read_header("named_metrics.kv_cache_usage_perc=0.5,named_metrics.num_requests_waiting=4", ME, 3.0)
    assert (sample.kv_usage, sample.waiting, sample.partial, sample.taken_at) == (0.5, 4, True, 3.0)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "used", "running", "waiting", "sleep"),
    [("metrics-busy", 784, 2, 1, 0), ("metrics-idle", 0, 0, 0, 0), ("dev/metrics-sleeping", 0, 0, 0, 1)],
)
def test_recorded_pages(shared: Path, name: str, used: int, running: int, waiting: int, sleep: int) -> None:
    reading = read((shared / f"fixtures/vllm/{name}.body").read_bytes())
    sample = reading.sample
    assert (sample.kv_used_tokens, sample.running, sample.waiting, sample.sleep_level) == (
        used,
        running,
        waiting,
        sleep,
    )
    assert reading.missing == ()
    assert sample.kv_capacity_tokens
    assert reading.started_at


@pytest.mark.shared
def test_a_recorded_preemption(shared: Path) -> None:
    sample = read((shared / "fixtures/vllm/metrics-busy-preempting.body").read_bytes()).sample
    assert sample.preemptions_total
    assert sample.kv_usage is not None
    assert sample.kv_usage > 0.5


@pytest.mark.shared
def test_recorded_detection(shared: Path) -> None:
    folder = shared / "fixtures/vllm"
    answers = {
        path: (folder / name).read_bytes()
        for path, name in (("/v1/models", "models.body"), (VERSION, "version.body"), (PAGE, "metrics-busy.body"))
    }
    facts = VLLM.detect(answers)
    assert (facts.version, facts.models, facts.max_model_tokens, facts.kv_capacity_tokens) == (
        "0.32.0",
        ("tiny",),
        2048,
        1536,
    )


def described(root: str = "m", **model: object) -> dict[str, bytes]:
    """Answers of an engine whose weights came from `root`, with a server description if anything is said of it."""
    adapter = {"id": "lora", "owned_by": "vllm", "root": "someones-fp8", "parent": "m"}
    cards = {"data": [adapter, {"id": "m", "owned_by": "vllm", "root": root, "parent": None}]}
    answers = {MODELS_PATH: msgspec.json.encode(cards)}
    if model:
        answers[SERVER] = msgspec.json.encode({"vllm_config": {"model_config": model}})
    return answers


@pytest.mark.parametrize(
    ("answers", "precision"),
    [
        (described(), ""),
        (described("RedHatAI/Qwen2.5-7B-Instruct-FP8-dynamic"), "fp8"),
        (
            described("casperhansen/llama-3-8b-instruct-awq", dtype="torch.float16", quantization="awq_marlin"),
            "awq_marlin",
        ),
        (described(dtype="torch.bfloat16", quantization=None), "bfloat16"),
        (described("x-quantized.w4a16", dtype="torch.bfloat16", quantization="compressed-tensors"), "int4"),
        (described(dtype="torch.bfloat16", quantization="compressed-tensors"), ""),
        ({**described("x-fp8"), SERVER: b'{"vllm_config": []}'}, "fp8"),
    ],
)
def test_the_precision_is_what_the_server_or_the_name_of_its_weights_says(
    answers: dict[str, bytes], precision: str
) -> None:
    facts = VLLM.detect(answers)
    assert facts is not None
    assert facts.precision == precision


def test_a_recorded_server_description_says_the_precision(shared: Path) -> None:
    recorded = shared / "fixtures" / "vllm"
    answers = {
        MODELS_PATH: (recorded / "models.body").read_bytes(),
        SERVER: (recorded / "dev" / "server_info.body").read_bytes(),
    }
    facts = VLLM.detect(answers)
    assert facts is not None
    assert facts.precision == "float32"
