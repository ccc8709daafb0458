"""The replicas as they are believed to be now: load reports folded onto the ledger, and immutable views of the result.

A report is never taken at its word. It is compared with what the ledger held when the report was requested; what
remains is foreign load (other clients of that engine) or sharing (one prefix counted by several of ours), and only that
remainder is kept until the next report. So requests sent since are counted at once, gauges that lag or are stuck at
zero cannot hide streams we know of, and without reports the ledger alone is used. A view is rebuilt only after
something about its replica changed; forecasts are rebuilt from scratch at most every `rebuild_s` per replica, outside
of decisions. What is not here: which replicas may be used (health, scheduler).
"""

import math
from typing import Final

from headway.core.commands import Command
from headway.core.constants import (
    FleetConfig,
    HealthConfig,
    LedgerConfig,
    LengthConfig,
    MemoryConfig,
    PrefixConfig,
    SpeedConfig,
)
from headway.core.demand import Demand
from headway.core.entries import Expected, Job
from headway.core.entry import Entry
from headway.core.health import Health
from headway.core.ids import ReplicaId
from headway.core.ledger import Account, Ledger
from headway.core.length import LengthModel
from headway.core.memory import HORIZONS, Outlook
from headway.core.outcome import GOES_ON, Outcome, OutcomeKind
from headway.core.prefix import PrefixIndex
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.request import RequestInfo
from headway.core.snapshot import KvError
from headway.core.speed import SpeedModel
from headway.core.standing import Replica, Viewing
from headway.core.unseen import Unseen

Prospect = tuple[float, float, tuple[int, int, int], Outlook]
"""Of a new output: mean and deviation; low, middle and high; its share of a batch."""


