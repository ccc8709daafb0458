"""What a user may set, as pydantic models: one section each, every field described. Nothing is done here.

Defaults of the data plane live in `gateway.config`, those of the brain in its own config; this file only names,
describes and bounds them, so that errors and the JSON schema speak the user's language.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from headway.compose.keyfile import NAME
from headway.compose.texts import HeaderName, HeaderText, ReadHeader, RoutePath
from headway.core.constants import AffinityConfig, BurstConfig, DegradeConfig, MigrationConfig, RestartConfig
from headway.core.tenant import Tenant, Tier
from headway.gateway.config import INFERENCE_PATHS
from headway.gateway.config import Batching as _Batching
from headway.gateway.config import Cors as _Cors
from headway.gateway.config import GatewayConfig as _Gateway
from headway.gateway.config import Limits as _Limits
from headway.gateway.config import Moving as _Moving
from headway.gateway.config import Timeouts as _Timeouts

_L, _T, _C, _G, _M = _Limits(), _Timeouts(), _Cors(), _Gateway(), _Batching()
_N = Tenant("")
_D, _B, _X, _F = DegradeConfig(), BurstConfig(), RestartConfig(), AffinityConfig()
_V, _W = _Moving(), MigrationConfig()

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Bytes = Annotated[int, Field(gt=0)]
TierName = Literal["low", "standard", "high", "critical"]
TenantName = Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
TIERS = {tier.name.lower(): int(tier) for tier in Tier}


class Section(BaseModel):
    """A part of the file. Unknown keys are errors: a misspelt setting must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


class ServerTls(Section):
    """Certificate of the data port."""

    cert_file: Path = Field(description="PEM file with the certificate chain.")
    key_file: Path = Field(description="PEM file with the private key.")
    client_ca_file: Path | None = Field(
        default=None, description="When set, clients must show a certificate signed by it."
    )


class ClientTls(Section):
    """How Headway checks, and identifies itself to, replicas behind https URLs."""

    ca_file: Path | None = Field(default=None, description="PEM file of trusted authorities, instead of the system's.")
    cert_file: Path | None = Field(
        default=None, description="PEM file with our certificate for engines that ask for one."
    )
    key_file: Path | None = Field(default=None, description="PEM file with its private key.")
    verify: bool = Field(default=True, description="False accepts any certificate. Only for tests.")


class Listen(Section):
    """Where clients connect."""

    host: str = Field(default=_G.host, description="Address to bind; 0.0.0.0 or :: for every interface.")
    port: Port = Field(default=_G.port, description="Port of the data plane.")
    backlog: int = Field(default=_G.backlog, ge=1, description="Connections the kernel may hold for us.")
    tls: ServerTls | None = Field(default=None, description="Serve https instead of http.")


class Admin(Section):
    """Where operators connect: health, metrics, fleet, explanations, registration."""

    enabled: bool = Field(default=True, description="False opens no admin port at all.")
    host: str = Field(default="127.0.0.1", description="Address to bind. Anything but loopback needs a token.")
    port: Port = Field(default=8801, description="Port of the admin API.")
    token: SecretStr | None = Field(
        default=None, description="Bearer token that every route but health needs when set."
    )
    token_file: Path | None = Field(
        default=None, description="File that holds the token; a trailing newline is dropped."
    )


class Replica(Section):
    """One serving engine. A plain URL is enough: engine, model and sizes are detected."""

    url: str = Field(description="http(s) URL of the engine, with a path prefix if it has one.")
    engine: str = Field(
        default="auto", description="Dialect of the engine (vllm, sglang, llamacpp ...), auto to detect it."
    )
    model: str = Field(default="", description="Name of the model it serves; detected when empty.")
    serves: dict[str, str] = Field(default={}, description="Further names clients may use -> name this engine knows.")
    api_key: SecretStr | None = Field(default=None, description="Key sent to this engine as a bearer token.")
    api_key_file: Path | None = Field(
        default=None, description="File that holds the key; a trailing newline is dropped."
    )
    labels: dict[str, str] = Field(default={}, description="Free labels, for people and for joining device metrics.")
    weight: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Share of the load relative to its peers."
    )
    version: str = Field(default="", description="Version of the model; replicas of one pool must agree.")
    precision: str = Field(
        default="",
        description="Precision it is served in, such as bf16 or fp8; empty: as the engine or the model's name says.",
    )
    gpu: str = Field(default="", description="Kind of GPU, such as h100-80gb: prior of the learned speed.")
    gpu_count: int = Field(default=1, ge=1, description="GPUs of this replica.")
    kv_capacity_tokens: int = Field(
        default=0, ge=0, description="Size of the KV pool for engines that do not report it."
    )
    max_model_tokens: int = Field(default=0, ge=0, description="Longest context it accepts; 0: detect.")
    max_num_seqs: int = Field(default=0, ge=0, description="Most sequences it runs at once; 0: detect.")
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


