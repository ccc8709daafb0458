"""Sections of the user's file for what happens under pressure: tenants, sessions, levels, bursts, moves. Defaults are
those of the brain."""

from typing import Literal

from pydantic import Field, model_validator

from headway.compose.settings_base import Count, ModelName, Positive, Rate, Seconds, SecondsOrZero, Section, Weight
from headway.core.constants import AffinityConfig, BurstConfig, DegradeConfig, MigrationConfig, RestartConfig
from headway.core.tenant import Tenant, Tier
from headway.gateway.config import Moving as _Moving

_N = Tenant("")
_D, _B, _X, _F = DegradeConfig(), BurstConfig(), RestartConfig(), AffinityConfig()
_V, _W = _Moving(), MigrationConfig()

TierName = Literal["low", "standard", "high", "critical"]
TIERS = {tier.name.lower(): int(tier) for tier in Tier}


class TenantLimits(Section):
    """What one tenant may do. 0 and empty lists mean that there is no limit."""

    tier: TierName = Field(default="standard", description="Tier of its requests that state none.")
    max_tier: TierName | None = Field(
        default=None, description="Highest tier its requests may state; empty: high, or its own if that is higher."
    )
    weight: Weight = Field(default=_N.weight, description="Share of the tokens served while others want them.")
    requests_per_s: Rate = Field(default=_N.requests_per_s, description="Requests per second.")
    tokens_per_s: Rate = Field(default=_N.tokens_per_s, description="Prompt and output tokens per second.")
    burst_s: Seconds = Field(default=_N.burst_s, description="Seconds' worth of both rates that may be used at once.")
    max_concurrent: Count = Field(default=_N.max_concurrent, description="Requests at once, held ones included.")
    kv_share: float = Field(
        default=_N.kv_share, gt=0, le=1, description="Most of a pool's KV tokens promised to its requests in flight."
    )
    models: list[ModelName] = Field(default=[], description="Models it may see and use.")
    policies: list[str] = Field(default=[], description="Policies its requests may name.")
    deadline_s: SecondsOrZero = Field(default=_N.deadline_s, description="Deadline of its requests that state none.")
    precision_floor: str = Field(default=_N.precision_floor, description="Least precision of its requests.")

    @model_validator(mode="after")
    def _tier_is_allowed(self) -> "TenantLimits":
        if self.max_tier is not None and TIERS[self.tier] > TIERS[self.max_tier]:
            raise ValueError(f"max_tier {self.max_tier} is below its own tier, {self.tier}")
        return self


class Affinity(Section):
    """Sessions (a header, a conversation, a cache key or a user) keep to one replica, where their prefix is cached."""

    enabled: bool = Field(default=_F.enabled, description="False: the policy alone decides, session or not.")
    spill: float = Field(
        default=_F.spill, gt=0, le=1, description="Used share of its KV pool above which a replica's sessions go on."
    )
    resume: float = Field(
        default=_F.resume, gt=0, le=1, description="Share below which it takes them back; not above `spill`."
    )
    bound: float = Field(
        default=_F.bound,
        gt=1,
        allow_inf_nan=False,
        description="What is not easy for a replica also goes on while it has so many times the mean of requests.",
    )

    @model_validator(mode="after")
    def _resumes_below(self) -> "Affinity":
        if self.resume > self.spill:
            raise ValueError(f"resume {self.resume:g} is above spill {self.spill:g}")
        return self


class Burst(Section):
    """When requests suddenly come much faster than they did. That is always seen and shown; here is what it costs."""

    curbs: bool = Field(
        default=_B.curbs,
        description="During a burst, cap the output of every request and leave out logprobs; response headers say so.",
    )
    max_tokens: Positive = Field(default=_B.max_tokens, description="Most output tokens of a request meanwhile.")
    times: float = Field(
        default=_B.enter, gt=1, allow_inf_nan=False, description="A burst is so many times the usual rate, or more."
    )


class RestartHook(Section):
    """What restarts an engine that is dead: a program, or a URL that is posted to. Without either, nothing does."""

    command: list[str] = Field(
        default=[],
        description="Program and arguments, run without a shell; {replica}, {url} and {reason} are filled in.",
    )
    url: str = Field(
        default="", pattern="^(https?://.+)?$", description="URL that is posted to instead, with all three."
    )
    after_s: Seconds = Field(default=_X.after_s, description="How long a replica has to be dead before.")
    every_s: Seconds = Field(
        default=_X.every_s, description="Least time between two restarts of a replica; twice as long after each."
    )
    timeout_s: Seconds = Field(default=30.0, description="How long the hook may take.")

    @model_validator(mode="after")
    def _one_of_them(self) -> "RestartHook":
        if self.command and self.url:
            raise ValueError("give a command or a url, one of them")
        return self


class Degradation(Section):
    """What a model's pool gives up when it is overloaded or its replicas die."""

    levels: bool = Field(
        default=_D.levels,
        description="Refuse new sessions (level 1), shed low priority (level 2), use fallbacks (level 4).",
    )
    fallback: dict[ModelName, ModelName] = Field(
        default={}, description="Model -> model that answers instead while half of its replicas are out of use."
    )
    burst: Burst = Field(default=Burst(), description="What a sudden rush of requests costs them.")
    restart: RestartHook = Field(default=RestartHook(), description="What restarts an engine that is dead.")

    @model_validator(mode="after")
    def _fallbacks_differ(self) -> "Degradation":
        same = next((model for model, other in self.fallback.items() if model == other), None)
        if same is not None:
            raise ValueError(f"fallback: {same} cannot stand in for itself")
        return self


class Migration(Section):
    """Moving requests while they run: out of full replicas, away for urgent ones, off replicas that drain or die."""

    enabled: bool = Field(
        default=_W.enabled,
        description="Whether it is done. Streams of chats and completions then ask engines for token ids, which "
        "clients do not see; docs/migration.md says which requests can move.",
    )
    models: list[ModelName] = Field(default=[], description="Models whose requests may move; empty: all.")
    strategy: Literal["balanced", "latency", "throughput", "plain"] = Field(
        default="balanced",
        description="What is worth a move: see docs/migration.md. plain: never balance, only evict what matters least.",
    )
    dry_run: bool = Field(
        default=_W.dry_run, description="Only report which moves would be made; dead replicas' requests still go on."
    )
    plain: bool = Field(
        default=_V.plain,
        description="Whether requests that do not stream may move, too: their engines are asked for a stream, which is "
        "given to the client as one answer. docs/migration.md says how such an answer differs.",
    )
    hold_s: Seconds = Field(
        default=_V.hold_s, le=30, description="How long a stream may be held back for the moment it changes replicas."
    )
    warm_s: Seconds = Field(
        default=_V.warm_s, description="How long the other replica may take to read what there is before that."
    )
    handover_s: SecondsOrZero = Field(
        default=_V.handover_s,
        le=30,
        description="How long a stream may stand still while engines hand its KV over (replicas[].kv_domain) instead "
        "of computing it again; 0: they never do.",
    )
    keepalive_s: SecondsOrZero = Field(
        default=_V.keepalive_s,
        description="A client whose stream waits for a replica gets a comment this often; 0: it does not.",
    )
