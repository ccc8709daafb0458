"""llama.cpp's server: no KV gauge, so use is counted from its slots; the queue is on its metrics page (`--metrics`).

A slot's `n_prompt_tokens` is what it holds in the KV cache, generated tokens included (recorded: 360 after a prompt of
300 and 60 decoded). An idle slot keeps its last prompt, but gives it up at once: it counts as free. With a unified KV
buffer every slot reports the whole context; nothing tells that apart, so the pool is then given in our settings.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.ids import ReplicaId
from headway.core.plugin import Plugin
from headway.core.replica import LoadSample
from headway.engines import cards
from headway.engines.base import Dialect, Facts, Poll, Reading
from headway.engines.continuation import Continuation, KvMove, Way, Words
from headway.engines.forms import LLAMA_CHAT, LLAMA_COMPLETION
from headway.engines.gauges import Gauges, whole
from headway.wire import promtext

SLOTS = "/slots"
PAGE = "/metrics"
PROPS = "/props"

PROCESSING = "llamacpp:requests_processing"
DEFERRED = "llamacpp:requests_deferred"
PROMPT_TOKENS = "llamacpp:prompt_tokens_total"
CACHED_TOKENS = "llamacpp:prompt_tokens_cached_total"
PREDICTED = "llamacpp:tokens_predicted_total"
NAMES = frozenset({PROCESSING, DEFERRED, PROMPT_TOKENS, CACHED_TOKENS, PREDICTED})

CONTINUATION = Continuation(
    chat=Way.TEXT,
    completion=Way.TEXT,
    open_ended=True,
    pins=("dynatemp_range", "dry_multiplier", "t_max_predict_ms"),  # state, or time, that starts anew
    fields={"cache_prompt": True},
    bare_finish=True,
    render=Words("/apply-template", "messages", "prompt"),
    tokenise=Words("/tokenize", "content", "tokens", {"add_special": False, "parse_special": True}),
    detokenise=Words("/detokenize", "tokens", "content"),
    kv=KvMove("/slots/{slot}?action=save", "/slots/{slot}?action=restore", "id_slot", 0.008, 100e-6),
    chat_form=LLAMA_CHAT,
    completion_form=LLAMA_COMPLETION,
)
"""Its streams lose the ids of characters made of several tokens (recorded: the last one only), so text it is, behind
the prompt as its own template renders it. `fixed_s`: measured, save 4.5 ms and restore 3.5 ms for 12.6 MB in a page
cache; an upper bound for small slots. `per_token_s`: 128 KiB (Llama-3.1-8B in bfloat16), written and read at 2.6 GB/s.
"""


class LlamaCpp(Dialect):
    """llama.cpp's llama-server."""

    name = "llamacpp"
    ports = (8080,)
    polls = (Poll(SLOTS), Poll(PAGE))
    detect_paths = (cards.MODELS_PATH, PROPS)
    endless = True
    continuation = CONTINUATION

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by the owner of its model cards or by the slots in its properties."""
        models = cards.models(answers)
        props = cards.mapping(answers.get(PROPS))
        slots = whole(props.get("total_slots")) or 0
        if not cards.owned_by(models, "llamacpp") and not slots:
            return None
        settings = props.get("default_generation_settings")
        context = whole(settings.get("n_ctx")) if isinstance(settings, dict) else None
        return Facts(
            engine=self.name,
            version=cards.text(props.get("build_info")),
            models=_names(models, props),
            max_model_tokens=context or 0,
            kv_capacity_tokens=(context or 0) * slots,
            max_num_seqs=slots,
            precision=cards.text(props.get("model_ftype")),
            metrics=props.get("endpoint_slots") is not False or props.get("endpoint_metrics") is not False,
        )

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """See Dialect.read."""
        gauges = Gauges(promtext.read(answers.get(PAGE, b""), NAMES), model)
        slots = cards.listing(cards.decode(answers.get(SLOTS)))
        missing = gauges.missing
        capacity, used = _capacity(slots, missing), _used(slots, missing)
        fresh = gauges.total(PROMPT_TOKENS, required=False)
        cached = gauges.total(CACHED_TOKENS, required=False)
        running = sum(map(_busy, slots)) if slots else gauges.total(PROCESSING)
        sample = LoadSample(
            replica_id,
            taken_at,
            epoch,
            kv_capacity_tokens=capacity,
            kv_used_tokens=used,
            running=running,
            waiting=gauges.total(DEFERRED),
            max_num_seqs=len(slots) or None,
            prefix_hits_total=cached,
            prefix_queries_total=None if fresh is None or cached is None else fresh + cached,
            prompt_tokens_total=fresh,
            generated_tokens_total=gauges.total(PREDICTED, required=False),
        )
        return Reading(sample, tuple(missing))


def _names(models: list[dict[str, Any]], props: dict[str, Any]) -> tuple[str, ...]:
    names = list(cards.names(models)) or [cards.text(props.get("model_alias"))]
    aliases = [cards.text(alias) for card in models for alias in cards.items(card.get("aliases"))]
    return tuple(dict.fromkeys(name for name in names + aliases if name))


def _busy(slot: dict[str, Any]) -> bool:
    if "is_processing" in slot:
        return slot["is_processing"] is True
    return bool(slot.get("state", 0))  # versions before 2024-11


def _capacity(slots: list[dict[str, Any]], missing: list[str]) -> int | None:
    sizes = [whole(slot.get("n_ctx")) for slot in slots]
    known = [size for size in sizes if size]
    if known and len(known) == len(sizes):
        return sum(known)
    missing.append("slots[].n_ctx")
    return None


def _used(slots: list[dict[str, Any]], missing: list[str]) -> int | None:
    held = [whole(slot.get("n_prompt_tokens")) for slot in slots if _busy(slot)]
    known = [tokens for tokens in held if tokens is not None]
    if slots and len(known) == len(held):
        return sum(known)
    missing.append("slots[].n_prompt_tokens")
    return None


PLUGIN = Plugin("llamacpp", lambda _config: LlamaCpp())