class Limits(Section):
    """Bounds on what one client may send, each with the status that says so."""

    max_head_bytes: Bytes = Field(default=_L.max_head_bytes, description="Request line and headers together (431).")
    max_uri_bytes: Bytes = Field(default=_L.max_uri_bytes, description="Request target (414).")
    max_headers: int = Field(default=_L.max_headers, gt=0, description="Header lines (431).")
    max_body_bytes: Bytes = Field(default=_L.max_body_bytes, description="Request body (413).")
    head_timeout_s: Seconds = Field(
        default=_L.head_timeout_s, description="From first byte to the end of the head (408)."
    )
    body_timeout_s: Seconds = Field(default=_L.body_timeout_s, description="Silence while a body is owed (408).")
    min_body_bytes_per_s: int = Field(default=_L.min_body_bytes_per_s, ge=0, description="Slower bodies are cut (408).")
    keepalive_timeout_s: Seconds = Field(
        default=_L.keepalive_timeout_s, description="Idle client connections are closed."
    )
    buffered_body_bytes: Bytes = Field(default=_L.buffered_body_bytes, description="Bodies held by all requests (503).")
    write_high_water_bytes: Bytes = Field(
        default=_L.write_high_water_bytes, description="Unsent bytes that stop reading."
    )
    max_connections: int = Field(
        default=_L.max_connections,
        ge=0,
        description="Clients at once; more are closed. 0: as many as the limit on open files has room for.",
    )


class Timeouts(Section):
    """Patience with engines."""

    connect_s: Seconds = Field(default=_T.connect_s, description="To open a connection.")
    first_byte_s: Seconds = Field(
        default=_T.first_byte_s, description="From the request to the first byte of its answer."
    )
    idle_s: Seconds = Field(default=_T.idle_s, description="Silence between two pieces of an answer.")
    pool_idle_s: Seconds = Field(default=_T.pool_idle_s, description="Idle upstream connections are closed after this.")
    drain_s: SecondsOrZero = Field(
        default=_T.drain_s, description="After SIGTERM, how long running requests may go on."
    )
    drain_grace_s: SecondsOrZero = Field(
        default=_T.drain_grace_s,
        description="After SIGTERM, how long connections are still accepted while /readyz is 503.",
    )


class Cors(Section):
    """Browser access to the data port."""

    origins: list[HeaderText] = Field(
        default=list(_C.origins), description='Allowed origins; "*" allows any; empty: no CORS at all.'
    )
    headers: list[HeaderName] = Field(default=list(_C.headers), description="Request headers a browser may send.")
    max_age_s: int = Field(default=_C.max_age_s, ge=0, description="How long a browser may remember a preflight.")


class Upstream(Section):
    """What engines get to see."""

    api_key: SecretStr | None = Field(default=None, description="Key for every replica that has none of its own.")
    api_key_file: Path | None = Field(default=None, description="File that holds it; a trailing newline is dropped.")
    forward_authorization: bool = Field(
        default=False, description="Pass the client's Authorization on when there is no key."
    )
    preserve_host: bool = Field(
        default=_G.preserve_host, description="Send the client's Host instead of the replica's own."
    )
    trust_forwarded: bool = Field(
        default=_G.trust_forwarded, description="Keep X-Forwarded-* that came with the request."
    )
    tls: ClientTls | None = Field(default=None, description="TLS towards https replicas.")


class Requests(Section):
    """How requests are understood."""

    paths: list[RoutePath] = Field(
        default=list(INFERENCE_PATHS), description="Routes that reach engines; a trailing / is a prefix."
    )
    session_headers: list[ReadHeader] = Field(
        default=list(_G.session_headers), description="Headers that name a session."
    )
    deadline_header: ReadHeader = Field(
        default=_G.deadline_header, description="Header with the seconds a client will wait."
    )
    hints_header: ReadHeader = Field(
        default=_G.hints_header,
        description="Header with which a client asks (value 1) for 103 responses that tell its place while it waits.",
    )
    priority_header: ReadHeader = Field(
        default=_G.priority_header, description="Header with a request's tier: low, standard, high or critical."
    )
    policy_header: ReadHeader = Field(default=_G.policy_header, description="Header that names a routing policy.")
    precision_header: ReadHeader = Field(
        default=_G.precision_header, description="Header with the least precision a client takes, such as bf16."
    )
    inject_usage: Literal["never", "learn", "always"] = Field(
        default="learn",
        description="Ask engines for a usage report on streams: until the length ratio is learned, or always.",
    )


