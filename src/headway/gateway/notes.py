"""What follows from a request's head alone. Worked out once per distinct head and kept with it."""

from typing import Final

from headway.gateway.config import GatewayConfig
from headway.gateway.head import Refusal, RequestHead
from headway.gateway.headers import CorsLines, client_id
from headway.gateway.identity import ANYBODY, TIERS, Identity, session_of
from headway.gateway.routes import UNMATCHED, Kind, Route
from headway.gateway.target import Target
from headway.telemetry.redact import without_secrets

METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"))
"""Others share a name in the log: a client may call its method what it likes."""

MAX_SESSION_KEY_CHARS: Final = 256
MAX_DEADLINE_S: Final = 86_400.0
MAX_NAME_CHARS: Final = 64
BAD_DEADLINE: Final = "The header `{}` takes a number of seconds above 0."
ENDLESS_NAME: Final = Refusal(400, "invalid_header", f"A name in a header has at most {MAX_NAME_CHARS} characters.")
NOWHERE: Final = Refusal(404, "not_found", "There is nothing at this path.")
PACKED: Final = Refusal(
    415, "unsupported_content_encoding", "Bodies are read as they come; send this one without Content-Encoding."
)
OUTSIDE: Final = Refusal(404, "not_found", "There is nothing at this path; the base URL of a client ends in /v1.")
CHALLENGE: Final = b"\r\nwww-authenticate: Bearer"


class Notes:
    """`wrong` is why the request is not served, None if it is; `form` the content type if that is form data;
    `stranger` the same if it is because nobody knows who sent it; `lines` what every response carries. `patience_s` is
    the client's own deadline, 0 if it set none; `hints`: it wants to know where it stands while it is held; `models`
    those its tenant may use, empty for all; `leads` what goes upstream, by target."""

    __slots__ = (
        "client_request_id", "continues", "expects_oddly", "form", "hints", "inference", "leads", "lines", "method",
        "minor", "models", "patience_s", "policy", "precision_floor", "route", "session_key", "stranger", "template",
        "tenant", "tier", "wrong",
    )  # fmt: skip

    def __init__(
        self,
        head: RequestHead,
        route: Route | None,
        config: GatewayConfig,
        cors: CorsLines,
        who: Identity | Refusal = ANYBODY,
    ) -> None:
        self.method = head.method if head.method in METHODS else "OTHER"
        self.minor = head.minor
        self.route = route
        self.template = route.template if route is not None else UNMATCHED
        self.stranger = who if isinstance(who, Refusal) and _guarded(head, route) else None
        identity = ANYBODY if isinstance(who, Refusal) else who
        self.tenant = identity.tenant
        self.models = identity.models
        self.tier = TIERS.get(_said(head, config.priority_header).lower(), identity.tier)
        self.policy = _name(head, config.policy_header)
        self.precision_floor = _name(head, config.precision_header).lower()
        self.wrong = self.stranger or _wrong(head, route)
        served = self.wrong is None and route is not None and route.kind is Kind.INFERENCE and head.method != "OPTIONS"
        if served and max(len(self.policy), len(self.precision_floor)) > MAX_NAME_CHARS:
            self.wrong = ENDLESS_NAME
        self.patience_s = _patience(head, config)
        if served and self.wrong is None and self.patience_s < 0.0:
            self.wrong = Refusal(400, "invalid_header", BAD_DEADLINE.format(config.deadline_header))
        self.inference = served and self.wrong is None
        self.hints = head.minor == 1 and _said(head, config.hints_header) == b"1"
        self.client_request_id = client_id(head)
        self.lines = cors.lines(head) + (CHALLENGE if self.stranger is not None else b"")
        expect = head.fields.get(b"expect", b"").lower()
        self.continues = expect == b"100-continue" and head.minor == 1
        self.expects_oddly = expect not in (b"", b"100-continue")
        self.session_key = session_of(self.tenant, _session(head, config))
        media = head.fields.get(b"content-type", b"").decode("latin-1")
        self.form = media if media.lower().startswith("multipart/form-data") else ""
        self.leads: dict[Target, bytes] = {}


def _guarded(head: RequestHead, route: Route | None) -> bool:
    """Whether only those we know are answered: all but load balancers that ask for health, and browsers that ask what
    they may ask, which never show a key."""
    return head.method != "OPTIONS" and (route is None or route.kind is not Kind.HEALTH)


def _wrong(head: RequestHead, route: Route | None) -> Refusal | None:
    """Why the request is not served, whoever sent it; None if it is."""
    if head.method == "OPTIONS":
        return None
    if route is None:
        return NOWHERE if head.path.startswith("/v1/") else OUTSIDE
    if head.method not in route.methods:
        return Refusal(405, "method_not_allowed", f"This path takes {' and '.join(route.methods)} only.")
    if head.fields.get(b"content-encoding", b"identity").lower() != b"identity":
        return PACKED
    return None


def _session(head: RequestHead, config: GatewayConfig) -> str:
    """The first session header that says something usable. Repeated, empty and endless ones say nothing."""
    for name in config.session_headers:
        value = head.fields.get(name.lower().encode(), b"")
        if value and len(value) <= MAX_SESSION_KEY_CHARS and b", " not in value:
            return value.decode("latin-1")
    return ""


def _said(head: RequestHead, name: str) -> bytes:
    """What a header of ours says, empty if it is not there."""
    return head.fields.get(name.lower().encode(), b"")


def _name(head: RequestHead, header: str) -> str:
    """The same, as a name that goes to the brain, and so into journals: a credential in the wrong place does not."""
    value = _said(head, header)
    return without_secrets(value.decode("latin-1")) if value else ""


def _patience(head: RequestHead, config: GatewayConfig) -> float:
    """Seconds, 0 if nothing is said, -1 if it is no deadline: whoever states one relies on it. Beyond a day it is a
    day."""
    value = _said(head, config.deadline_header)
    try:
        seconds = float(value) if value else 0.0
    except ValueError:
        return -1.0
    return min(seconds, MAX_DEADLINE_S) if seconds > 0.0 or not value else -1.0
