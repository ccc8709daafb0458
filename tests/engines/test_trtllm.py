"""TensorRT-LLM's gauges, its drained list of iterations, and Triton's names."""

import msgspec
import pytest

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample
from headway.engines.base import Reading
from headway.engines.trtllm import GAUGES, ITERATIONS, PLUGIN, VERSION
from tests.engines import pages

TRTLLM = PLUGIN.factory(None)
ME = ReplicaId("r")


def read(**bodies: str | bytes) -> Reading:
    paths = {"gauges": GAUGES, "iterations": ITERATIONS}
    answers = {paths[k]: v.encode() if isinstance(v, str) else v for k, v in bodies.items()}
    return TRTLLM.read(answers, ME, "tiny", 5.0, 9)


def test_gauges() -> None:
    reading = read(gauges=pages.TRTLLM)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens, sample.running, sample.waiting) == (32000, 8000, 3, 1)
    assert (sample.max_num_seqs, reading.missing) == (16, ())


def test_the_last_iteration_is_the_state() -> None:
    reading = read(iterations=pages.TRTLLM_ITERATIONS)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens, sample.running, sample.waiting) == (32000, 8000, 1, 5)
    assert (sample.max_num_seqs, reading.missing) == (2048, ())


def test_what_the_last_iteration_completed_runs_no_more() -> None:
    entry = {"numActiveRequests": 3, "numCompletedRequests": 2, "kvCacheStats": {}}
    assert read(iterations=msgspec.json.encode([entry])).sample.running == 1
    assert read(iterations=msgspec.json.encode([entry | {"numCompletedRequests": 4}])).sample.running == 0


def test_ranks_are_summed_each_with_its_own_last_entry() -> None:
    cache = {"maxNumBlocks": 10, "usedNumBlocks": 4, "tokensPerBlock": 32}
    entries = [
        {"attentionDpRank": 0, "numActiveRequests": 9, "numQueuedRequests": 9, "kvCacheStats": cache},
        {"attentionDpRank": 0, "numActiveRequests": 2, "numQueuedRequests": 1, "kvCacheStats": cache},
        {"attentionDpRank": 1, "numActiveRequests": 3, "numQueuedRequests": 0, "kvCacheStats": cache},
    ]
    sample = read(iterations=msgspec.json.encode(entries)).sample
    assert (sample.running, sample.waiting, sample.kv_capacity_tokens, sample.kv_used_tokens) == (5, 1, 640, 256)
    broken = [*entries[:2], {"attentionDpRank": 1, "numActiveRequests": 3}]
    assert read(iterations=msgspec.json.encode(broken)).sample.kv_capacity_tokens is None


def test_it_is_asked_for_its_iterations_where_its_gauges_tell_no_load() -> None:
    """Before 1.3 the page has request times only; and the list takes its time."""
    gauges, iterations = TRTLLM.polls
    assert (iterations.unless, iterations.says in pages.TRTLLM.encode()) == (gauges.path, True)
    assert iterations.patience_s > 2.1


def test_a_drained_list_says_nothing_new_and_nothing_is_missing() -> None:
    assert read(iterations=b"[]") == Reading(LoadSample(ME, 5.0, 9, partial=True))


def test_triton_names() -> None:
    reading = read(iterations=pages.TRITON)
    sample = reading.sample
    assert (sample.kv_capacity_tokens, sample.kv_used_tokens) == (6400, 64)
    assert (sample.running, sample.waiting, sample.max_num_seqs) == (2, 6, 512)
    assert reading.missing == ()


def test_gauges_win_over_iterations() -> None:
    assert read(gauges=pages.TRTLLM, iterations=pages.TRTLLM_ITERATIONS).sample.running == 3


@pytest.mark.parametrize("body", [b"", b"[1]", b"{}", b"[{}]", b"[", b'[{"kvCacheStats":3}]', b"\xff"])
def test_garbage_is_missing(body: bytes) -> None:
    reading = read(iterations=body)
    assert reading.sample.running is None
    assert reading.missing


def test_it_is_known_by_its_cards_or_its_gauges() -> None:
    facts = TRTLLM.detect({"/v1/models": pages.cards("tensorrt_llm", "tiny"), VERSION: b'{"version":"1.2"}'})
    assert (facts.engine, facts.version, facts.models) == ("trtllm", "1.2", ("tiny",))
    assert TRTLLM.detect({GAUGES: pages.TRTLLM.encode()})
    assert TRTLLM.detect({VERSION: b'{"version":"0.32.0"}', "/v1/models": pages.cards("vllm", "x")}) is None
