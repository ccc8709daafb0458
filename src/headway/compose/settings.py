"""The user's file as a pydantic model: every field named, described and bounded. Nothing is done here.

Sections for the data plane are in `settings_traffic`, those for what happens under pressure in `settings_pressure`.
Defaults live where they are used, so that errors and the JSON schema speak the user's language and say what is true.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from headway.compose.keyfile import NAME
from headway.compose.settings_base import LARGEST, Count, ModelName, Port, Section, Weight
from headway.compose.settings_pressure import Affinity, Degradation, Migration, TenantLimits
from headway.compose.settings_traffic import Batching, Cors, Limits, Listen, Requests, Timeouts, Upstream
from headway.compose.texts import hosts
from headway.coordinate.validate import leads_to, replica_url

TenantName = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
ANY_HOST = frozenset({"0.0.0.0", "[::]"})


class Admin(Section):
    """Where operators connect: health, metrics, fleet, explanations, registration."""

    enabled: bool = Field(default=True, description="False opens no admin port at all.")
    host: str = Field(
        default="127.0.0.1", min_length=1, description="Address to bind. Anything but loopback needs a token."
    )
    port: Port = Field(default=8801, description="Port of the admin API.")
    token: SecretStr | None = Field(
        default=None, description="Bearer token that every route but health needs when set."
    )
    token_file: Path | None = Field(
        default=None, description="File that holds the token; a trailing newline is dropped."
    )


class Replica(Section):
    """One serving engine. A plain URL is enough: engine, model and sizes are detected."""

    url: str = Field(description="http(s) URL of the engine, with a path prefix if it has one; without /v1.")
    engine: str = Field(
        default="auto", description="Dialect of the engine (vllm, sglang, llamacpp ...), auto to detect it."
    )
    model: str = Field(default="", description="Name of the model it serves; detected when empty.")
    serves: dict[ModelName, ModelName] = Field(
        default={}, description="Further names clients may use -> name this engine knows."
    )
    api_key: SecretStr | None = Field(default=None, description="Key sent to this engine as a bearer token.")
    api_key_file: Path | None = Field(
        default=None, description="File that holds the key; a trailing newline is dropped."
    )
    labels: dict[str, str] = Field(default={}, description="Free labels, for people and for joining device metrics.")
    weight: Weight = Field(default=1.0, description="Share of the load relative to its peers.")
    version: str = Field(default="", description="Version of the model; replicas of one pool must agree.")
    precision: str = Field(
        default="",
        description="Precision it is served in, such as bf16 or fp8; empty: as the engine or the model's name says.",
    )
    gpu: str = Field(default="", description="Kind of GPU, such as h100-80gb: prior of the learned speed.")
    gpu_count: int = Field(default=1, ge=1, le=1024, description="GPUs of this replica.")
    kv_capacity_tokens: Count = Field(default=0, description="Size of the KV pool for engines that do not report it.")
    max_model_tokens: Count = Field(default=0, description="Longest context it accepts; 0: detect.")
    max_num_seqs: Count = Field(default=0, description="Most sequences it runs at once; 0: detect.")
    metrics: bool | None = Field(
        default=None, description="False: the engine has no load report; empty: ask the dialect."
    )
    kv_domain: str = Field(
        default="",
        description="Replicas of one name can hand KV over to each other, and do where migration is enabled: llama.cpp "
        "with one folder as --slot-save-path (and no other users), vLLM with a NixlConnector. See docs/migration.md.",
    )


class Policy(Section):
    """How replicas are ranked."""

    name: str = Field(default="headroom", description="Name of a policy: `headway check --list` shows all.")
    options: dict[str, Any] = Field(default={}, description="Constants of that policy.")
    others: list[str] = Field(
        default=[], description="Further policies that requests may ask for by header; those of tenants are added."
    )


class Observe(Section):
    """Watching the fleet."""

    interval_s: float = Field(
        default=0.5,
        ge=0.02,
        allow_inf_nan=False,
        description="Seconds between two load reports of a replica (with jitter).",
    )
    dcgm_exporters: list[Annotated[str, Field(pattern="^https?://.+")]] = Field(
        default=[], description="URLs of DCGM exporters' metrics pages, joined to replicas by label."
    )
    warm_up: bool = Field(
        default=True,
        description="Have an engine generate one token after it was started or woken, before clients use it.",
    )
    discover: bool = Field(default=False, description="Also look for engines on localhost at their usual ports.")


class Logging(Section):
    """Log lines on standard error."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severity that is written."
    )
    format: Literal["auto", "text", "json"] = Field(
        default="auto", description="auto: text on a terminal, JSON elsewhere."
    )
    access: bool = Field(default=True, description="One line per request.")


