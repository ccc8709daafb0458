"""A healthy engine and one that accepts and never answers: prints their URLs, serves until its input closes."""

import asyncio
import sys

import uvloop

from tests.observe.fakes import EXTRA, LOAD, MODELS, engine
from tests.runtime.servers import Reply, serving

SILENT = {path: Reply(delay_s=None) for path in (LOAD, EXTRA, "/health", MODELS)}


async def main() -> None:
    """Serve."""
    async with serving(engine()) as good, serving(SILENT) as hole:
        sys.stdout.write(f"{good.url} {hole.url}\n")
        sys.stdout.flush()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main())
