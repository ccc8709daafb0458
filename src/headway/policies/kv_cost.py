"""The cost of NVIDIA Dynamo's KV router, in KV blocks: prompts to compute and blocks in use; the lowest wins.

    prefill_load_scale * max(0, (P + prompt - overlap_credit * hit) / block) + decode_blocks

P: prompt tokens of requests sent there whose first token has not come; hit: this prompt's cached tokens there;
decode_blocks: distinct prompt blocks of all requests in flight there, with this one. Source: Dynamo 1.3,
`lib/kv-router/src/scheduling/selector.rs` and `config.rs`; credit and scale 1, temperature 0, prefill tracked until
the first token, generated blocks not tracked (`router_track_output_blocks` is off by default).

What it knows: its own books of what is in flight, and what is cached where. No gauge of load: Dynamo reads none for
this.

Deviations: Dynamo is told by the engines' KV events what they hold; here `hit` is Headway's prefix index (what was
sent, corrected by the cached tokens that engines report), and shared blocks are told by Headway's blocks of 512 bytes.
No credit for caches in host memory or on disk, no softmax (its temperature is 0), and not Dynamo's own queue, which
holds back only when every replica has 16 full prefill batches to do.
"""

from collections.abc import Sequence

import msgspec

from headway.core.demand import Demand
from headway.core.ids import ReplicaId
from headway.core.plugin import Chance, Plugin
from headway.core.request import RequestInfo
from headway.core.view import ReplicaView


class KvCostConfig(msgspec.Struct, frozen=True):
    """Dynamo's defaults. `block_tokens` only sets the unit (16: vLLM's block)."""

    overlap_credit: float = 1.0
    prefill_load_scale: float = 1.0
    block_tokens: int = 16


class _Block:
    """A prompt block in use: by how many requests, and its length in tokens."""

    __slots__ = ("tokens", "users")

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens
        self.users = 0


class _Active:
    """The distinct prompt tokens in flight at one replica."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self.blocks: dict[int, _Block] = {}
        self.alone: dict[str, int] = {}  # prompts without blocks, by request

    def shared(self, blocks: Sequence[int]) -> float:
        """Tokens of the longest prefix of a prompt that is in use already."""
        total = 0.0
        for hashed in blocks:
            block = self.blocks.get(hashed)
            if block is None:
                break
            total += block.tokens
        return total

    def take(self, request: RequestInfo, prompt_tokens: int) -> None:
        """A request was sent."""
        hashes = request.prefix_hashes
        if not hashes:
            self.alone[request.id] = prompt_tokens
            self.tokens += prompt_tokens
        for hashed in hashes:
            block = self.blocks.get(hashed)
            if block is None:
                block = self.blocks[hashed] = _Block(prompt_tokens / len(hashes))
                self.tokens += block.tokens
            block.users += 1

    def give_back(self, request: RequestInfo) -> None:
        """It ended."""
        self.tokens -= self.alone.pop(request.id, 0)
        for hashed in request.prefix_hashes:
            block = self.blocks[hashed]
            block.users -= 1
            if not block.users:
                self.tokens -= block.tokens
                del self.blocks[hashed]


class KvCost:
    """Prefill and decode load in blocks. The books hold what is in flight, so what is in flight bounds them."""

    name = "kv_cost"
    parts: tuple[str, ...] = ("prefill_blocks", "decode_blocks")
    tolerance = 0.0
    binds_late = False
    minds_prefixes = True
    foresees = False

    def __init__(self, config: KvCostConfig) -> None:
        self._config = config
        self._active: dict[ReplicaId, _Active] = {}

    def costs(
        self, demand: Demand, views: Sequence[ReplicaView], now: float, rng: Chance
    ) -> Sequence[tuple[float, ...]]:
        """Blocks to compute and blocks in use, should the request go there."""
        config, prompt, hashes = self._config, demand.prompt_tokens, demand.request.prefix_hashes
        costs: list[tuple[float, ...]] = []
        for view in views:
            todo = view.prefill_backlog_tokens + prompt - config.overlap_credit * demand.hit(view.id)
            prefill = config.prefill_load_scale * max(0.0, todo) / config.block_tokens
            decode = float(prompt)
            active = self._active.get(view.id)
            if active is not None:
                decode = active.tokens + max(0.0, prompt - active.shared(hashes))
            decode /= config.block_tokens
            costs.append((prefill + decode, prefill, decode))
        return costs

    def sent(self, demand: Demand, replica: ReplicaId, now: float) -> None:
        """The prompt's blocks are in use there."""
        active = self._active.get(replica)
        if active is None:
            active = self._active[replica] = _Active()
        active.take(demand.request, demand.prompt_tokens)

    def ended(self, request: RequestInfo, replica: ReplicaId) -> None:
        """No longer."""
        active = self._active[replica]
        active.give_back(request)
        if not active.blocks and not active.alone:
            del self._active[replica]


PLUGIN = Plugin("kv_cost", KvCost, KvCostConfig)
