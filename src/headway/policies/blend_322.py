"""The default blend of llm-d's scheduler: queue 2, KV cache 2, prefix 3, each a score in [0, 1]; the highest wins.

    queue   (max - waiting) / (max - min), 1 for all where max = min
    kv      1 - share of the KV pool in use
    prefix  share of the prompt's blocks believed cached, of its first `max_prefix_blocks`

Source: llm-d-inference-scheduler and the Gateway API inference extension it builds on (`loader/defaults.go`,
`queue-scorer`, `kv-cache-utilization-scorer`, `prefix-cache-scorer`, `max-score-picker`), 2026.

What it knows: the waiting count and KV usage of each engine's last report, as old as that is; nothing that was sent
since corrects them, and what an engine does not report counts as zero, as there. A report is as fresh as the body that
asks for it makes it (their own default is to ask every 50 ms). Of its own it has only the prefix index.

Deviations: the index is Headway's (text blocks of 512 bytes, corrected by the cached tokens that engines report; theirs
is bounded by the KV pool as well), so `max_prefix_blocks` of 16 tokens are counted in tokens. No flow control: theirs
sheds only requests marked as sheddable. Ties are broken by chance, as there.
"""

from collections.abc import Sequence

import msgspec

from headway.core.demand import Demand
from headway.core.plugin import Chance, Plugin
from headway.core.view import ReplicaView
from headway.policies.gauges import usage, waiting


class BlendConfig(msgspec.Struct, frozen=True):
    """The three weights, and llm-d's limits of prefix matching (256 blocks of 16 tokens)."""

    queue: float = 2.0
    kv: float = 2.0
    prefix: float = 3.0
    block_tokens: int = 16
    max_prefix_blocks: int = 256


class Blend:
    """Gauges and prefixes, weighted."""

    name = "blend_322"
    parts: tuple[str, ...] = ("queue", "kv", "prefix")
    tolerance = 0.0
    binds_late = False
    minds_prefixes = True
    foresees = False

    def __init__(self, config: BlendConfig) -> None:
        self._config = config

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """What is missing to the full score, and the three scores."""
        config = self._config
        queues = [waiting(view.sample) for view in views]
        least, most = min(queues), max(queues)
        matched = config.block_tokens * config.max_prefix_blocks
        prompt = max(1, min(demand.prompt_tokens, matched))
        costs: list[tuple[float, ...]] = []
        for view, count in zip(views, queues, strict=True):
            queue = (most - count) / (most - least) if most > least else 1.0
            kv = 1.0 - usage(view.sample, view.kv_capacity_tokens)
            prefix = min(demand.hit(view.id), prompt) / prompt
            missing = config.queue * (1.0 - queue) + config.kv * (1.0 - kv) + config.prefix * (1.0 - prefix)
            costs.append((missing, queue, kv, prefix))
        return costs


PLUGIN = Plugin("blend_322", Blend, BlendConfig)
