"""What follows from a request's head alone. Worked out once per distinct head and kept with it."""

from headway.gateway.config import GatewayConfig
from headway.gateway.head import Refusal, RequestHead
from headway.gateway.headers import CorsLines, client_id
from headway.gateway.routes import UNMATCHED, Kind, Route
from headway.gateway.target import Target

MAX_SESSION_KEY_CHARS = 256
MAX_DEADLINE_S = 86_400.0


class Notes:
    """`wrong` is why the request is not served, None if it is; `form` the content type if that is form data;
    `patience_s` the client's own deadline, 0 if it set none; `leads` what goes upstream, by target."""

    __slots__ = (
        "client_request_id", "continues", "cors", "expects_oddly", "form", "inference", "leads", "method", "minor",
        "patience_s", "route", "session_key", "template", "wrong",
    )  # fmt: skip

    def __init__(self, head: RequestHead, route: Route | None, config: GatewayConfig, cors: CorsLines) -> None:
        self.method = head.method
        self.minor = head.minor
        self.route = route
        self.template = route.template if route is not None else UNMATCHED
        self.wrong = _wrong(head, route)
        self.inference = self.wrong is None and route is not None and route.kind is Kind.INFERENCE
        if head.method == "OPTIONS":
            self.inference = False
        self.client_request_id = client_id(head)
        self.cors = cors.lines(head)
        expect = head.fields.get(b"expect", b"").lower()
        self.continues = expect == b"100-continue" and head.minor == 1
        self.expects_oddly = expect not in (b"", b"100-continue")
        self.session_key = _session(head, config)
        self.patience_s = _patience(head, config)
        media = head.fields.get(b"content-type", b"").decode("latin-1")
        self.form = media if media.lower().startswith("multipart/form-data") else ""
        self.leads: dict[Target, bytes] = {}


def _wrong(head: RequestHead, route: Route | None) -> Refusal | None:
    """Whether path and method are not served."""
    if head.method == "OPTIONS":
        return None
    if route is None:
        return Refusal(404, "not_found", "There is nothing at this path.")
    if head.method not in route.methods:
        return Refusal(405, "method_not_allowed", f"This path takes {' and '.join(route.methods)} only.")
    return None


def _session(head: RequestHead, config: GatewayConfig) -> str:
    """The first session header that says something usable. Repeated, empty and endless ones say nothing."""
    for name in config.session_headers:
        value = head.fields.get(name.lower().encode(), b"")
        if value and len(value) <= MAX_SESSION_KEY_CHARS and b", " not in value:
            return value.decode("latin-1")
    return ""


def _patience(head: RequestHead, config: GatewayConfig) -> float:
    value = head.fields.get(config.deadline_header.lower().encode(), b"")
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return seconds if 0.0 < seconds <= MAX_DEADLINE_S else 0.0