def _as_replica(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


def _as_policy(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _as_names(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[ModelName], BeforeValidator(_as_names), Field(min_length=1)]


class Settings(Section):
    """The whole of `headway.yaml`. Every section may be left out."""

    listen: Listen = Listen()
    admin: Admin = Admin()
    replicas: list[Annotated[Replica, BeforeValidator(_as_replica)]] = Field(
        default=[], description="Serving engines: URLs, or maps with more."
    )
    policy: Annotated[Policy, BeforeValidator(_as_policy)] = Policy()
    models: dict[ModelName, Names] = Field(
        default={},
        description="Alias -> model names, most wanted first; each replica gets the first of them that it serves "
        "(names that engines know: an alias of an alias is not followed). The "
        "alias stands for the precision of the most wanted; requests get less only if they say so.",
    )
    keys_file: Path | None = Field(
        default=None,
        description="File of clients' API keys, made by `headway keys`: with it, whoever shows no key is refused.",
    )
    tenants: dict[TenantName, TenantLimits] = Field(
        default={}, description="Tenant -> its limits. A key's tenant that is not listed has none."
    )
    rollout_per_minute: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of a model's requests that a version registered later gets at once, and again each minute; "
        "0: all of them, at once.",
    )
    batching: dict[ModelName, Batching] = Field(
        default={},
        description="Model -> how its embeddings and one-prompt completions are merged, for engines that do not batch.",
    )
    upstream: Upstream = Upstream()
    requests: Requests = Requests()
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    cors: Cors = Cors()
    observe: Observe = Observe()
    affinity: Affinity = Affinity()
    degradation: Degradation = Degradation()
    migration: Migration = Migration()
    logging: Logging = Logging()
    tokenizers: dict[ModelName, Path] = Field(
        default={},
        description="Model -> the engine's own tokenizer.json, to count prompts by it. Needs `headway[tokenizers]`.",
    )
    brain: dict[str, Any] = Field(default={}, description="Constants of the brain, nested by module; rarely needed.")
    journal: Path | None = Field(default=None, description="Write every event and command here, for `headway verify`.")
    seed: int | None = Field(
        default=None,
        ge=0,
        le=LARGEST,
        description="Seed of the brain's chance; by default a fresh one, which is logged.",
    )

    @model_validator(mode="after")
    def _keys_fit(self) -> "Settings":
        if self.tenants and self.keys_file is None:
            raise ValueError("tenants: needs keys_file, for without keys nobody can be told apart")
        if self.keys_file is not None and self.upstream.forward_authorization:
            raise ValueError("upstream.forward_authorization: would show engines the keys of keys_file")
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> "Settings":
        listen, admin = self.listen, self.admin
        ours, theirs = ({h.replace("localhost", "127.0.0.1") for h in hosts(each.host)} for each in (admin, listen))
        shared = ours & theirs or (ours | theirs) & ANY_HOST
        if admin.enabled and listen.port and listen.port == admin.port and shared:
            raise ValueError(f"admin.port: {admin.port} is the port of clients (listen.port), too: choose another")
        return self

    @model_validator(mode="after")
    def _aliases_lead_somewhere(self) -> "Settings":
        only = {alias: names[0] for alias, names in self.models.items() if len(names) == 1}
        for alias in only:
            seen, name = [alias], only[alias]
            while name in only and name not in seen:
                seen.append(name)
                name = only[name]
            if name == alias:
                raise ValueError(f"models.{alias}: leads back to itself ({' -> '.join([*seen, name])})")
        return self

    @model_validator(mode="after")
    def _no_replica_twice(self) -> "Settings":
        urls = [replica_url(replica.url) for replica in self.replicas]
        twice = sorted({url for url in urls if isinstance(url, str) and urls.count(url) > 1})
        if twice:
            raise ValueError(f"replicas: {twice[0]} is listed twice")
        for url in urls:
            if isinstance(url, str) and leads_to(url, self.listen.host, self.listen.port):
                raise ValueError(
                    f"replicas: {url} is this gateway's own address (listen.port): requests would go round"
                )
        return self
