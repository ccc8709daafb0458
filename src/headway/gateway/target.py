"""Where a replica is and how to speak to it: everything about its URL and credentials that can be worked out once."""

import ssl
from urllib.parse import urlsplit

from headway.core.replica import ReplicaSpec
from headway.engines.base import Dialect
from headway.engines.continuation import Continuation, KvMove, KvPull
from headway.gateway.config import GatewayConfig
from headway.gateway.head import RequestHead

_CREDENTIALS = ((b"authorization", b"Authorization"), (b"x-api-key", b"X-Api-Key"), (b"api-key", b"Api-Key"))


class Target:
    """One replica as the data plane sees it. `fixed` are the header lines that every request to it carries;
    `unmergeable` the paths whose replies to merged requests were found to be no such thing; `tells_usage` whether it
    takes our wish for a usage report, None until that is known; `kv` and `pull`: how it hands over what it computed, if
    it does and requests may move."""

    __slots__ = (
        "_authority", "_fixed", "_forward", "_prefix", "_preserve_host", "dialect", "host", "kv", "port", "pull",
        "sample_header", "spec", "ssl", "tells_usage", "unmergeable",
    )  # fmt: skip

    def __init__(self, spec: ReplicaSpec, config: GatewayConfig, dialect: Dialect | None) -> None:
        url = urlsplit(spec.url)
        secure = url.scheme == "https"
        self.spec = spec
        self.dialect = dialect
        self.unmergeable: set[str] = set()
        self.tells_usage: bool | None = None
        self.host = url.hostname or ""
        self.port = url.port or (443 if secure else 80)
        self.ssl: ssl.SSLContext | None = None
        if secure:
            self.ssl = config.client_tls or ssl.create_default_context()
        shares = config.moving is not None and bool(spec.kv_domain)
        way = dialect.continuation if dialect is not None and shares else Continuation()
        self.kv: KvMove | None = way.kv if spec.max_num_seqs else None
        self.pull: KvPull | None = way.pull
        self.sample_header = dialect.sample_header.lower().encode() if dialect else b""
        self._authority = url.netloc.rpartition("@")[2].encode()
        self._prefix = url.path.rstrip("/").encode()
        self._preserve_host = config.preserve_host
        key = (config.replica_keys.get(spec.url) or config.auth.api_key).strip()
        self._forward = config.auth.forward_client and not key
        lines = [f"\r\nAuthorization: Bearer {key}"] if key else []
        lines += [f"\r\n{name}: {value}" for name, value in (dialect.request_headers if dialect else ())]
        lines.append("\r\nAccept-Encoding: identity")  # what is compressed can be neither counted nor mended
        self._fixed = "".join(lines).encode("latin-1")

    def __repr__(self) -> str:
        return f"<Target {self.spec.id} {self.host}:{self.port}>"

    def lead(self, head: RequestHead) -> bytes:
        """What the head that goes upstream begins with: exactly one Host, at most one credential. Still to come are
        the lines that differ from request to request: id, framing, forwarding."""
        host = head.authority if self._preserve_host and head.authority else self._authority
        fixed = self._fixed + (self._shown(head) if self._forward else b"")
        line = (head.method.encode(), self._prefix, head.target, host, head.rest, fixed)
        return b"%b %b%b HTTP/1.1\r\nHost: %b%b%b" % line

    def post(self, head: RequestHead, path: str, name: str, length: int) -> bytes:
        """The head of a JSON request of ours, made on behalf of a client's."""
        fixed = self._fixed + (self._shown(head) if self._forward else b"")
        line = (self._prefix, path.encode(), self._authority, fixed, name.encode(), length)
        return (
            b"POST %b%b HTTP/1.1\r\nHost: %b%b\r\nContent-Type: application/json\r\nX-Request-Id: %b\r\n"
            b"Content-Length: %d\r\n\r\n" % line
        )

    def towards(self, whole: bytes, path: str) -> bytes:
        """A head for this replica, with another path in its first line."""
        return b"POST %b%b%b" % (self._prefix, path.encode(), whole[whole.index(b" HTTP/1.1\r\n") :])

    def _shown(self, head: RequestHead) -> bytes:
        """The credentials that the client showed us."""
        found = [(written, value) for name, written in _CREDENTIALS if (value := head.fields.get(name))]
        return b"".join([b"\r\n%b: %b" % pair for pair in found])
