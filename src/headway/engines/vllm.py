"""vLLM: a Prometheus page, sleep state, and a load report in response headers (ORCA) on request.

The pool's size is learned from `vllm:cache_config_info`, its use from a fraction; both exist once per engine of a
data-parallel process. Names of versions before 0.10 are read as well. A paused scheduler shows only in dev mode.
Source: pages recorded from 0.32, and vLLM's documentation of its metrics.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.ids import ReplicaId
from headway.core.plugin import Plugin
from headway.core.precision import of_model, rank
from headway.core.replica import LoadSample
from headway.engines import cards, orca
from headway.engines.base import Dialect, Facts, Poll, Reading
from headway.engines.continuation import Continuation, KvPull, Way, Words
from headway.engines.forms import VLLM_CHAT, VLLM_COMPLETION
from headway.engines.gauges import Gauges, Labels, whole
from headway.wire import promtext

PAGE = "/metrics"
PAUSED = "/is_paused"
VERSION = "/version"
SERVER = "/server_info"  # in dev mode only

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
CONFIG = "vllm:cache_config_info"
PREEMPTIONS = "vllm:num_preemptions_total"
PREFIX_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
PREFIX_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATED_TOKENS = "vllm:generation_tokens_total"
SLEEP = "vllm:engine_sleep_state"
REJECTIONS = "vllm:admission_rejections_total"
STARTED = "process_start_time_seconds"

NAMES = frozenset(
    {RUNNING, WAITING, *USAGE, CONFIG, PREEMPTIONS, *PREFIX_QUERIES, *PREFIX_HITS}
    | {PROMPT_TOKENS, GENERATED_TOKENS, SLEEP, REJECTIONS, STARTED}
)
SLEEP_LEVELS = {"awake": 0, "weights_offloaded": 1, "discard_all": 2}
PAUSED_LEVEL = 1  # a paused engine keeps its weights, but like one asleep it lets requests hang

WANTED: dict[str, object] = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
    "remote_host": None, "remote_port": None,
}  # fmt: skip
"""What asks a NixlConnector to keep a prompt's KV for somebody else (recorded, vLLM 0.32)."""

CONTINUATION = Continuation(
    chat=Way.IDS,
    completion=Way.IDS,
    media=Way.MESSAGE,  # a completion cannot carry images
    default_tokens=16,
    tokenise=Words("/tokenize", "prompt", "tokens", {"add_special_tokens": False}),
    detokenise=Words("/detokenize", "tokens", "prompt"),
    pull=KvPull("kv_transfer_params", WANTED, 0.05, 26e-6),
    chat_form=VLLM_CHAT,
    completion_form=VLLM_COMPLETION,
)
"""Its streams tell ids on request (`return_token_ids`), and completions take ids as a prompt. The connector's times:
128 KiB per token (Llama-3.1-8B in bfloat16) at 40 Gbit/s, and a step of the source and one of the target."""


