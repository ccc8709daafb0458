"""Two URLs of one engine: what it can take would be counted twice. Names are resolved here.

Only ever a warning: behind one address may be a proxy that tells its engines by the name they were asked for.
"""

import asyncio
import socket
from collections.abc import Iterable
from itertools import combinations
from urllib.parse import urlsplit

TWINS = "two replicas are at one address: if it is one engine, it is counted twice"
PORTS = {"http": 80, "https": 443}


async def twins(urls: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of URLs that lead to one address, port and path. Names that cannot be resolved have no twins."""
    listed = list(urls)
    places = dict(zip(listed, await asyncio.gather(*map(_places, listed)), strict=True))
    return tuple((a, b) for a, b in combinations(listed, 2) if places[a] & places[b])


async def _places(url: str) -> frozenset[tuple[str, int, str]]:
    parts = urlsplit(url)
    port = parts.port or PORTS[parts.scheme]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset((str(address[0]), port, parts.path) for *_, address in found)
