"""How long prompts and outputs are: bytes per token of prompts, and whose output lengths follow which law.

Both are learned from what engines report. Output lengths are learned per tenant and template (the first block of the
prompt, mostly a system prompt), per template, per model and fleet-wide. Whoever is little known leans on the next wider
one, with the weight of `shrink` observations; the fleet leans on the prior. Laws are rebuilt lazily, because they are
asked far more often than they change. Nothing here knows replicas or time.

Every forecast has an interval that is to hold nine in ten outputs. A law is never quite right, so what is aimed at is
moved by what is missed (Gibbs and Candes, Adaptive conformal inference, NeurIPS 2021): in the long run the share is
kept whatever the lengths do.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import exp
from typing import Final

from headway.core.constants import LengthConfig
from headway.core.law import Counts, Law
from headway.core.request import RequestInfo

_NO_LIMIT: Final = 1 << 60


class _Ratio:
    """Bytes and tokens of prompts seen, as decayed sums."""

    __slots__ = ("bytes", "tokens")

    def __init__(self) -> None:
        self.bytes = 0.0
        self.tokens = 0.0

    def add(self, prompt_bytes: float, tokens: float, memory: float) -> None:
        """Count one prompt; beyond `memory` tokens the past is halved."""
        self.bytes += prompt_bytes
        self.tokens += tokens
        if self.tokens > memory:
            self.bytes /= 2
            self.tokens /= 2


class _Model:
    """What is known of one model (or of the fleet). `alpha`: the share of outputs that its intervals aim to miss.
    `template`: what prompts have beyond their counted texts, by so many `counted` ones."""

    __slots__ = ("alpha", "counted", "counts", "ratio", "template")

    def __init__(self, config: LengthConfig) -> None:
        self.counts = Counts(config.bins)
        self.ratio = _Ratio()
        self.alpha = config.miss
        self.template = 0.0
        self.counted = 0

    def add_counted(self, beyond: float, config: LengthConfig) -> None:
        """What one prompt had beyond its counted texts. One that is far off (a sampled one) moves it a little only."""
        self.counted = min(self.counted + 1, config.template_memory)
        off = max(-config.template_step, min(config.template_step, beyond - self.template))
        self.template += off / self.counted


class _Group:
    """Outputs of one template, or of one tenant with it. `wider`: the name of what it leans on."""

    __slots__ = ("counts", "leaned_on", "wider")

    def __init__(self, bins: int, wider: str) -> None:
        self.counts = Counts(bins)
        self.wider = wider
        self.leaned_on: Law | None = None


def _edges(bins: int, growth: float) -> tuple[int, ...]:
    edges = [0]
    for _ in range(bins):
        edges.append(max(edges[-1] + 1, round(edges[-1] * growth)))
    return tuple(edges)


class LengthModel:
    """What is known about lengths, fleet-wide and per model."""

    def __init__(self, config: LengthConfig | None = None) -> None:
        self._config = c = config or LengthConfig()
        self._edges = edges = _edges(c.bins, c.growth)
        ends = [1.0 - exp((a - b) / c.output_mean) for a, b in pairwise(edges)]
        self._prior = Law(edges, ends)
        self._fleet = _Model(c)
        self._models: dict[str, _Model] = {}
        self._groups: dict[str, _Group] = {}
        self._seen: dict[str, int] = {}  # outputs of those that are no group yet
        self._latest: tuple[str | None, _Model] = (None, self._fleet)  # the last of them
        self._longest_token = c.max_bytes_per_token
        self._prior_bytes_per_token, self._prior_tokens = c.bytes_per_token, c.prior_prompt_tokens
        self._prompt_weight_tokens = c.prompt_weight_tokens
        self._miss, self._miss_step = c.miss, c.miss_step
        self._memory = c.memory

    def prompt_tokens(self, request: RequestInfo) -> int:
        """Prompt tokens: exact if given, else its counted texts and what the template adds, else bytes over the model's
        learned ratio; plus media; at least 1."""
        exact, counted = request.prompt_tokens, request.counted_tokens
        if exact:
            return exact
        if counted:
            known = self._models.get(request.model)
            beyond = round(known.template) if known else 0
            return max(1, counted + beyond) + request.media_tokens
        return round(request.prompt_bytes / self.bytes_per_token(request.model)) + request.media_tokens or 1

    def prompt_tokens_at_least(self, request: RequestInfo) -> int:
        """A lower bound that is safe to refuse a request on: exact if given, else as if each token were as long as
        tokens get. Media may weigh anything, hence nothing."""
        return request.prompt_tokens or max(1, int(request.prompt_bytes / self._longest_token))

    def bytes_per_token(self, model: str) -> float:
        """Prompt bytes per token of a model: its own usage, leaning on the fleet's, leaning on the prior (by so many
        tokens each)."""
        weight, fleet = self._prior_tokens, self._fleet.ratio
        base = (fleet.bytes + self._prior_bytes_per_token * weight) / (fleet.tokens + weight)
        known = self._models.get(model)
        return (known.ratio.bytes + base * weight) / (known.ratio.tokens + weight) if known else base

    def observe_prompt(self, request: RequestInfo, prompt_tokens: int) -> None:
        """Learn from the engine's own count. Prompts sent as token ids or with media say nothing about text."""
        prompt_bytes = request.prompt_bytes
        if prompt_tokens <= 0 or prompt_bytes <= 0 or request.prompt_tokens or request.media_tokens:
            return
        ratio = prompt_bytes / prompt_tokens
        if prompt_tokens >= 64:  # shorter ones are mostly template
            longest = 1.25 * ratio
            if longest > self._longest_token:
                self._longest_token = longest
        most = self._prompt_weight_tokens
        tokens = float(prompt_tokens) if prompt_tokens < most else most
        self._fleet.ratio.add(ratio * tokens, tokens, 64 * most)
        known = self._known(request.model)
        known.ratio.add(ratio * tokens, tokens, 64 * most)
        if request.counted_tokens:
            known.add_counted(prompt_tokens - request.counted_tokens, self._config)

    def name(self, request: RequestInfo) -> str:
        """The closest thing whose outputs are known well enough to be asked about: tenant and template, template, or
        model."""
        return self.closest(request.model, self.names(request)) if self._groups else request.model

    def names(self, request: RequestInfo) -> tuple[str, str]:
        """Of its template, and of its tenant with that template: the same where there is no tenant."""
        hashes, tenant = request.prefix_hashes, request.tenant
        template = f"{request.model}\x1f{hashes[0]}" if hashes else f"{request.model}\x1f"
        return template, f"{template}\x1f{tenant}" if tenant else template

    def closest(self, model: str, names: tuple[str, str]) -> str:
        """The same as `name`, of one whose `names` are known."""
        groups = self._groups
        template, tenant = names
        return tenant if tenant in groups else template if template in groups else model

    def forecast(self, name: str, limit: int, least: int = 0) -> tuple[float, float]:
        """Mean and sigma of the output tokens of a request about to run, cut off at `limit` (0 = none) and no fewer
        than `least`. `name`: see there; a model's name will do."""
        if least:
            mean, variance = self.left(name, 0, limit, least)
            return mean, variance**0.5
        law = self._law(name)
        found = law.forecasts.get(limit)
        if found is None:
            mean, variance = law.left(0, limit)
            found = (mean, variance**0.5)
            if len(law.forecasts) >= self._config.max_limits:
                law.forecasts.clear()
            law.forecasts[limit] = found
        return found

    def interval(self, model: str, name: str, limit: int, least: int = 0) -> tuple[int, int, int]:
        """Output tokens that are hardly undercut, as likely exceeded as not, and hardly exceeded; arguments as for
        `forecast`."""
        known = self._models.get(model, self._fleet)
        law, miss = self._law(name), known.alpha / 2
        if least:
            start = law.clamp(least)
            low, middle, high = [least - start + law.quantile_beyond(start, p) for p in (miss, 0.5, 1.0 - miss)]
        else:
            low, middle, high = law.quantile(miss), law.quantile(0.5), law.quantile(1.0 - miss)
        return (min(low, limit), min(middle, limit), min(high, limit)) if limit else (low, middle, high)

    def observe(self, request: RequestInfo, tokens: int, censored: bool) -> None:
        """Learn from the output of a request: for all that it belongs to."""
        model = request.model
        self.observe_output(model, tokens, censored)
        if tokens <= 0:
            return
        template, tenant = self.names(request)
        self._observe_group(template, model, tokens, censored)
        if request.tenant:
            self._observe_group(tenant, template if template in self._groups else model, tokens, censored)

    def judge(self, model: str, missed: bool) -> None:
        """Whether an output fell outside of its interval: aim wider or narrower."""
        known = self._known(model)
        alpha = known.alpha + self._miss_step * (self._miss - missed)
        known.alpha = min(max(alpha, self._miss / 50), 0.5)

    def observe_output(self, model: str, tokens: int, censored: bool) -> None:
        """Learn from an ended output of `tokens`, for the model and the fleet. `censored`: it was cut short
        (max_tokens, cancel), so it would have become longer."""
        if tokens <= 0:
            return
        k, cut, passed = self._bin(tokens, censored)
        memory = self._memory
        self._fleet.counts.add(k, cut, passed, memory)
        self._known(model).counts.add(k, cut, passed, memory)

    def left(self, name: str, generated: int, limit: int, least: int = 0) -> tuple[float, float]:
        """Mean and variance of the output tokens still to come, given that `generated` came and it did not end, and
        that it will not before `least`. (0, 0) when the limit is reached."""
        sure = max(0, least - generated)
        known = generated + sure
        if limit and known >= limit:
            return (float(max(0, limit - generated)), 0.0)
        law = self._law(name)
        start = law.clamp(known)
        mean, variance = law.left(start, start + limit - known if limit else 0)
        return (sure + mean, variance)

    def survival(self, name: str, generated: int, limit: int, ahead: Sequence[int], least: int = 0) -> Sequence[float]:
        """P(still running after `ahead` more tokens, in ascending order), given what `left` is given; one for each."""
        law, room, sure = self._law(name), limit - generated if limit else _NO_LIMIT, least - generated
        if sure <= 0:
            return law.outlive(law.clamp(generated), ahead, room)
        sure = min(sure, room)
        certain = bisect_left(ahead, sure)
        later = law.outlive(law.clamp(generated + sure), [a - sure for a in ahead[certain:]], room - sure)
        return [1.0] * certain + later

    def _bin(self, tokens: int, censored: bool) -> tuple[int, bool, float]:
        """Bin k holds edges[k] < tokens <= edges[k + 1]; of a bin in which it was cut, an output has passed a part."""
        edges = self._edges
        after = bisect_right(edges, tokens - 1, 0, len(edges) - 1)
        near = edges[after - 1]
        passed = min(1.0, (tokens - near) / (edges[after] - near)) if censored else 0.0
        return after - 1, censored, passed

    def _observe_group(self, name: str, wider: str, tokens: int, censored: bool) -> None:
        """Names come from outside, and most are never seen again: a group is made for those that come back, and the one
        not seen for longest makes room."""
        config, group = self._config, self._groups.pop(name, None)
        if group is None:
            count = self._seen.pop(name, 0) + 1
            if count < config.group_outputs:
                self._seen[name] = count
                if len(self._seen) > config.max_seen:
                    del self._seen[next(iter(self._seen))]
                return
            group = _Group(config.bins, wider)
            if len(self._groups) >= config.max_groups:
                del self._groups[next(iter(self._groups))]
        self._groups[name] = group
        group.wider = wider
        k, cut, passed = self._bin(tokens, censored)
        group.counts.add(k, cut, passed, self._memory)

    def _known(self, model: str) -> _Model:
        """The entry of a model, made if need be, moved behind all others; the one not seen for longest makes room."""
        name, known = self._latest
        if name == model:
            return known
        found = self._models.pop(model, None)
        if found is None:
            found = _Model(self._config)
            if len(self._models) >= self._config.max_models:
                del self._models[next(iter(self._models))]
        self._models[model] = found
        self._latest = (model, found)
        return found

    def _law(self, name: str) -> Law:
        known = self._models.get(name)
        if known is not None:
            return known.counts.current() or known.counts.rebuild(self._fleet_law(), self._config.shrink)
        group = self._groups.get(name)
        return self._fleet_law() if group is None else self._group_law(group)

    def _group_law(self, group: _Group) -> Law:
        """A group may be known for long by a few outputs only: its law is made anew also when what it leans on was."""
        law, wider = group.counts.current(), self._law(group.wider)
        if law is None or group.leaned_on is not wider:
            group.leaned_on = wider
            law = group.counts.rebuild(wider, self._config.shrink)
        return law

    def _fleet_law(self) -> Law:
        counts = self._fleet.counts
        return counts.current() or counts.rebuild(self._prior, self._config.shrink)
