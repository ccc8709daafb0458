"""The HTTP client of everything off the data path: scrapes, probes, detection, control calls, load generation.

One `Client` per process. Whole answers are fetched over connections of our own (`connection`), and streams are read
through aiohttp. It never follows redirects (a replica must not send us elsewhere), takes no proxy or credentials from
the environment, keeps no cookies, has no hidden cap on connections, and reads answers up to a cap only. What goes wrong
on the wire is a value (`Failure`), never an exception.
"""

import asyncio
import base64
import ssl as ssl_module
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Self

import aiohttp
from yarl import URL

from headway.runtime import clock
from headway.runtime.answers import Answer, Failure, FailureKind
from headway.runtime.connection import Connection
from headway.runtime.shortage import SHORTAGES

__all__ = ["Answer", "Client", "Failure", "FailureKind", "client"]

PAGE_CAP_BYTES = 4 * 1024 * 1024  # the largest metrics page we recorded is 90 kB
POOL_IDLE_S = 3.0  # uvicorn closes idle connections after 5 s; being earlier avoids the race
MAX_REMEMBERED = 4096  # addresses
_HEADERS = {"accept-encoding": "identity", "user-agent": "headway"}
_PORTS = {"http": 80, "https": 443}


class _Origin(NamedTuple):
    host: str
    port: int
    secure: bool


class _Address(NamedTuple):
    """A URL taken apart: whom to connect to, and what stands behind the method in the request."""

    origin: _Origin
    lead: str


class Client:
    """A bounded, redirect-free HTTP client. Make it inside a running loop; close it with `close` or `async with`."""

    def __init__(self, session: aiohttp.ClientSession, connect_s: float, tls: ssl_module.SSLContext | None) -> None:
        self._session = session
        self._connect_s = connect_s
        self._tls = tls
        self._addresses: dict[str, _Address] = {}
        self._idle: dict[_Origin, list[Connection]] = {}
        self._pruned_at = clock.now()

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        timeout_s: float = 5.0,
        cap_bytes: int = PAGE_CAP_BYTES,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer | Failure:
        """One exchange, head and body together within `timeout_s`. A GET whose pooled connection turns out to be closed
        is sent again."""
        address = self._addresses.get(url) or self._read(url)
        if isinstance(address, Failure):
            return address
        try:
            request = _request(method, address, headers, body)
            async with asyncio.timeout(timeout_s):
                return await self._exchange(address.origin, request, cap_bytes, again=method == "GET")
        except TimeoutError as error:
            return Failure(FailureKind.TIMEOUT, str(error) or f"no full answer within {timeout_s:g} s")
        except (OSError, ValueError) as error:
            return _failure(error, address.origin)

    def stream(
        self, url: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The raw exchange, for answers that are read as they come. Raises aiohttp's errors; sets no timeout."""
        return self._session.request(method, url, headers=headers, data=body, allow_redirects=False)

    async def close(self) -> None:
        """Close every connection that is not in use."""
        self._prune(clock.now())
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def _exchange(self, origin: _Origin, request: bytes, cap: int, *, again: bool) -> Answer | Failure:
        connection = self._acquire(origin)
        answer = None
        if connection is not None:
            answer = await connection.ask(request, cap)
        if answer is None and (again or connection is None):
            connection = await self._connect(origin)
            answer = await connection.ask(request, cap)
        if answer is None or connection is None:
            return Failure(FailureKind.BROKEN, "the connection was closed before an answer")
        if connection.reusable:
            self._idle.setdefault(origin, []).append(connection)
            if connection.idle_since - self._pruned_at > POOL_IDLE_S:
                self._prune(connection.idle_since - POOL_IDLE_S)
        return answer

    def _acquire(self, origin: _Origin) -> Connection | None:
        idle = self._idle.get(origin)
        youngest = clock.now() - POOL_IDLE_S
        while idle:
            connection = idle.pop()
            if connection.idle_since >= youngest and not connection.transport.is_closing():
                return connection
            connection.transport.abort()
        return None

    def _prune(self, oldest: float) -> None:
        """Close what has been idle since before `oldest`."""
        self._pruned_at = clock.now()
        for origin, idle in list(self._idle.items()):
            for connection in idle:
                if connection.idle_since <= oldest:
                    connection.transport.abort()
            self._idle[origin] = [connection for connection in idle if connection.idle_since > oldest]
            if not self._idle[origin]:
                del self._idle[origin]

    async def _connect(self, origin: _Origin) -> Connection:
        if origin.secure and self._tls is None:
            self._tls = ssl_module.create_default_context()
        tls, name = (self._tls, origin.host) if origin.secure else (None, None)
        try:
            async with asyncio.timeout(self._connect_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, origin.host, origin.port, ssl=tls, server_hostname=name
                )
        except TimeoutError:
            raise TimeoutError(f"no connection within {self._connect_s:g} s") from None
        return connection

    def _read(self, url: str) -> _Address | Failure:
        """Take a URL apart, and remember it."""
        try:
            read = URL(url)
            if read.scheme not in _PORTS or not read.raw_host or not read.port:
                raise ValueError("not an address")
        except ValueError as error:
            return Failure(FailureKind.UNREACHABLE, f"{url}: {error}")
        lines = [f" {read.raw_path_qs} HTTP/1.1", f"host: {read.host_port_subcomponent}"]
        lines += [f"{name}: {value}" for name, value in _HEADERS.items()]
        if read.user is not None:
            pair = base64.b64encode(f"{read.user}:{read.password or ''}".encode()).decode()
            lines.append(f"authorization: Basic {pair}")
        if len(self._addresses) >= MAX_REMEMBERED:
            self._addresses.clear()
        origin = _Origin(read.raw_host, read.port, read.scheme == "https")
        address = self._addresses[url] = _Address(origin, "\r\n".join(lines))
        return address


def client(*, connect_s: float = 3.0, tls: ssl_module.SSLContext | None = None, **session: Any) -> Client:
    """Make the process's client. `tls` replaces the system's trust for https; `session` goes to aiohttp's session."""
    connector = aiohttp.TCPConnector(
        limit=0, keepalive_timeout=POOL_IDLE_S, ttl_dns_cache=10, ssl=True if tls is None else tls
    )
    return Client(
        aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,  # a small page must not unfold into a huge one
            headers=_HEADERS,
            **session,
        ),
        connect_s,
        tls,
    )


def _request(method: str, address: _Address, headers: dict[str, str] | None, body: bytes | None) -> bytes:
    """The whole request. Raises ValueError for headers that would not stay one line."""
    own = [f"{name}: {value}" for name, value in headers.items()] if headers else []
    if body is not None:
        own.append(f"content-length: {len(body)}")
    if any("\r" in line or "\n" in line for line in own):
        raise ValueError("a header has more than one line")
    head = "\r\n".join((method + address.lead, *own, "", ""))
    return head.encode("latin-1") + (body or b"")


def _failure(error: OSError | ValueError, origin: _Origin) -> Failure:
    detail = str(error) or type(error).__name__
    match error:
        case ConnectionRefusedError():
            return Failure(FailureKind.REFUSED, f"nobody listens at {origin.host}:{origin.port}")
        case OSError(errno=number) if number in SHORTAGES:
            return Failure(FailureKind.OURS, detail)
        case OSError():
            return Failure(FailureKind.UNREACHABLE, detail)
        case _:
            return Failure(FailureKind.BROKEN, detail)
