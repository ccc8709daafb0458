"""Types of single settings that end up in heads of HTTP messages or are compared with parts of them.

What lives here: what such a text may look like, so that a slip is found with the settings and not with a request. What
must not: sections of settings (`settings`).
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from headway.gateway.routes import is_control

OURS: Final = frozenset({
    "connection", "content-encoding", "content-length", "content-type", "expect", "forwarded", "host", "keep-alive",
    "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    "x-request-id",
})  # fmt: skip
"""Headers that the gateway reads itself, and writes anew or drops: passing them on as well would say them twice."""

DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
"""Ports that browsers leave out of an origin."""

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[\x21-\x2e\x30-\x3e\x41-\x7e]+")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PATH = re.compile(r"/[\x21-\x24\x26-\x3e\x40-\x7e]*")


def unfit_for_heads(text: str) -> str:
    """Why a text cannot stand in the head of a message, empty if it can."""
    if text.isascii() and text.isprintable():
        return ""
    return "must be printable ASCII: it is sent in the heads of messages"


def hosts(bound: str) -> list[str]:
    """The addresses of a setting that names some to bind, as URLs write them: IPv6 in brackets, names in lower case."""
    names = (name.strip().strip("[]").lower() for name in bound.split(","))
    return [f"[{name}]" if ":" in name else name for name in names]


def _header_name(name: str) -> str:
    if _TOKEN.fullmatch(name) is None:
        raise ValueError("is no name of a header")
    return name


def _readable(name: str) -> str:
    if name and _header_name(name).lower() in OURS:
        raise ValueError(f"{name} means something to every proxy: name another header")
    return name


def _origin(text: str) -> str:
    if problem := unfit_for_heads(text):
        raise ValueError(problem)
    if text in ("*", "null"):
        return text
    scheme, rest, host = text.lower().partition("://")
    sent = f"{scheme}{rest}{host.partition('/')[0].removesuffix(DEFAULT_PORTS.get(scheme, ''))}"
    if _ORIGIN.fullmatch(sent) is None:
        raise ValueError("is no origin: browsers send a scheme and a host, such as https://chat.example.com")
    if text != sent:
        raise ValueError(f"would never be met: browsers send {sent}")
    return text


def _route(path: str) -> str:
    if _PATH.fullmatch(path) is None:
        raise ValueError("must be a path that begins with /, as clients send it, without a query")
    if path == "/":
        raise ValueError("would open whatever engines have: name routes, such as /v1/")
    if is_control(path):
        raise ValueError(f"{path} is a control path of engines: none is reachable through the data port")
    return path


HeaderName = Annotated[str, AfterValidator(_header_name)]
ReadHeader = Annotated[str, AfterValidator(_readable)]
"""A header that means something to Headway, and passes on to engines like any other. Empty: none does."""
Origin = Annotated[str, AfterValidator(_origin)]
RoutePath = Annotated[str, AfterValidator(_route)]
