"""TensorRT-LLM (trtllm-serve), and Triton's TensorRT-LLM backend behind its OpenAI front.

trtllm-serve has gauges at `/prometheus/metrics` (with `return_perf_metrics`; of load since 1.3, and once something has
run) and, at `/metrics`, a JSON list of the iterations since the last reader asked (with `enable_iter_perf_stats`):
reading drains it, so the last entry is the state, an empty list means nothing ran since, and a second reader (another
gateway) takes entries away from us. Where nothing else collects them, it answers only after two quiet seconds. Triton
writes Prometheus text at `/metrics` under other names.
Source: their documentation, public issues and tests (docs/real-engines.md); no recording of a real server was at hand.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.core.ids import ReplicaId
from headway.core.plugin import Plugin
from headway.core.replica import LoadSample
from headway.engines import cards
from headway.engines.base import Dialect, Facts, Poll, Reading
from headway.engines.gauges import Gauges, whole
from headway.wire import promtext

GAUGES = "/prometheus/metrics"
ITERATIONS = "/metrics"
VERSION = "/version"
PATIENCE_S = 4.0  # two quiet seconds, and what an answer takes (2.1 s are reported)

RUNNING = "trtllm_num_requests_running"
WAITING = "trtllm_num_requests_waiting"
USAGE = ("trtllm_kv_cache_utilization",)
BLOCKS = "trtllm_kv_cache_max_blocks"
BLOCK_TOKENS = "trtllm_kv_cache_tokens_per_block"
SEATS = "trtllm_max_num_active_requests"
TRITON_REQUESTS = "nv_trt_llm_request_metrics"
TRITON_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
NAMES = frozenset({RUNNING, WAITING, *USAGE, BLOCKS, BLOCK_TOKENS, SEATS})
RANK = "attentionDpRank"
"""Each rank of attention data parallelism has its own list entries, requests and pool."""
STATE = {
    "kv_capacity_tokens": "kvCacheStats.maxNumBlocks",
    "kv_used_tokens": "kvCacheStats.usedNumBlocks",
    "running": "numActiveRequests",
    "waiting": "",
    "max_num_seqs": "",
}
"""What an iteration tells, and what is missed if it does not; the last two are not in every version's."""
TRITON_NAMES = frozenset({TRITON_REQUESTS, TRITON_BLOCKS})


class TrtLlm(Dialect):
    """trtllm-serve or Triton."""

    name = "trtllm"
    ports = (8000,)
    polls = (Poll(GAUGES), Poll(ITERATIONS, unless=GAUGES, says=RUNNING.encode(), patience_s=PATIENCE_S))
    detect_paths = (cards.MODELS_PATH, VERSION, GAUGES)

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by the owner of its model cards or by the prefix of its gauges."""
        models = cards.models(answers)
        if not cards.owned_by(models, "tensorrt_llm") and b"trtllm_" not in answers.get(GAUGES, b""):
            return None
        return Facts(
            engine=self.name,
            version=cards.text(cards.mapping(answers.get(VERSION)).get("version")),
            models=cards.names(models),
            max_model_tokens=max((whole(card.get("max_model_len")) or 0 for card in models), default=0),
        )

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """See Dialect.read."""
        empty = LoadSample(replica_id, taken_at, epoch)
        if GAUGES in answers:
            return _read_gauges(answers[GAUGES], empty, model)
        page = answers.get(ITERATIONS, b"")
        if page.lstrip()[:1] in (b"[", b"{"):
            return _read_iterations(page, empty)
        return _read_triton(page, empty, model)


def _read_gauges(page: bytes, empty: LoadSample, model: str) -> Reading:
    gauges = Gauges(promtext.read(page, NAMES), model)
    blocks, per_block, fractions = gauges.total(BLOCKS), gauges.total(BLOCK_TOKENS), gauges.fractions("", *USAGE)
    capacity = None if blocks is None or per_block is None else blocks * per_block
    usage = fractions.get("")
    sample = msgspec.structs.replace(
        empty,
        kv_capacity_tokens=capacity,
        kv_used_tokens=None if capacity is None or usage is None else round(usage * capacity),
        kv_usage=usage,
        running=gauges.total(RUNNING),
        waiting=gauges.total(WAITING),
        max_num_seqs=gauges.total(SEATS, required=False),
    )
    return Reading(sample, tuple(gauges.missing))


def _read_iterations(page: bytes, empty: LoadSample) -> Reading:
    decoded = cards.decode(page)
    if decoded == []:
        return Reading(msgspec.structs.replace(empty, partial=True))
    entries = cards.listing(decoded if isinstance(decoded, list) else [decoded])
    ranks = [_state(entry) for entry in {whole(entry.get(RANK)): entry for entry in entries}.values()]
    values = {name: _sum([state[name] for state in ranks]) for name in STATE}
    missing = tuple(f"iterations[].{said}" for name, said in STATE.items() if said and values[name] is None)
    return Reading(msgspec.structs.replace(empty, **values), missing)


def _state(entry: dict[str, Any]) -> dict[str, int | None]:
    """What was so when an iteration ended. TensorRT-LLM counts those it completed as active (its own tests say so)."""
    cache = entry.get("kvCacheStats")
    stats: dict[str, Any] = cache if isinstance(cache, dict) else {}
    per_block = whole(stats.get("tokensPerBlock"))
    active, completed = whole(entry.get("numActiveRequests")), whole(entry.get("numCompletedRequests")) or 0
    return {
        "kv_capacity_tokens": _tokens(stats.get("maxNumBlocks"), per_block),
        "kv_used_tokens": _tokens(stats.get("usedNumBlocks"), per_block),
        "running": None if active is None else max(0, active - completed),
        "waiting": whole(entry.get("numQueuedRequests")),
        "max_num_seqs": whole(entry.get("maxNumActiveRequests")),
    }


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _tokens(blocks: object, per_block: int | None) -> int | None:
    count = whole(blocks)
    return None if count is None or per_block is None else count * per_block


def _read_triton(page: bytes, empty: LoadSample, model: str) -> Reading:
    gauges = Gauges(promtext.read(page, TRITON_NAMES), model)
    requests = gauges.by("request_type", TRITON_REQUESTS)
    blocks = gauges.by("kv_cache_block_type", TRITON_BLOCKS)
    per_block = whole(blocks.get("tokens_per"))
    sample = msgspec.structs.replace(
        empty,
        kv_capacity_tokens=_tokens(blocks.get("max"), per_block),
        kv_used_tokens=_tokens(blocks.get("used"), per_block),
        running=whole(requests.get("scheduled")),
        waiting=whole(requests.get("waiting")),
        max_num_seqs=whole(requests.get("max")),
    )
    return Reading(sample, tuple(gauges.missing))


PLUGIN = Plugin("trtllm", lambda _config: TrtLlm())
