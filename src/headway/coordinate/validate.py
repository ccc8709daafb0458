"""Which URLs may be replicas. An admin API that fetches any URL it is given is a way into the operator's network.

Refused: anything but http and https, credentials inside the URL, link-local and other special addresses, cloud metadata
services, and spellings of IP addresses that only old resolvers understand. Redirects are never followed by our client.
A host name is not resolved here: whoever controls the resolver controls the fleet anyway.
"""

import ipaddress
import re
from urllib.parse import SplitResult, quote, urlsplit

import msgspec

METADATA_HOSTS = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, GCP and most others
        "fd00:ec2::254",  # AWS over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's host agent
        "192.0.0.192",  # Oracle
    )
)
NAT64 = ipaddress.ip_network("64:ff9b::/96")
NUMBERS_ONLY = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?", re.IGNORECASE)
HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.IGNORECASE)
ROUTES = ("/chat/completions", "/v1/completions", "/v1/models", "/metrics")
LONGEST_URL = 2048
PORTS = {"http": 80, "https": 443}
LETTERS = "/%:@!$&'()*+,;=~"
"""What may stand in a path beside unreserved letters."""
UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
NO_ESCAPE = re.compile(r"%(?![0-9A-F]{2})")
DOTS = frozenset((".", ".."))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

ANY_HOST = frozenset({"0.0.0.0", "::"})
HERE = frozenset({"127.0.0.1", "::1", "localhost"})


class Refused(msgspec.Struct, frozen=True):
    """Why a URL may not be a replica."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def replica_url(text: str) -> str | Refused:
    """The URL in the one form that Headway uses (lower-case scheme and host, no default port, a path in ASCII without
    trailing slash, no /v1 at its end, because clients' paths bring their own), or why it is refused."""
    if len(text) > LONGEST_URL or any(ord(c) <= 32 or ord(c) == 127 or c == "\\" for c in text):
        return Refused("the URL is too long or contains blanks, control characters or backslashes")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return Refused(f"not a URL: {error}")
    if port == 0:
        return Refused("there is no port 0")
    if reason := _wrong_parts(parts, text) or host_refused(parts.hostname or ""):
        return Refused(reason)
    path = _in_ascii(parts.path).rstrip("/")
    if NO_ESCAPE.search(path) or DOTS & set(path.split("/")):
        return Refused("its path is written oddly: no dot segments, and % only before two hexadecimal digits")
    if path.endswith(ROUTES):
        return Refused("names one of an engine's routes: leave it out, the engine's own address is enough")
    path = path.removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{_host(parts)}{'' if port in (None, PORTS[parts.scheme]) else f':{port}'}{path}"


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    return f"[{ipaddress.IPv6Address(host)}]" if ":" in host else host


def _in_ascii(path: str) -> str:
    """The path as it is sent: what is no letter of a URL is escaped, and nothing else (RFC 3986, 6.2.2)."""
    return ESCAPE.sub(_escape, quote(path, safe=LETTERS))


def _escape(found: re.Match[str]) -> str:
    letter = chr(int(found[1], 16))
    return letter if UNRESERVED.fullmatch(letter) else found[0].upper()


def host_refused(host: str) -> str:
    """Why a host may not be contacted, empty if it may."""
    try:
        return address_refused(ipaddress.ip_address(host))
    except ValueError:
        if NUMBERS_ONLY.fullmatch(host):
            return f"{host} is an IP address in an unusual spelling"
        if host.lower().rstrip(".") in METADATA_HOSTS:
            return f"{host} is a metadata service"
        return "" if HOST_NAME.fullmatch(host) else f"{host!r} is not a host name"


def address_refused(address: Address) -> str:
    """Why an address may not be contacted, empty if it may. Loopback and private addresses may: replicas live there."""
    inner = _inner(address)
    if inner in METADATA_ADDRESSES:
        return f"{address} is a metadata service"
    for word, special in (
        ("link-local", inner.is_link_local),
        ("unspecified", inner.is_unspecified),
        ("multicast", inner.is_multicast),
        ("broadcast", inner == ipaddress.IPv4Address("255.255.255.255")),
    ):
        if special:
            return f"{address} is {word}"
    return ""


def leads_to(url: str, bound: str, port: int) -> bool:
    """Whether a replica's URL, in the form that `replica_url` gives it, is a port that this process has bound. `bound`
    are addresses with commas between. Which other addresses this machine has is not known here."""
    parts = urlsplit(url)
    names = {name.strip().strip("[]").lower() for name in bound.split(",")}
    host = parts.hostname or ""
    try:
        inner = _inner(ipaddress.ip_address(host))
        host, loopback = str(inner), inner.is_loopback
    except ValueError:
        loopback = host in HERE
    here = host in names or (host in HERE and names & HERE) or (loopback and names & ANY_HOST)
    return bool(here) and (parts.port or (443 if parts.scheme == "https" else 80)) == port


def _wrong_parts(parts: SplitResult, text: str) -> str:
    if parts.scheme not in ("http", "https"):
        return "only http:// and https:// URLs are accepted"
    if "@" in parts.netloc:
        return "credentials inside a URL are refused; give the key in the settings"
    if "?" in text or "#" in text:
        return "a replica's URL has no query and no fragment"
    return "" if parts.hostname else "the URL names no host"


def _inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
