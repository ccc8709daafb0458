"""Sections of the user's file for the data plane: addresses, TLS, limits, patience, headers. Defaults are those of
`gateway.config`."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, model_validator

from headway.compose.settings_base import Bytes, Count, Port, Seconds, SecondsOrZero, Section
from headway.compose.texts import HeaderName, Origin, ReadHeader, RoutePath
from headway.gateway.config import INFERENCE_PATHS
from headway.gateway.config import Batching as _Batching
from headway.gateway.config import Cors as _Cors
from headway.gateway.config import GatewayConfig as _Gateway
from headway.gateway.config import Limits as _Limits
from headway.gateway.config import Timeouts as _Timeouts

_L, _T, _C, _G, _M = _Limits(), _Timeouts(), _Cors(), _Gateway(), _Batching()


class ServerTls(Section):
    """Certificate of the data port."""

    cert_file: Path = Field(
        description="PEM file with the certificate chain; read again within ten seconds when it changes."
    )
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

    host: str = Field(default=_G.host, min_length=1, description="Address to bind; 0.0.0.0 or :: for every interface.")
    port: Port = Field(default=_G.port, description="Port of the data plane.")
    backlog: int = Field(default=_G.backlog, ge=1, le=65535, description="Connections the kernel may hold for us.")
    tls: ServerTls | None = Field(default=None, description="Serve https instead of http.")


class Limits(Section):
    """Bounds on what one client may send, each with the status that says so."""

    max_head_bytes: Bytes = Field(
        default=_L.max_head_bytes, ge=1024, description="Request line and headers together (431)."
    )
    max_uri_bytes: Bytes = Field(default=_L.max_uri_bytes, ge=64, description="Request target (414).")
    max_headers: int = Field(default=_L.max_headers, ge=16, le=65536, description="Header lines (431).")
    max_body_bytes: Bytes = Field(default=_L.max_body_bytes, ge=64, description="Request body (413).")
    head_timeout_s: Seconds = Field(
        default=_L.head_timeout_s, description="From first byte to the end of the head (408)."
    )
    body_timeout_s: Seconds = Field(default=_L.body_timeout_s, description="Silence while a body is owed (408).")
    min_body_bytes_per_s: Count = Field(default=_L.min_body_bytes_per_s, description="Slower bodies are cut (408).")
    keepalive_timeout_s: Seconds = Field(
        default=_L.keepalive_timeout_s, description="Idle client connections are closed."
    )
    buffered_body_bytes: Bytes = Field(
        default=_L.buffered_body_bytes,
        description="Bodies held by all requests (503); no less than max_body_bytes.",
    )
    write_high_water_bytes: Bytes = Field(
        default=_L.write_high_water_bytes, description="Unsent bytes that stop reading."
    )
    max_connections: Count = Field(
        default=_L.max_connections,
        description="Clients at once; more are closed. 0: as many as the limit on open files has room for.",
    )

    @model_validator(mode="after")
    def _bodies_fit(self) -> "Limits":
        if self.buffered_body_bytes < self.max_body_bytes:
            raise ValueError(
                f"buffered_body_bytes: {self.buffered_body_bytes} has no room for one body of max_body_bytes "
                f"({self.max_body_bytes})"
            )
        return self


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

    origins: list[Origin] = Field(
        default=list(_C.origins), description='Allowed origins; "*" allows any; empty: no CORS at all.'
    )
    headers: list[HeaderName] = Field(default=list(_C.headers), description="Request headers a browser may send.")
    max_age_s: Count = Field(default=_C.max_age_s, description="How long a browser may remember a preflight.")


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
        default=list(INFERENCE_PATHS), min_length=1, description="Routes that reach engines; a trailing / is a prefix."
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
        description="Ask engines for a usage report on streams: until the length ratio is learned, or always. One that "
        "answers 400 or 422 is asked once more without it, until it is known whether it takes the field.",
    )

    @model_validator(mode="after")
    def _headers_differ(self) -> "Requests":
        own = ("deadline_header", "hints_header", "priority_header", "policy_header", "precision_header")
        names = [*(getattr(self, field).lower() for field in own), *{name.lower() for name in self.session_headers}]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is the header of two things: each needs a name of its own")
        return self


class Batching(Section):
    """How requests for one model are merged into calls. Not needed for engines that batch by themselves."""

    window_ms: float = Field(default=_M.window_ms, gt=0, le=1000, description="How long the first waits for others.")
    max: int = Field(default=_M.max, ge=2, le=2048, description="Most inputs in one call; a full one leaves at once.")
