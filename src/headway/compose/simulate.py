"""Body two, assembled: policies by name become contenders with picklable makers of brains."""

import random
from collections.abc import Iterable

import msgspec

from headway.compose.load import near
from headway.compose.recipe import Recipe
from headway.compose.registry import Registry, find
from headway.core.brain import Brain
from headway.core.constants import AffinityConfig, BrainConfig, LengthConfig, MigrationConfig
from headway.core.plugin import Plugin
from headway.core.rebalance import STRATEGIES
from headway.sim.sweep import Contender
from headway.sim.tuned import TUNED

QUEUE = "+queue"
"""Suffix of a policy that is to run behind our queue."""

MOVES = "+moves"
"""Suffix of a policy whose running requests may be moved; with a name after a colon, by that strategy."""

TUNED_SUFFIX = "+tuned"
"""Suffix of a baseline that is to run with the constants we found best for it (sim/tuned)."""

SESSIONS = "+sessions"
"""Suffix of a baseline whose sessions are to keep to their replica, as they do in a gateway."""

CLAIRVOYANT = "clairvoyant"
"""The default policy with true output lengths and fresh reports: a bound, not a policy."""

_FORESEEN = LengthConfig(output_mean=1e12, shrink=1e12)
"""Every output runs into its limit, which for the clairvoyant is its true length."""


class UnknownPolicy(ValueError):
    """No policy of this name; the text lists near ones."""


class MakeBrain(msgspec.Struct, frozen=True):
    """Makes the brain of one run. `queued`: requests may be held, whatever the policy says of itself."""

    policy: str
    config: BrainConfig = BrainConfig()
    queued: bool = False
    options: bytes = b""

    def __call__(self, seed: int) -> Brain:
        """A fresh brain, the same that a gateway makes of the same recipe; equal seeds, equal chance."""
        plugin = find().policies[self.policy]
        policy = plugin.factory(self._policy_config(plugin))
        if self.queued:
            policy.binds_late = True
        return Brain(self.config, policy, random.Random(seed))

    def header(self, seed: int) -> bytes:
        """The first line of a journal of that brain. (A journal knows no `queued`.)"""
        return Recipe(self.policy, seed, self.config, self._policy_config(find().policies[self.policy])).header()

    def _policy_config(self, plugin: Plugin) -> msgspec.Struct:
        config: msgspec.Struct = (
            msgspec.json.decode(self.options, type=plugin.config) if self.options else plugin.config()
        )
        return config


def contender(name: str, config: BrainConfig | None = None, registry: Registry | None = None) -> Contender:
    """`lmetric`, `lmetric+queue`, `cache_aware+tuned`, `cache_aware+tuned+queue+sessions` or `clairvoyant`. Raises
    UnknownPolicy.

    Baselines run as published: without our queue and what goes with it (levels, bursts, a reserve), and with no regard
    to sessions, unless they are named so.
    """
    config = config or BrainConfig()
    registry = registry or find()
    if name == CLAIRVOYANT:
        foreseeing = msgspec.structs.replace(config, length=_FORESEEN)
        return Contender(name, MakeBrain("headroom", foreseeing), clairvoyant=True)
    plain, _, strategy = name.partition(MOVES)
    moves = plain != name
    if moves:
        strategy = strategy.removeprefix(":") or MigrationConfig().strategy
        if strategy not in STRATEGIES:
            raise UnknownPolicy(f"no strategy is named {strategy!r}; there are {', '.join(STRATEGIES)}")
        config = msgspec.structs.replace(config, migration=MigrationConfig(enabled=True, strategy=strategy))
    alone = plain.removesuffix(SESSIONS)
    published = alone.removesuffix(QUEUE)
    policy = published.removesuffix(TUNED_SUFFIX)
    if policy == CLAIRVOYANT:
        raise UnknownPolicy(f"{name}: {CLAIRVOYANT} is headroom with foresight and takes no suffix")
    if policy not in registry.policies:
        hint = near(policy, registry.policies) or f"; there are {', '.join(sorted(registry.policies))}"
        raise UnknownPolicy(f"no policy is named {policy!r}{hint}")
    plugin = registry.policies[policy]
    if not plugin.factory(plugin.config()).binds_late:
        config = _published(config, alone != plain, alone.endswith(QUEUE))
    options = b""
    if policy != published:
        if policy not in TUNED:
            raise UnknownPolicy(f"{policy} has no tuned constants; these have: {', '.join(sorted(TUNED))}")
        options = msgspec.json.encode(TUNED[policy])
    return Contender(name, MakeBrain(policy, config, alone.endswith(QUEUE), options), moves=moves)


def _published(config: BrainConfig, sessions: bool, queued: bool) -> BrainConfig:
    """The brain of a baseline, with nothing of ours that it is not named after."""
    replace = msgspec.structs.replace
    if not sessions:
        config = replace(config, affinity=AffinityConfig(enabled=False))
    if queued:
        return config
    return replace(
        config,
        degrade=replace(config.degrade, levels=False),
        burst=replace(config.burst, curbs=False),
        admission=replace(config.admission, reserved=0.0),
    )


def contenders(names: Iterable[str], config: BrainConfig | None = None) -> tuple[Contender, ...]:
    """All of them, the registry looked at once. Raises UnknownPolicy."""
    registry = find()
    return tuple(contender(name, config, registry) for name in names)
