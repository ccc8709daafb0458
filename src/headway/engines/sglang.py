"""SGLang: load as JSON (`/v1/loads`, one entry per data-parallel rank), its metrics page where that is absent.

The page is written by every scheduler that shows metrics: series that differ only in tensor, pipeline or expert rank
are copies of one value. Source: answers recorded from 0.5.23.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headway.core.ids import ReplicaId
from headway.core.plugin import Plugin
from headway.core.replica import LoadSample
from headway.engines import cards
from headway.engines.base import Dialect, Facts, Poll, Reading
from headway.engines.continuation import Continuation, Way, Words
from headway.engines.forms import SGLANG_CHAT, SGLANG_COMPLETION
from headway.engines.gauges import Gauges, whole
from headway.wire import promtext

LOADS = "/v1/loads?include=core"
PAGE = "/metrics"
SERVER = "/server_info"
OLD_SERVER = "/get_server_info"

RUNNING = "sglang:num_running_reqs"
WAITING = "sglang:num_queue_reqs"
USED = "sglang:num_used_tokens"
USAGE = ("sglang:token_usage", "sglang:full_token_usage")
SIZE = "sglang:max_total_num_tokens"
MAX_RUNNING = "sglang:max_running_requests"
PROMPT_TOKENS = "sglang:prompt_tokens_total"
CACHED_TOKENS = "sglang:cached_tokens_total"
GENERATED_TOKENS = "sglang:generation_tokens_total"

NAMES = frozenset({RUNNING, WAITING, USED, *USAGE, SIZE, MAX_RUNNING, PROMPT_TOKENS, CACHED_TOKENS, GENERATED_TOKENS})
COPIES = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})
FIELDS = {
    "kv_capacity_tokens": "max_total_num_tokens",
    "kv_used_tokens": "num_used_tokens",
    "running": "num_running_reqs",
    "waiting": "num_waiting_reqs",
    "max_num_seqs": "max_running_requests",
}

CONTINUATION = Continuation(
    chat=Way.MESSAGE,
    completion=Way.TEXT,
    media=Way.MESSAGE,
    default_tokens=16,
    pins=("repetition_penalty",),  # whether it counts the prompt was not measured
    tokenise=Words("/tokenize", "prompt", "tokens", {"add_special_tokens": False}),
    chat_form=SGLANG_CHAT,
    completion_form=SGLANG_COMPLETION,
)
"""Its chat streams refuse to tell ids (400, recorded), so text it is; a client's own prompt of ids is kept as ids."""


class Sglang(Dialect):
    """SGLang's HTTP server."""

    name = "sglang"
    ports = (30000,)
    polls = (Poll(LOADS), Poll(PAGE, unless=LOADS, says=b'"loads"'))
    detect_paths = (cards.MODELS_PATH, SERVER, OLD_SERVER)
    heartbeat = b'"timestamp"'
    continuation = CONTINUATION

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by the owner of its model cards, or by a server description of its shape."""
        models = cards.models(answers)
        server = cards.mapping(answers.get(SERVER) or answers.get(OLD_SERVER))
        if not cards.owned_by(models, "sglang") and not {"mem_fraction_static", "tp_size"} <= server.keys():
            return None
        return Facts(
            engine=self.name,
            version=cards.text(server.get("version")),
            models=cards.names(models) or tuple(filter(None, [cards.text(server.get("served_model_name"))])),
            max_model_tokens=max((whole(card.get("max_model_len")) or 0 for card in models), default=0),
            precision=cards.text(server.get("quantization")) or cards.text(server.get("dtype")),
        )

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """See Dialect.read."""
        loads = cards.listing(cards.mapping(answers.get(LOADS)).get("loads"))
        if loads:
            values, missing = _totals(loads)
            return Reading(msgspec.structs.replace(LoadSample(replica_id, taken_at, epoch), **values), missing)
        return _read_page(answers.get(PAGE, b""), replica_id, model, taken_at, epoch)


def _totals(loads: list[dict[str, Any]]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Sums over ranks by sample field, and the fields that some rank did not state."""
    totals: dict[str, int] = {}
    missing: list[str] = []
    for field, key in FIELDS.items():
        values = [whole(load.get(key)) for load in loads]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            totals[field] = sum(known)
        else:
            missing.append(key)
    return totals, tuple(missing)


def _read_page(page: bytes, replica_id: ReplicaId, model: str, taken_at: float, epoch: int) -> Reading:
    gauges = Gauges(promtext.read(page, NAMES), model, same=COPIES)
    sizes, usages = gauges.by("dp_rank", SIZE), gauges.fractions("dp_rank", *USAGE)
    used = gauges.total(USED, required=False)
    if used is None and usages and usages.keys() <= sizes.keys():
        used = round(sum(usage * sizes[rank] for rank, usage in usages.items()))
    prompts = gauges.total(PROMPT_TOKENS, required=False)
    sample = LoadSample(
        replica_id,
        taken_at,
        epoch,
        kv_capacity_tokens=round(sum(sizes.values())) if sizes else None,
        kv_used_tokens=used,
        kv_usage=sum(usages.values()) / len(usages) if usages and not sizes else None,
        running=gauges.total(RUNNING),
        waiting=gauges.total(WAITING),
        max_num_seqs=gauges.total(MAX_RUNNING, required=False),
        prefix_hits_total=gauges.total(CACHED_TOKENS, required=False),
        prefix_queries_total=prompts,
        prompt_tokens_total=prompts,
        generated_tokens_total=gauges.total(GENERATED_TOKENS, required=False),
    )
    return Reading(sample, tuple(gauges.missing))


PLUGIN = Plugin("sglang", lambda _config: Sglang())
