"""Who may call the admin API. Deny by default: a route is open only if its path is in `OPEN`.

With a token, every other path needs it, whether it exists or not. Without one the port is bound to loopback, where the
attackers left are web pages in a browser on this machine: a foreign Host (DNS rebinding) or Origin is refused.
"""

import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that load balancers and kubelets ask without credentials. Matched exactly, after percent-decoding."""


def is_loopback(host: str) -> bool:
    """Whether a bind address or host name means this machine only."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def binding_problem(host: str, token: str) -> str:
    """Why the admin port must not be opened like this, empty if it may."""
    if is_loopback(host) or token:
        return ""
    return f"the admin port on {host} would be open to the network: set admin.token, or bind it to 127.0.0.1"


class Guard:
    """ASGI middleware in front of everything."""

    def __init__(self, app: ASGIApp, token: str = "") -> None:
        self.app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 or 403."""
        refusal = self._refusal(scope) if scope["type"] == "http" else _answer(403, "only http is spoken here")
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if scope["path"] in OPEN:
            return None
        if self._token:
            return None if self._has_token(scope) else _answer(401, "a bearer token is needed", challenge=True)
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or not is_loopback(_name(hosts[0])):
            return _answer(403, "without a token only http://localhost and loopback addresses are answered")
        origins = _values(scope, b"origin")
        if any(_netloc(origin) != hosts[0] for origin in origins):
            return _answer(403, "requests from web pages of other origins are refused")
        return None

    def _has_token(self, scope: Scope) -> bool:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, given = (values[0] if len(values) == 1 else b"").partition(b" ")
        right = hmac.compare_digest(given.strip(), self._token)
        return right and scheme.lower() == b"bearer"


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _netloc(origin: str) -> str:
    """Host and port of an origin; empty, which no Host is that is answered, if it is none."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.rpartition(":")[0] if ":" in host else host


def _answer(status: int, message: str, challenge: bool = False) -> Response:
    headers = {"www-authenticate": 'Bearer realm="headway"'} if challenge else None
    return JSONResponse({"error": {"message": message, "code": status}}, status, headers)
