"""What a brain is made of besides events. The gateway starts from it, a journal begins with it, `verify` repeats it."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from headway.compose.load import convert, near
from headway.compose.registry import Registry
from headway.compose.settings import Settings
from headway.compose.settings_pressure import Degradation
from headway.compose.source import Problem, SettingsError
from headway.core.brain import Brain
from headway.core.constants import BrainConfig
from headway.core.plugin import Plugin, Policy
from headway.wire import journal


class Recipe(msgspec.Struct, frozen=True):
    """A policy by name with its config, the brain's config, and the seed of its chance. `others`: policies that
    requests may ask for, with their own constants."""

    policy: str
    seed: int
    config: BrainConfig
    policy_config: msgspec.Struct
    others: tuple[str, ...] = ()

    def header(self) -> bytes:
        """The first line of a journal."""
        return journal.encode_header(self.policy, self.seed, self.config, self.policy_config, self.others)

    def brain(self, registry: Registry) -> Brain:
        """A fresh brain."""
        policy = registry.policies[self.policy].factory(self.policy_config)
        others = [_made(name, registry) for name in self.others]
        return Brain(self.config, policy, random.Random(self.seed), others)


def from_settings(settings: Settings, registry: Registry) -> Recipe:
    """Raises SettingsError for unknown policies and constants. Without a seed in the settings, a fresh one."""
    seed = settings.seed if settings.seed is not None else random.SystemRandom().getrandbits(32)
    plugin = _policy(settings.policy.name, registry)
    options: Mapping[str, Any] = settings.policy.options
    policy_config = convert(dict(options), plugin.config, ("policy", "options"))
    for name in settings.policy.others:
        _policy(name, registry, "others")
    asked = {name for limits in settings.tenants.values() for name in limits.policies} | set(settings.policy.others)
    others = tuple(sorted((asked - {plugin.name}) & registry.policies.keys()))
    return Recipe(plugin.name, seed, convert(_brain(settings), BrainConfig, ("brain",)), policy_config, others)


def _brain(settings: Settings) -> dict[str, Any]:
    """The brain's constants: as written under `brain`, over those that have a setting of their own."""
    own: dict[str, dict[str, Any]] = {
        "health": {"warm_up": settings.observe.warm_up},
        "scheduler": {"rollout_per_minute": settings.rollout_per_minute},
        "affinity": settings.affinity.model_dump(),
        "migration": settings.migration.model_dump(include={"enabled", "strategy", "dry_run"}),
        **_degradation(settings.degradation),
    }
    for name, section in settings.brain.items():
        own[name] = {**own.get(name, {}), **section} if isinstance(section, dict) else section
    return own


def _degradation(section: Degradation) -> dict[str, dict[str, Any]]:
    burst, hook = section.burst, section.restart
    return {
        "degrade": {"levels": section.levels, "fallbacks": section.fallback},
        "burst": {"curbs": burst.curbs, "max_tokens": burst.max_tokens, "enter": burst.times},
        "restart": {
            "enabled": bool(hook.command or hook.url),
            "after_s": hook.after_s,
            "every_s": hook.every_s,
        },
    }


def from_header(header: journal.Header, registry: Registry) -> Recipe:
    """Raises SettingsError for a policy that is not installed, msgspec.DecodeError for configs of another shape."""
    plugin = _policy(header.policy, registry)
    config = msgspec.json.decode(header.config, type=BrainConfig)
    policy_config = msgspec.json.decode(header.policy_config, type=plugin.config)
    return Recipe(plugin.name, header.seed, config, policy_config, header.others)


def replay(lines: Iterable[bytes], registry: Registry) -> journal.Mismatch | None:
    """Repeat a journal; the first difference, or None. Raises JournalError, SettingsError or msgspec.DecodeError."""
    return journal.replay(lines, lambda header: from_header(header, registry).brain(registry))


def _made(name: str, registry: Registry) -> Policy:
    plugin = _policy(name, registry)
    policy: Policy = plugin.factory(plugin.config())
    return policy


def _policy(name: str, registry: Registry, field: str = "name") -> Plugin:
    plugin = registry.policies.get(name)
    if plugin is None:
        hint = near(name, registry.policies) or f"; there are {', '.join(sorted(registry.policies))}"
        raise SettingsError("settings", [Problem(("policy", field), f"no policy is named {name!r}{hint}")])
    return plugin
