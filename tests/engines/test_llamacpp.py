"""llama.cpp: use counted from slots, the queue from its page."""

from pathlib import Path

import pytest

from headway.core.ids import ReplicaId
from headway.engines.base import Reading
from headway.engines.llamacpp import PAGE, PLUGIN, PROPS, SLOTS
from tests.engines import pages

LLAMA = PLUGIN.factory(None)
ME = ReplicaId("r")


def read(slots: bytes | None = pages.LLAMACPP_SLOTS, page: str | None = pages.LLAMACPP) -> Reading:
    answers = {} if slots is None else {SLOTS: slots}
    if page is not None:
        answers[PAGE] = page.encode()
    return LLAMA.read(answers, ME, "tiny", 5.0, 9)


def test_use_is_what_busy_slots_hold() -> None:
    reading = read()
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens, sample.max_num_seqs) == (6144, 721, 3)
    assert (sample.running, sample.waiting) == (2, 3)
    assert (sample.prompt_tokens_total, sample.generated_tokens_total) == (1200, 77)
    assert (sample.prefix_hits_total, sample.prefix_queries_total) == (30, 1230)
    assert reading.missing == ()


def test_idle_slots_hold_nothing() -> None:
    sample = read(b'[{"id":0,"n_ctx":2048,"is_processing":false}]').sample
    assert (sample.kv_used_tokens, sample.running, sample.kv_capacity_tokens) == (0, 0, 2048)


def test_without_its_page_the_queue_is_missing_and_not_empty() -> None:
    reading = read(page=None)
    assert (reading.sample.waiting, reading.sample.kv_used_tokens) == (None, 721)
    assert reading.missing == ("llamacpp:requests_deferred",)


def test_without_slots_the_page_tells_what_runs() -> None:
    reading = read(slots=None)
    assert (reading.sample.running, reading.sample.kv_used_tokens, reading.sample.max_num_seqs) == (4, None, None)
    assert set(reading.missing) == {"slots[].n_ctx", "slots[].n_prompt_tokens"}


@pytest.mark.parametrize("slots", [b"", b"{}", b"[1,2]", b'{"error":{"code":501}}', b"nonsense"])
def test_slots_that_are_none_are_missing(slots: bytes) -> None:
    assert "slots[].n_ctx" in read(slots).missing


def test_old_slots_have_a_state_and_no_count() -> None:
    reading = read(b'[{"id":0,"n_ctx":512,"state":1},{"id":1,"n_ctx":512,"state":0}]')
    assert (reading.sample.running, reading.sample.kv_used_tokens) == (1, None)
    assert reading.missing == ("slots[].n_prompt_tokens",)


def test_it_is_known_by_its_slots() -> None:
    facts = LLAMA.detect({PROPS: pages.LLAMACPP_PROPS})
    assert (facts.engine, facts.version, facts.models) == ("llamacpp", "b11434-abc", ("tiny",))
    assert (facts.max_model_tokens, facts.kv_capacity_tokens, facts.max_num_seqs) == (2048, 8192, 4)
    assert facts.metrics


def test_aliases_are_names_too() -> None:
    models = pages.cards("llamacpp", "tiny.gguf", aliases=["tiny", "small", 3])
    assert LLAMA.detect({"/v1/models": models}).models == ("tiny.gguf", "tiny", "small")


def test_a_server_that_shows_neither_slots_nor_metrics_has_no_report() -> None:
    props = pages.LLAMACPP_PROPS.replace(b'slots":true', b'slots":false').replace(b'metrics":true', b'metrics":false')
    assert LLAMA.detect({PROPS: props}).metrics is False


@pytest.mark.parametrize("answers", [{}, {PROPS: b"{}"}, {"/v1/models": pages.cards("vllm", "x")}])
def test_others_are_not_taken_for_it(answers: dict[str, bytes]) -> None:
    assert LLAMA.detect(answers) is None


@pytest.mark.shared
@pytest.mark.parametrize(("state", "used", "running", "waiting"), [("busy", 360 + 3 * 361, 4, 3), ("idle", 0, 0, 0)])
def test_recorded_answers(shared: Path, state: str, used: int, running: int, waiting: int) -> None:
    folder = shared / "fixtures/llama.cpp"
    slots, page = (folder / f"slots-{state}.body").read_bytes(), (folder / f"metrics-{state}.body").read_text()
    reading = read(slots, page)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens) == (8192, used)
    assert (sample.running, sample.waiting, reading.missing) == (running, waiting, ())


@pytest.mark.shared
def test_recorded_detection(shared: Path) -> None:
    folder = shared / "fixtures/llama.cpp"
    answers = {
        "/v1/models": (folder / "v1-models-idle.body").read_bytes(),
        PROPS: (folder / "props-idle.body").read_bytes(),
    }
    facts = LLAMA.detect(answers)
    assert (facts.models, facts.max_model_tokens, facts.kv_capacity_tokens) == (("tiny",), 2048, 8192)