class Fleet:
    """All replicas, what is learned about them, and their views."""

    def __init__(
        self,
        config: FleetConfig | None = None,
        memory: MemoryConfig | None = None,
        health: HealthConfig | None = None,
        ledger: LedgerConfig | None = None,
        length: LengthConfig | None = None,
        prefix: PrefixConfig | None = None,
        speed: SpeedConfig | None = None,
        foresees: bool = True,
    ) -> None:
        """`foresees`: somebody asks how full pools will get, so that running batches are forecast again and again."""
        self.config = config or FleetConfig()
        self.memory = memory or MemoryConfig()
        self._rebuild_s, self._sweep_s = self.config.rebuild_s, self.config.sweep_s
        self._most_outlooks = self.config.outlooks
        self._health = health or HealthConfig()
        self._block_bytes = (prefix or PrefixConfig()).block_bytes
        self.ledger = Ledger(ledger)
        self.length = LengthModel(length)
        self.prefix = PrefixIndex(prefix)
        self.speed = SpeedModel(speed)
        self._unseen = Unseen(self.config, self.speed)
        self.replicas: dict[ReplicaId, Replica] = {}
        self._changed: list[Replica] = []
        self._swept_at = 0.0
        self._slack = self.memory.block_tokens / 2
        self.viewing = Viewing(self.config, self.memory)
        self._foresees = foresees
        self._outlooks: dict[tuple[str, int, int, int], Prospect] = {}
        self._outlooks_at = 0.0
        self._futures: dict[tuple[str, int, int, int, int], tuple[int, Outlook]] = {}
        self._futures_at = 0.0

    # -- replicas ----------------------------------------------------------------------------------------------

    def upsert(self, spec: ReplicaSpec, at: float, ramps: bool, out: list[Command]) -> Replica:
        """Add a replica, or replace the facts about one. `ramps`: others serve its models, so it joins slowly."""
        known = self.replicas.get(spec.id)
        if known is None:
            health = Health(spec.id, self._health)
            account, speed = self.ledger.account(spec.id), self.speed.speed(spec)
            known = self.replicas[spec.id] = Replica(spec, account, health, speed, at)
            health.join(at, ramps, out)
        known.spec = spec
        known.capacity = spec.kv_capacity_tokens or known.capacity
        known.seats = spec.max_num_seqs or known.seats
        self.touch(known)
        return known

    def remove(self, replica_id: ReplicaId) -> list[Entry]:
        """A replica left. Returns its open attempts; its account lives until the last of them is settled."""
        gone = self.replicas.pop(replica_id, None)
        if gone is None:
            return []
        self.prefix.forget(replica_id)
        self.speed.forget(replica_id)
        self.ledger.drop(replica_id)
        return list(gone.account.entries.values())

    def touch(self, replica: Replica) -> None:
        """Something about it changed."""
        replica.fresh = False
        if not replica.queued:
            replica.queued = True
            self._changed.append(replica)

    def take_changed(self, at: float) -> list[Replica]:
        """Replicas whose view may have changed since the last call, with their views rebuilt."""
        if at - self._swept_at >= self._sweep_s:
            self._swept_at = at
            for replica in self.replicas.values():
                if replica.expires <= at:
                    self.touch(replica)
        changed = self._changed
        if changed:
            self._changed = []
            for replica in changed:
                replica.queued = False
                if not replica.fresh:
                    self._renew(replica, at)
        return changed

    def kv_errors(self) -> tuple[KvError, ...]:
        """How wrong forecasts of pools were of late, of every replica that reports its own."""
        found = (self.replicas[name].gauges.hindsight.summary(name) for name in sorted(self.replicas))
        return tuple(error for error in found if error is not None)

    # -- forecasts ---------------------------------------------------------------------------------------------

    def matches(self, request: RequestInfo) -> dict[ReplicaId, int]:
        """Leading prompt blocks believed cached, per replica."""
        hashes = request.prefix_hashes
        return self.prefix.match(hashes) if hashes else {}

    def expect(self, request: RequestInfo, model_limit: int, matches: dict[ReplicaId, int], at: float) -> Expected:
        """What is believed of a request. `model_limit`: longest context of its model, 0 if unknown."""
        prompt = self.length.prompt_tokens(request)
        hits = self._hits(request, prompt, matches) if matches else matches
        n = request.sequences
        context = prompt + self._slack * n
        if not request.generates:
            return Expected(Demand(request, prompt, 0.0, 0.0, 0, hits), _ONLY_NOW.share(context))
        limit = request.max_output_tokens
        if model_limit and (not limit or prompt + limit > model_limit):
            limit = _rounded(model_limit - prompt) if model_limit > prompt else 1
        mean, sigma, (low, middle, high), outlook = self._outlook(request, limit, n, at)
        demand = Demand(request, prompt, mean, sigma, limit * n, hits, low * n, middle * n, high * n)
        return Expected(demand, outlook.share(context))

    def _outlook(self, request: RequestInfo, limit: int, sequences: int, at: float) -> Prospect:
        """Mean, deviation, interval and survival of a new output, remembered for a moment."""
        if at - self._outlooks_at >= self._rebuild_s or len(self._outlooks) >= self._most_outlooks:
            self._outlooks.clear()
            self._outlooks_at = at
        name = self.length.name(request)
        least = request.min_output_tokens
        key = (name, limit, sequences, least)
        found = self._outlooks.get(key)
        if found is None:
            mean, sigma = self.length.forecast(name, limit, least)
            interval = self.length.interval(request.model, name, limit, least)
            alive = self.length.survival(name, 0, limit, HORIZONS, least)
            outlook = Outlook(alive, sequences, _sure(least, limit, 0))
            found = self._outlooks[key] = (mean * sequences, sigma * sequences, interval, outlook)
        return found

    def go_on(self, job: Job, prompt: int, generated: int, limit: int) -> Expected:
        """What is believed of a running request that goes on elsewhere: `generated` tokens of output have become a part
        of its `prompt`, of at most `limit` (0: no bound)."""
        request = job.request
        name, known = self.length.name(request), prompt - generated
        least = request.min_output_tokens
        mean, _ = self.length.left(name, generated, limit, least)
        alive = self.length.survival(name, generated, limit, HORIZONS, least)
        outlook = Outlook(alive, sure=_sure(least, limit, generated))
        hits = self._hits(request, known, self.matches(request))
        left = max(1, limit - generated) if limit else 0
        demand = Demand(request, prompt, mean, 0.0, left, hits)
        return Expected(demand, outlook.share(prompt + self._slack))

    def _hits(self, request: RequestInfo, prompt: int, matches: dict[ReplicaId, int]) -> dict[ReplicaId, int]:
        """Prompt tokens believed cached, per replica."""
        per_block, trust, top = self._per_block(request, prompt), self.prefix.trust, prompt - 1
        return {i: min(top, int(blocks * per_block * trust(i))) for i, blocks in matches.items()}

    def unscaled_hit(self, request: RequestInfo, prompt: int, blocks: int) -> int:
        """Cached prompt tokens by the index alone, before trust."""
        return min(prompt - 1, int(blocks * self._per_block(request, prompt))) if blocks else 0

    def _per_block(self, request: RequestInfo, prompt: int) -> float:
        return prompt * self._block_bytes / max(1, request.prompt_bytes)

    def rebuild(self, replica: Replica, at: float) -> None:
        """Forecast a replica's running batch afresh: outputs have grown, and the law of lengths has learned."""
        replica.rebuilt_at = at
        replica.speed = self.speed.speed(replica.spec)
        account = replica.account
        step = replica.speed.step_s(account.started, account.context)
        if at - self._futures_at >= self._rebuild_s or len(self._futures) >= self._most_outlooks:
            self._futures.clear()
            self._futures_at = at
        for entry in account.entries.values():
            if not entry.streams:
                self._unseen.watch(replica, entry, step, at)
            if self._foresees and entry.generates:
                self._revise(entry, account)
        if self._foresees:
            account.curve.reset([entry.share for entry in account.entries.values()])
            others = replica.gauges.foreign_tokens(account)
            replica.gauges.hindsight.foresee(at, account, others, step)
        self.touch(replica)

    def _revise(self, entry: Entry, account: Account) -> None:
        """Forecast the rest of one output. Outputs that have come equally far (but for a block, or 3 %) have one
        future, wherever they run; it is remembered for a moment."""
        names, n = entry.names, entry.sequences
        if not names[0]:
            names = entry.names = self.length.names(entry.request)
        name = self.length.closest(entry.request.model, names)
        generated, limit = (entry.base + entry.generated) // n, (entry.base + entry.limit) // n if entry.limit else 0
        generated = _rounded(generated - generated % self.memory.block_tokens)
        least = entry.request.min_output_tokens
        key = (name, generated, limit, n, least)
        future = self._futures.get(key)
        if future is None:
            mean, _ = self.length.left(name, generated, limit, least)
            alive = self.length.survival(name, generated, limit, HORIZONS, least)
            outlook = Outlook(alive, n, _sure(least, limit, generated))
            future = self._futures[key] = (round(mean * n), outlook)
        left, outlook = future
        context = entry.prompt + entry.generated + self._slack * n
        account.revise(entry, entry.generated + left, outlook.share(context))

    # -- what happens ------------------------------------------------------------------------------------------

    def sample(self, sample: LoadSample, at: float) -> Replica | None:
        """Fold a load report. None if its replica is unknown or it is outdated."""
        replica = self.replicas.get(sample.replica_id)
        if replica is None or not replica.gauges.fold(sample, replica.account, replica.capacity, self.config):
            return None
        if sample.kv_capacity_tokens and sample.kv_capacity_tokens != replica.capacity:
            replica.capacity = sample.kv_capacity_tokens
            per_token = self.length.bytes_per_token(replica.spec.model)
            self.prefix.resize(replica.id, replica.capacity, per_token)
        if sample.max_num_seqs:
            replica.seats = sample.max_num_seqs
        elif not replica.spec.max_num_seqs and sample.waiting and sample.running:
            replica.seats = max(replica.seats, sample.running)
        if at - replica.rebuilt_at >= self._rebuild_s:
            self.rebuild(replica, at)
        else:
            self.touch(replica)
        self._renew(replica, at)
        return replica

    def opened(self, replica: Replica, entry: Entry, at: float) -> None:
        """An attempt was sent."""
        self._unseen.begin(replica, at)
        self.ledger.open(entry, at)
        if not entry.streams:
            self._unseen.sent(replica, entry, at)
        hashes = entry.request.prefix_hashes
        if hashes:
            self.prefix.insert(replica.id, hashes)
        self.touch(replica)

    def first_token(self, entry: Entry, at: float) -> Replica | None:
        """A prefill is done: learn its rate."""
        replica = self.replicas.get(entry.replica_id)
        if replica is None:
            return None
        whole = entry.streams and not entry.base  # who was moved here has been prefilled in two parts
        if entry.ahead >= self.config.prefill_tokens and at > entry.dispatched_at and whole:
            self.speed.observe_prefill(replica.spec, float(entry.ahead), at - entry.dispatched_at)
            replica.answers.prefill_told_at = at
        if replica.account.decoding == 1:  # the window must not begin in a pause
            self._open_window(replica, at)
        self.touch(replica)
        return replica

    def progressed(self, replica_id: ReplicaId, at: float) -> Replica | None:
        """Streams of a replica advanced: learn its step time. Returns it if its forecast was rebuilt.

        A view is not rebuilt for this: it tells how fast its tokens grow.
        """
        replica = self.replicas.get(replica_id)
        if replica is None:
            return None
        self._learn_step(replica, at)
        if not replica.neglected(at, self._rebuild_s):
            return None
        self.rebuild(replica, at)
        self._renew(replica, at)
        return replica

    def settled(self, entry: Entry, outcome: Outcome, at: float) -> Replica | None:
        """An attempt ended: learn lengths and the cache. None if its replica is gone. What goes on elsewhere, or never
        was more than a try to move it, says nothing about lengths."""
        kind = outcome.kind
        if not (outcome.resumable or kind in GOES_ON or (entry.base and kind is OutcomeKind.CANCELLED)):
            self._learn_lengths(entry, outcome)
        replica = self.replicas.get(entry.replica_id)
        if replica is None:
            self.ledger.drop(entry.replica_id)
            return None
        if outcome.cached_tokens or replica.reports_cached:
            replica.reports_cached = True  # zero means "not reported" until it once was something
            if outcome.prompt_tokens:
                self.prefix.correct(entry.replica_id, entry.predicted_hit, outcome.cached_tokens)
        if kind is _OK and not entry.streams:
            self._unseen.answered(replica, entry, outcome, at)
        if replica.neglected(at, self._rebuild_s):
            self.rebuild(replica, at)
        self.touch(replica)
        return replica

    def _learn_lengths(self, entry: Entry, outcome: Outcome) -> None:
        request, prompt_tokens = entry.request, outcome.prompt_tokens
        if prompt_tokens:
            self.length.observe_prompt(request, prompt_tokens)
        tokens = spoken(entry, outcome)
        if entry.generates and tokens > request.min_output_tokens * entry.sequences:  # else it had no choice
            ok, demand = outcome.kind is _OK, entry.demand
            self.length.observe(request, tokens // entry.sequences or 1, outcome.hit_limit or not ok)
            if ok and demand.output_high:
                self.length.judge(request.model, not demand.output_low <= tokens <= demand.output_high)

    def _open_window(self, replica: Replica, at: float) -> None:
        replica.window_at = at
        replica.window_area = replica.account.advance(at)
        replica.window_tokens = replica.account.generated
        replica.window_prefilled = replica.account.prefilled

    def _learn_step(self, replica: Replica, at: float) -> None:
        """Each of R streams yields one token a step, so `step = request-seconds of decoding / tokens`.

        What the window went on prefill, by the prompts that were done in it and the rate that is believed, is taken
        off: a step is what decoding alone needs, or whoever prefills much would look slow.
        """
        elapsed = at - replica.window_at
        if elapsed < self.config.step_window_s:
            return
        account = replica.account
        area, tokens = account.advance(at) - replica.window_area, account.generated - replica.window_tokens
        prefilled = account.prefilled - replica.window_prefilled
        self._open_window(replica, at)
        if tokens > 0 and area > 0.0:
            view = replica.view
            running = max(area / elapsed, view.running if view else 0.0)
            context = view.context_tokens if view else float(account.context)
            filling = prefilled / replica.speed.prefill_tokens_per_s / elapsed
            if filling <= self.config.step_filling:
                self.speed.observe_step(replica.spec, running, context, area / tokens * (1.0 - filling))
                replica.answers.step_told_at = at

    # -- views -------------------------------------------------------------------------------------------------

    def _renew(self, replica: Replica, at: float) -> None:
        """Build a view, and note when the passing of time alone will change it."""
        replica.view = view = self.viewing.build(replica, at)
        replica.fresh = True
        expires, sample, avoid_until = math.inf, replica.gauges.sample, replica.health.avoid_until
        if sample is not None and not view.stale:
            expires = sample.taken_at + replica.gauges.lasts_s
        if view.slow_start < 1.0:
            expires = min(expires, at + self.config.ramp_refresh_s)
        if avoid_until > at:
            expires = min(expires, avoid_until)
        replica.expires = expires


_OK: Final = OutcomeKind.OK  # looked up once: members of an enum are slow to get at

_ONLY_NOW: Final = Outlook([1.0] + [0.0] * (len(HORIZONS) - 1), 0)
"""A request that generates nothing holds its prompt and is gone."""


def spoken(entry: Entry, outcome: Outcome) -> int:
    """Output tokens of a request when an attempt of it ended: what the body says, or what was seen if that is more."""
    seen = entry.generated if entry.first_token_at is not None else 0
    return max(entry.base + seen, outcome.output_tokens)


def _sure(least: int, limit: int, generated: int) -> int:
    """Tokens that will come for certain, of an output that has so many and cannot end before `least`."""
    return max(0, (min(least, limit) if limit else least) - generated)


def _rounded(limit: int) -> int:
    """Down to five binary digits (3 %): limits that follow from a prompt's length are all different otherwise."""
    shift = limit.bit_length() - 5
    return limit >> shift << shift if shift > 0 else limit
