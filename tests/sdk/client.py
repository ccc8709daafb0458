"""One run of the official OpenAI SDK, whatever version is on the path: `client.py BASE_URL NAME...`.

Asks each scenario by name, twice: with the blocking client and with the asynchronous one. Prints one JSON object: the
version, and for each scenario and client what came of it: the text that was read, the class of the exception and where
it is from, the HTTP status, the seconds it took. Run in a process of its own, so that versions do not meet.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import openai

MESSAGES: Any = [{"role": "user", "content": "hi"}]
TIMEOUT_S = 4.0
AT_ONCE = 8


def call(name: str) -> dict[str, Any]:
    """The arguments of a scenario's request: names ending in `+` stream, `retry...` allows retries."""
    return {
        "model": "nobody" if name == "unknown_model" else "m",
        "messages": MESSAGES,
        "stream": name.endswith("+"),
        "extra_headers": {"X-Scenario": name},
        "timeout": 0.5 if name.startswith("client_timeout") else TIMEOUT_S,
    }


def retries(name: str) -> int:
    """How often the SDK itself may try again."""
    return 2 if name.startswith("retry") else 0


def told(error: BaseException) -> dict[str, Any]:
    """What is to be known of an exception."""
    return {
        "raised": type(error).__name__,
        "from": type(error).__module__.partition(".")[0],
        "typed": isinstance(error, openai.OpenAIError),
        "status": getattr(error, "status_code", None),
        "message": str(error),
    }


def blocking(client: openai.OpenAI, name: str) -> str:
    """Ask with the blocking client; the text."""
    answer: Any = client.with_options(max_retries=retries(name)).chat.completions.create(**call(name))
    if not name.endswith("+"):
        return str(answer.choices[0].message.content)
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


async def waiting(client: openai.AsyncOpenAI, name: str) -> str:
    """Ask with the asynchronous client; the text."""
    answer: Any = await client.with_options(max_retries=retries(name)).chat.completions.create(**call(name))
    if not name.endswith("+"):
        return str(answer.choices[0].message.content)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in answer if chunk.choices])


async def main(base_url: str, *names: str) -> None:
    """Ask everything, a few at a time; print everything."""
    outcomes: dict[str, dict[str, Any]] = {}
    gate = asyncio.Semaphore(AT_ONCE)

    async def note(key: str, ask: Callable[[], Awaitable[str]]) -> None:
        async with gate:
            began = time.monotonic()
            try:
                came = {"text": await ask()}
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test wants to know
                came = told(error)
            outcomes[key] = {"seconds": time.monotonic() - began, **came}

    with openai.OpenAI(base_url=base_url, api_key="x") as client:
        await asyncio.gather(
            *(note(f"{name} blocking", partial(asyncio.to_thread, blocking, client, name)) for name in names)
        )
    async with openai.AsyncOpenAI(base_url=base_url, api_key="x") as other:
        await asyncio.gather(*(note(f"{name} waiting", partial(waiting, other, name)) for name in names))
    sys.stdout.write(json.dumps({"version": openai.__version__, "outcomes": outcomes}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
