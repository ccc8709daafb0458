"""The HTTP client of everything off the data path: scrapes, probes, detection, control calls, load generation.

One `Client` per process, sharing one aiohttp session. It never follows redirects (a replica must not send us
elsewhere), takes no proxy or credentials from the environment, keeps no cookies, has no hidden cap on connections,
and reads answers up to a cap only. What goes wrong on the wire is a value (`Failure`), never an exception.
"""

import asyncio
import enum
import ssl as ssl_module
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

import aiohttp
import msgspec

from headway.runtime.shortage import SHORTAGES

PAGE_CAP_BYTES = 4 * 1024 * 1024  # the largest metrics page we recorded is 90 kB
POOL_IDLE_S = 3.0  # uvicorn closes idle connections after 5 s; being earlier avoids the race
READ_CHUNK_BYTES = 64 * 1024


class FailureKind(enum.StrEnum):
    """Why there was no answer."""

    REFUSED = "refused"  # nobody listens there any more
    UNREACHABLE = "unreachable"  # no route, no such name, TLS
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection died, or what came was not HTTP
    OURS = "ours"  # nobody was asked: this process has no descriptor, port or memory left


class Failure(msgspec.Struct, frozen=True):
    """No answer. `detail` is for people."""

    kind: FailureKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


class Answer(msgspec.Struct, frozen=True):
    """An answer of any status. `cut`: the body was longer than the cap and ends there."""

    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool = False


class Client:
    """A bounded, redirect-free HTTP client. Make it inside a running loop; close it with `close` or `async with`."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

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
        """One exchange, head and body together within `timeout_s`; header names of the answer are lower case."""
        try:
            async with asyncio.timeout(timeout_s), self.stream(url, method=method, headers=headers, body=body) as got:
                page, cut = await _read_up_to(got.content, cap_bytes)
                if cut:
                    got.close()
                return Answer(got.status, {k.lower(): v for k, v in got.headers.items()}, page, cut)
        except TimeoutError as error:
            return Failure(FailureKind.TIMEOUT, str(error) or f"no full answer within {timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _failure(error)

    def stream(
        self, url: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The raw exchange, for answers that are read as they come. Raises aiohttp's errors; sets no timeout."""
        return self.session.request(method, url, headers=headers, data=body, allow_redirects=False)

    async def close(self) -> None:
        """Close every connection."""
        await self.session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


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
            headers={"accept-encoding": "identity", "user-agent": "headway"},
            **session,
        )
    )


async def _read_up_to(content: aiohttp.StreamReader, cap: int) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    left = cap + 1
    while left > 0 and (piece := await content.read(min(READ_CHUNK_BYTES, left))):
        parts.append(piece)
        left -= len(piece)
    page = b"".join(parts)
    return page[:cap], len(page) > cap


def _failure(error: Exception) -> Failure:
    detail = str(error) or type(error).__name__
    match error:
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError(), host=host, port=port):
            return Failure(FailureKind.REFUSED, f"nobody listens at {host}:{port}")
        case aiohttp.ClientConnectorError(os_error=OSError(errno=number)) if number in SHORTAGES:
            return Failure(FailureKind.OURS, detail)
        case aiohttp.ClientConnectorError() | aiohttp.InvalidURL():
            return Failure(FailureKind.UNREACHABLE, detail)
        case _:
            return Failure(FailureKind.BROKEN, detail)
