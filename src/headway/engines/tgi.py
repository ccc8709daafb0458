"""Hugging Face Text Generation Inference: queue and batch from its metrics page, the pool's size from `/info`.

It admits a request only when its whole possible length fits, so a batch's `max_tokens` is what is taken from the pool.
Source: its documentation of metrics; no recording of a real server was at hand.
"""

from collections.abc import Mapping

from headway.core.ids import ReplicaId
from headway.core.plugin import Plugin
from headway.core.replica import LoadSample
from headway.engines import cards
from headway.engines.base import Dialect, Facts, Poll, Reading
from headway.engines.gauges import Gauges, whole
from headway.wire import promtext

PAGE = "/metrics"
INFO = "/info"
QUEUE = "tgi_queue_size"
BATCH = "tgi_batch_current_size"
BATCH_TOKENS = "tgi_batch_current_max_tokens"
NAMES = frozenset({QUEUE, BATCH, BATCH_TOKENS})


class Tgi(Dialect):
    """TGI's router."""

    name = "tgi"
    polls = (Poll(PAGE),)
    detect_paths = (INFO,)

    def detect(self, answers: Mapping[str, bytes]) -> Facts | None:
        """Known by the limits in its description of itself."""
        info = cards.mapping(answers.get(INFO))
        model = cards.text(info.get("model_id"))
        if not model or "max_total_tokens" not in info:
            return None
        return Facts(
            engine=self.name,
            version=cards.text(info.get("version")),
            models=(model,),
            max_model_tokens=whole(info.get("max_total_tokens")) or 0,
            kv_capacity_tokens=whole(info.get("max_batch_total_tokens")) or 0,
            precision=cards.text(info.get("model_dtype")),
        )

    def read(
        self, answers: Mapping[str, bytes], replica_id: ReplicaId, model: str, taken_at: float, epoch: int
    ) -> Reading:
        """See Dialect.read."""
        gauges = Gauges(promtext.read(answers.get(PAGE, b""), NAMES), model)
        sample = LoadSample(
            replica_id,
            taken_at,
            epoch,
            kv_used_tokens=gauges.total(BATCH_TOKENS),
            running=gauges.total(BATCH),
            waiting=gauges.total(QUEUE),
        )
        return Reading(sample, tuple(gauges.missing))


PLUGIN = Plugin("tgi", lambda _config: Tgi())