class Vllm(Dialect):
    """vLLM's OpenAI server."""

    name = "vllm"
    ports = (8000,)
    polls = (Poll(PAGE), Poll(PAUSED, optional=True))
    detect_paths = (cards.MODELS_PATH, VERSION, PAGE, SERVER)
    request_headers = (("endpoint-load-metrics-format", "TEXT"),)
    sample_header = orca.HEADER
    heartbeat = b"process_cpu_seconds_total"
    continuation = CONTINUATION

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by the owner of its model cards or by the prefix of its metrics."""
        page = answers.get(PAGE, b"")
        models = cards.models(answers)
        if not cards.owned_by(models, "vllm") and RUNNING.encode() not in page:
            return None
        gauges = Gauges(promtext.read(page, NAMES))
        return Facts(
            engine=self.name,
            version=cards.text(cards.mapping(answers.get(VERSION)).get("version")),
            models=cards.names(models),
            max_model_tokens=max((whole(card.get("max_model_len")) or 0 for card in models), default=0),
            kv_capacity_tokens=round(sum(_capacities(gauges).values())),
            precision=_precision(answers, models),
        )

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """See Dialect.read."""
        gauges = Gauges(promtext.read(answers.get(PAGE, b""), NAMES), model)
        usages, capacities = gauges.fractions("engine", *USAGE), _capacities(gauges)
        capacity, used, usage = _pool(usages, capacities)
        sample = LoadSample(
            replica_id,
            taken_at,
            epoch,
            kv_capacity_tokens=capacity,
            kv_used_tokens=used,
            kv_usage=usage,
            running=gauges.total(RUNNING),
            waiting=gauges.total(WAITING),
            preemptions_total=gauges.total(PREEMPTIONS),
            prefix_hits_total=gauges.total(*PREFIX_HITS, required=False),
            prefix_queries_total=gauges.total(*PREFIX_QUERIES, required=False),
            generated_tokens_total=gauges.total(GENERATED_TOKENS),
            prompt_tokens_total=gauges.total(PROMPT_TOKENS),
            sleep_level=_sleep_level(gauges, answers),
        )
        started = gauges.by("", STARTED, required=False).get("")
        return Reading(sample, tuple(gauges.missing), started, gauges.total(REJECTIONS, required=False))

    def read_header(self, value: str, replica_id: ReplicaId, taken_at: float) -> LoadSample | None:
        """See Dialect.read_header."""
        return orca.sample(value, replica_id, taken_at)


def _precision(answers: Mapping[str, bytes], models: list[dict[str, Any]]) -> str:
    """Weights' format: by the server's own description where it gives one, else by the name the weights were loaded
    under (`root`), which is their Hugging Face id or folder."""
    config = cards.mapping(answers.get(SERVER)).get("vllm_config")
    model = config.get("model_config") if isinstance(config, dict) else None
    own = next((cards.text(card.get("root")) for card in models if not card.get("parent")), "")
    if not isinstance(model, dict):
        return of_model(own)
    method = cards.text(model.get("quantization"))
    if not method:
        return cards.text(model.get("dtype")).removeprefix("torch.")
    return method if rank(method) else of_model(own)


def _capacities(gauges: Gauges) -> dict[str, float]:
    """Pool sizes in tokens by engine. Versions that do not state tokens state blocks."""
    sizes: dict[str, float] = {}
    for labels, _ in gauges.series(CONFIG):
        tokens = whole(labels.get("kv_cache_size_tokens")) or _blocks(labels)
        if tokens:
            sizes[labels.get("engine", "")] = tokens
        else:
            gauges.missing.append(f"{CONFIG}{{kv_cache_size_tokens}}")
    return sizes


def _blocks(labels: Labels) -> int:
    return (whole(labels.get("num_gpu_blocks")) or 0) * (whole(labels.get("block_size")) or 0)


def _pool(usages: dict[str, float], capacities: dict[str, float]) -> tuple[int | None, int | None, float | None]:
    """(capacity, used tokens, used fraction). Engines of one process share their settings, so a size without an
    engine's name holds for each; if sizes are unknown, equal sizes make the fraction a plain mean."""
    shared = capacities.get("")
    sizes = {engine: capacities.get(engine, shared) for engine in usages or capacities}
    known = [size for size in sizes.values() if size]
    capacity = sum(known) if known and len(known) == len(sizes) else None
    if not usages:
        return (round(capacity) if capacity else None), None, None
    if capacity is None:
        return None, None, sum(usages.values()) / len(usages)
    used = sum(usage * (sizes[engine] or 0.0) for engine, usage in usages.items())
    return round(capacity), round(used), used / capacity


def _sleep_level(gauges: Gauges, answers: Mapping[str, bytes]) -> int | None:
    states = gauges.by("sleep_state", SLEEP, required=False)
    level = max((SLEEP_LEVELS.get(state, 0) for state, on in states.items() if on), default=0) if states else None
    if cards.mapping(answers.get(PAUSED)).get("is_paused") is True:
        return max(level or 0, PAUSED_LEVEL)
    return level


PLUGIN = Plugin("vllm", lambda _config: Vllm())
