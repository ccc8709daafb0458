"""Settings of the data plane as plain values. compose maps the user's file onto them; defaults are here only."""

import ssl

import msgspec

INFERENCE_PATHS = (
    "/v1/",  # every POST below it that names a model
    "/tokenize",
    "/detokenize",
    "/rerank",
    "/v2/rerank",
    "/score",
    "/pooling",
    "/classify",
    "/generate",
    "/completion",
    "/completions",
    "/infill",
    "/embedding",
    "/embeddings",
    "/api/chat",
    "/api/generate",
    "/inference/v1/generate",
)


class Limits(msgspec.Struct, frozen=True):
    """Bounds on what one client may send, each with the status that says so."""

    max_head_bytes: int = 32 * 1024  # 431
    max_uri_bytes: int = 8 * 1024  # 414
    max_headers: int = 100  # 431
    max_body_bytes: int = 64 * 1024 * 1024  # 413; multimodal bodies of 30 MiB are ordinary
    head_timeout_s: float = 10.0  # 408
    body_timeout_s: float = 10.0  # 408: silence or a trickle while a body is owed
    min_body_bytes_per_s: int = 1024  # a body slower than this after body_timeout_s is cut
    keepalive_timeout_s: float = 75.0
    buffered_body_bytes: int = 192 * 1024 * 1024  # 503: bodies held by all requests (while one is read, it is twice)
    write_high_water_bytes: int = 64 * 1024  # back-pressure: stop reading the engine above this
    max_connections: int = 0  # clients beyond it are closed at once, so that files are left for the rest; 0: no bound


class Timeouts(msgspec.Struct, frozen=True):
    """Patience with engines (s). Generations may be slow: nothing here is below two minutes but the connect."""

    connect_s: float = 3.0
    first_byte_s: float = 600.0
    idle_s: float = 180.0
    pool_idle_s: float = 3.0  # uvicorn closes at 5 s; being earlier avoids the race
    drain_s: float = 30.0
    drain_grace_s: float = 0.0  # readiness is 503 but connections are still accepted


class Cors(msgspec.Struct, frozen=True):
    """Browser access. Empty origins: no CORS headers at all. "*" allows any origin."""

    origins: tuple[str, ...] = ()
    headers: tuple[str, ...] = ("authorization", "content-type", "x-request-id")
    max_age_s: int = 600


class UpstreamAuth(msgspec.Struct, frozen=True):
    """What credentials an engine sees. `api_key` wins over the client's header; empty and not forwarded: none."""

    api_key: str = ""
    forward_client: bool = False


class Batching(msgspec.Struct, frozen=True):
    """How requests for one model are merged: those within a window, up to so many inputs in one call."""

    window_ms: float = 5.0
    max: int = 32


class Moving(msgspec.Struct, frozen=True):
    """Requests that may be moved while they run: those of `models`, of all if it is empty.

    `hold_s`, `hold_bytes`: how much of the source's stream may wait for the cut; `warm_s`: how long the target may take
    to read what there is before that. `keepalive_s`: how often a client whose stream waits gets a comment, 0: never.
    `handover_s`: how long a stream may stand still while engines hand their KV over.
    `plain`: requests that do not stream may move, too; `plain_bytes` of such an answer are kept at most until it is
    whole.
    """

    models: frozenset[str] = frozenset()
    hold_s: float = 2.0
    hold_bytes: int = 256 * 1024
    warm_s: float = 30.0
    handover_s: float = 1.0
    keepalive_s: float = 0.0
    plain: bool = False
    plain_bytes: int = 8 * 1024 * 1024


class GatewayConfig(msgspec.Struct, frozen=True):
    """Everything the data plane needs to know, but the brain."""

    host: str = "127.0.0.1"
    port: int = 8800
    limits: Limits = Limits()
    timeouts: Timeouts = Timeouts()
    cors: Cors = Cors()
    auth: UpstreamAuth = UpstreamAuth()
    replica_keys: dict[str, str] = {}  # replica url -> API key
    paths: tuple[str, ...] = INFERENCE_PATHS
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    preserve_host: bool = False
    trust_forwarded: bool = False
    session_headers: tuple[str, ...] = ("x-session-id",)
    deadline_header: str = "x-request-deadline-s"
    hints_header: str = "x-queue-hints"  # 1: while the request is held, 103 responses say where it stands
    hints_period_s: float = 1.0
    priority_header: str = "x-priority"
    policy_header: str = "x-policy"
    precision_header: str = "x-min-precision"
    inject_usage: str = "learn"  # never | learn (until the model's bytes-per-token ratio is known) | always
    progress_tick_s: float = 0.05
    backlog: int = 1024
    moving: Moving | None = None
    batching: dict[str, Batching] = {}  # by the model's name as clients write it
