import math

import msgspec
import pytest

from headway.compose.load import validate
from headway.compose.recipe import Recipe, from_header, from_settings, replay
from headway.compose.registry import find
from headway.compose.source import SettingsError, parse
from headway.core.constants import AffinityConfig, BrainConfig
from headway.core.events import Event, ReplicasChanged, RequestArrived, TimerFired
from headway.core.ids import ReplicaId, RequestId
from headway.core.replica import ReplicaSpec
from headway.core.request import RequestInfo
from headway.wire import journal

REGISTRY = find([])


def recipe(text: str = "seed: 7\n") -> Recipe:
    return from_settings(validate(parse(text, "f.yaml", {})), REGISTRY)


def events() -> list[Event]:
    specs = tuple(ReplicaSpec(ReplicaId(name), f"http://{name}", model="m", serves={"m": "m"}) for name in "abcd")
    arrivals = [
        RequestArrived(1.0 + n / 100, RequestInfo(RequestId(f"r{n:04d}"), "m", prompt_bytes=400)) for n in range(60)
    ]
    return [ReplicasChanged(0.0, specs), *arrivals, TimerFired(9.0, "unknown")]


def lines(made: Recipe) -> list[bytes]:
    brain = made.brain(REGISTRY)
    return [made.header(), *(journal.encode_entry(event, brain.handle(event)) for event in events())]


def test_the_same_recipe_survives_the_header() -> None:
    made = recipe("seed: 7\npolicy: {name: headroom, options: {tolerance: 0.3}}\nbrain: {admission: {scan: 5}}\n")
    assert from_header(journal.decode_header(made.header()), REGISTRY) == made


def test_some_constants_of_the_brain_have_a_setting_of_their_own() -> None:
    plain = recipe().config
    assert plain.health.warm_up
    assert plain.scheduler.rollout_per_minute == 0.05
    off = recipe("observe: {warm_up: false}\nrollout_per_minute: 0\nbrain: {health: {failures: 7}}\n").config
    assert not off.health.warm_up
    assert (off.health.failures, off.scheduler.rollout_per_minute) == (7, 0.0)
    assert not recipe("brain: {health: {warm_up: false}}\n").config.health.warm_up, "the constants win"
    with pytest.raises(SettingsError, match="health"):
        recipe("brain: {health: 3}\n")


def test_affinity_has_settings_of_its_own() -> None:
    assert recipe().config.affinity == AffinityConfig()
    made = recipe("affinity: {spill: 0.9, resume: 0.8, bound: 2}\nbrain: {affinity: {spare: 1}}\n").config.affinity
    assert made == AffinityConfig(spill=0.9, resume=0.8, bound=2.0, spare=1)
    assert not recipe("affinity: {enabled: false}\n").config.affinity.enabled
    with pytest.raises(SettingsError, match=r"resume 0.9 is above spill 0.85"):
        recipe("affinity: {resume: 0.9}\n")


def test_no_default_of_the_brain_is_lost_in_json() -> None:
    def numbers(value: object) -> list[float]:
        if isinstance(value, dict):
            return [n for inner in value.values() for n in numbers(inner)]
        return [value] if isinstance(value, float) else []

    assert all(math.isfinite(n) for n in numbers(msgspec.to_builtins(BrainConfig())))


@pytest.mark.parametrize("policy", sorted(REGISTRY.policies))
def test_a_journal_of_every_policy_is_reproduced(policy: str) -> None:
    made = recipe(f"seed: 7\npolicy: {policy}\n")
    assert replay(lines(made), REGISTRY) is None


def test_another_seed_is_found_out() -> None:
    written = lines(recipe("seed: 7\npolicy: random\n"))
    other = recipe("seed: 8\npolicy: random\n").header()
    mismatch = replay([other, *written[1:]], REGISTRY)
    assert mismatch is not None
    assert mismatch.recorded != mismatch.replayed


def test_without_a_seed_each_start_has_its_own() -> None:
    assert recipe("{}").seed != recipe("{}").seed


def test_a_policy_that_is_not_installed_is_named() -> None:
    header = journal.decode_header(recipe().header())
    with pytest.raises(SettingsError, match="no policy is named 'theirs'"):
        from_header(msgspec.structs.replace(header, policy="theirs"), REGISTRY)


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ("health", "failures", "-1"),
        ("health", "slow_start_s", ".nan"),
        ("retry", "ratio", "-0.5"),
        ("length", "output_mean", ".inf"),
        ("length", "bins", "0"),
        ("length", "bytes_per_token", "0"),
        ("degrade", "tick_s", "0"),
        ("migration", "tick_s", "0.0"),
        ("burst", "slow_s", "0"),
    ],
)
def test_constants_that_cannot_be_are_refused_by_name(section: str, field: str, value: str) -> None:
    with pytest.raises(SettingsError, match=rf"brain\.{section}\.{field}: "):
        recipe(f"brain: {{{section}: {{{field}: {value}}}}}\n")