class TenantLimits(Section):
    """What one tenant may do. 0 and empty lists mean that there is no limit."""

    tier: TierName = Field(default="standard", description="Tier of its requests that state none.")
    max_tier: TierName | None = Field(
        default=None, description="Highest tier its requests may state; empty: high, or its own if that is higher."
    )
    weight: float = Field(
        default=_N.weight, gt=0, allow_inf_nan=False, description="Share of the tokens served while others want them."
    )
    requests_per_s: Rate = Field(default=_N.requests_per_s, description="Requests per second.")
    tokens_per_s: Rate = Field(default=_N.tokens_per_s, description="Prompt and output tokens per second.")
    burst_s: Seconds = Field(default=_N.burst_s, description="Seconds' worth of both rates that may be used at once.")
    max_concurrent: int = Field(default=_N.max_concurrent, ge=0, description="Requests at once, held ones included.")
    kv_share: float = Field(
        default=_N.kv_share, gt=0, le=1, description="Most of a pool's KV tokens promised to its requests in flight."
    )
    models: list[str] = Field(default=[], description="Models it may see and use.")
    policies: list[str] = Field(default=[], description="Policies its requests may name.")
    deadline_s: SecondsOrZero = Field(default=_N.deadline_s, description="Deadline of its requests that state none.")
    precision_floor: str = Field(default=_N.precision_floor, description="Least precision of its requests.")

    @model_validator(mode="after")
    def _tier_is_allowed(self) -> "TenantLimits":
        if self.max_tier is not None and TIERS[self.tier] > TIERS[self.max_tier]:
            raise ValueError(f"max_tier {self.max_tier} is below its own tier, {self.tier}")
        return self


class Observe(Section):
    """Watching the fleet."""

    interval_s: Seconds = Field(default=0.5, description="Seconds between two load reports of a replica (with jitter).")
    dcgm_exporters: list[str] = Field(
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
    max_tokens: int = Field(default=_B.max_tokens, ge=1, description="Most output tokens of a request meanwhile.")
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
    fallback: dict[str, str] = Field(
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
    models: list[str] = Field(default=[], description="Models whose requests may move; empty: all.")
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


class Batching(Section):
    """How requests for one model are merged into calls. Not needed for engines that batch by themselves."""

    window_ms: float = Field(default=_M.window_ms, gt=0, le=1000, description="How long the first waits for others.")
    max: int = Field(default=_M.max, ge=2, le=2048, description="Most inputs in one call; a full one leaves at once.")


def _as_replica(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


def _as_policy(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _as_names(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_as_names), Field(min_length=1)]


class Settings(Section):
    """The whole of `headway.yaml`. Every section may be left out."""

    listen: Listen = Listen()
    admin: Admin = Admin()
    replicas: list[Annotated[Replica, BeforeValidator(_as_replica)]] = Field(
        default=[], description="Serving engines: URLs, or maps with more."
    )
    policy: Annotated[Policy, BeforeValidator(_as_policy)] = Policy()
    models: dict[str, Names] = Field(
        default={},
        description="Alias -> model names, most wanted first; each replica gets the first of them that it serves. The "
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
    batching: dict[str, Batching] = Field(
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
    tokenizers: dict[str, Path] = Field(
        default={},
        description="Model -> the engine's own tokenizer.json, to count prompts by it. Needs `headway[tokenizers]`.",
    )
    brain: dict[str, Any] = Field(default={}, description="Constants of the brain, nested by module; rarely needed.")
    journal: Path | None = Field(default=None, description="Write every event and command here, for `headway verify`.")
    seed: int | None = Field(
        default=None, description="Seed of the brain's chance; by default a fresh one, which is logged."
    )

    @model_validator(mode="after")
    def _keys_fit(self) -> "Settings":
        if self.tenants and self.keys_file is None:
            raise ValueError("tenants: needs keys_file, for without keys nobody can be told apart")
        if self.keys_file is not None and self.upstream.forward_authorization:
            raise ValueError("upstream.forward_authorization: would show engines the keys of keys_file")
        return self

    @model_validator(mode="after")
    def _no_replica_twice(self) -> "Settings":
        urls = [replica.url.rstrip("/") for replica in self.replicas]
        twice = sorted({url for url in urls if urls.count(url) > 1})
        if twice:
            raise ValueError(f"replicas: {twice[0]} is listed twice")
        return self
