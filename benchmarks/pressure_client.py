"""An open-loop client for the pressure runs: raw keep-alive connections, headers of each request's own, and retries as
Retry-After says.

What lives here: what was sent and what came back, with times. What must not: what is good or bad about it. The bench
of the product (`headway.bench`) is not used, because these clients differ from each other: tenants, tiers, deadlines,
hints, obedience.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from headway.workload.request import Segment
from headway.workload.stats import Slo
from headway.workload.text import segment_text

SLO = Slo()
_TEXT = re.compile(rb'"content":"[^"]')
_OUTPUT = re.compile(rb'"completion_tokens":(\d+)')
_PROMPT = re.compile(rb'"prompt_tokens":(\d+)')
_TAIL = 512
"""The last event with its usage report fits."""


class Ask(msgspec.Struct, frozen=True):
    """One request: when it is due (s from the start of its run), its body, further header lines, and a word for it."""

    due_s: float
    body: bytes
    headers: str = ""
    tag: str = ""


class Seen(msgspec.Struct):
    """One try of one request. Times are seconds from the run's start; `status` 0: the connection broke.

    `waited`: it was refused after it had been held. `first_s`, `last_s`: first and last text. `hints`: when a 103 came,
    and the position in it. `tries`: which try of its request this is, from 1. `whole`: the answer came to its proper
    end.
    """

    tag: str
    due_s: float
    sent_s: float = 0.0
    end_s: float = 0.0
    first_s: float = 0.0
    last_s: float = 0.0
    status: int = 0
    code: str = ""
    waited: bool = False
    retry_after_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    tries: int = 1
    whole: bool = False
    hints: list[tuple[float, int]] = []

    @property
    def ok(self) -> bool:
        """Answered in full."""
        return self.status == 200 and self.whole

    @property
    def refused(self) -> bool:
        """Refused by status, with a code of ours."""
        return self.status in (429, 503, 504) and bool(self.code)

    @property
    def ttft_s(self) -> float:
        """From when it was due to its first text."""
        return self.first_s - self.due_s

    @property
    def took_s(self) -> float:
        """From when it was sent to the end of the answer."""
        return self.end_s - self.sent_s

    @property
    def good(self) -> bool:
        """It met both objectives."""
        if not self.ok or not self.first_s or self.ttft_s > SLO.ttft_limit_s(self.prompt_tokens):
            return False
        return self.output_tokens < 2 or (self.last_s - self.first_s) / (self.output_tokens - 1) <= SLO.tpot_s

    @property
    def tokens(self) -> int:
        """What it was served, as tenants are charged: its input once, its output twice."""
        return self.prompt_tokens + 2 * self.output_tokens if self.ok else 0


class Wire(asyncio.Protocol):
    """One connection, with at most one request under way."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._head = b""
        self._left = -1
        self._tail = b""
        self._body = b""
        self._seen: Seen | None = None
        self._done: asyncio.Future[None] | None = None
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.open = True

    async def ask(self, request: bytes, seen: Seen) -> None:
        """Send a request and wait for the end of its answer; it is all written into `seen`."""
        self._head, self._tail, self._body, self._left, self._seen = b"", b"", b"", -1, seen
        self._done = asyncio.get_running_loop().create_future()
        seen.sent_s = self._now()
        self._transport.write(request)
        try:
            await self._done
        finally:
            self._done = None
            if not seen.whole:
                self.close()

    def close(self) -> None:
        """Give the connection up."""
        self.open = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        seen = self._seen
        if self._done is None or seen is None:
            return
        if seen.status == 0:
            self._head += data
            while seen.status == 0 and (end := self._head.find(b"\r\n\r\n")) >= 0:
                head, self._head = self._head[:end].lower().decode("latin-1"), self._head[end + 4 :]
                self._read_head(head, seen)
            if seen.status == 0:
                return
            data = self._head
        if self._left >= 0:
            self._body += data
            if len(self._body) >= self._left:
                self._whole(seen)
        else:
            self._stream(data, seen)

    def _read_head(self, head: str, seen: Seen) -> None:
        lines = head.split("\r\n")
        status = int(lines[0].split(" ")[1])
        fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        if status < 200:
            seen.hints.append((self._now(), int(fields.get("x-queue-position", 0))))
            return
        seen.status = status
        seen.retry_after_s = float(fields.get("retry-after", 0))
        self._left = int(fields["content-length"]) if "content-length" in fields else -1

    def _stream(self, data: bytes, seen: Seen) -> None:
        window = self._tail + data
        if _TEXT.search(data) or (not seen.first_s and _TEXT.search(window)):
            seen.last_s = self._now()
            seen.first_s = seen.first_s or seen.last_s
        self._tail = window[-_TAIL:]
        if window.endswith(b"0\r\n\r\n"):
            output, prompt = _OUTPUT.search(window), _PROMPT.search(window)
            seen.output_tokens = int(output[1]) if output else 0
            seen.prompt_tokens = int(prompt[1]) if prompt else 0
            seen.whole = b"[DONE]" in self._tail
            self._end(seen)

    def _whole(self, seen: Seen) -> None:
        seen.whole = True
        if seen.status != 200:
            error = json.loads(self._body or b"{}").get("error") or {}
            seen.code = str(error.get("code") or "")
            seen.waited = seen.code == "queue_timeout" or "the request waited" in str(error.get("message"))
        self._end(seen)

    def _end(self, seen: Seen) -> None:
        seen.end_s = self._now()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._seen is not None and self._done is not None and not self._done.done():
            self._end(self._seen)


class Load:
    """Requests at their due moments, whatever becomes of earlier ones. `obeys`: refused ones come back when they were
    told to, so often at most."""

    def __init__(self, port: int, name: str, obeys: int = 0) -> None:
        self.seen: list[Seen] = []
        self._port, self._name, self._obeys = port, name, obeys
        self._idle: list[Wire] = []
        self._origin = time.perf_counter()
        self.alive = 0

    def now(self) -> float:
        """Seconds from the start of the run."""
        return time.perf_counter() - self._origin

    async def run(self, asks: Sequence[Ask], patience_s: float = 90.0) -> list[Seen]:
        """Send everything and wait for all answers, so long at most after the last is due. Every try is in the list,
        in order of its end; those that never ended have the code `open`."""
        self._origin = time.perf_counter() + 0.05
        teller = asyncio.create_task(self._tell(len(asks)))
        tasks = []
        for ask in sorted(asks, key=lambda ask: ask.due_s):
            if (wait := ask.due_s - self.now()) > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(self._one(ask)))
        _, late = await asyncio.wait(tasks, timeout=patience_s) if tasks else (None, [])
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        teller.cancel()
        for wire in self._idle:
            wire.close()
        return self.seen

    async def _one(self, ask: Ask) -> None:
        due = ask.due_s
        for tries in range(1, self._obeys + 2):
            seen = Seen(ask.tag, due, tries=tries, hints=[])
            self.alive += 1
            try:
                await self._try(ask, seen)
            except asyncio.CancelledError:
                seen.code, seen.end_s = "open", self.now()
                raise
            finally:
                self.alive -= 1
                self.seen.append(seen)
            if not seen.refused or not seen.retry_after_s:
                return
            if tries <= self._obeys:
                await asyncio.sleep(seen.retry_after_s)
                due = self.now()

    async def _try(self, ask: Ask, seen: Seen) -> None:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\n"
            f"content-type: application/json\r\n{ask.headers}content-length: {len(ask.body)}\r\n\r\n"
        )
        wire = await self._wire()
        await wire.ask(head.encode() + ask.body, seen)
        if wire.open:
            self._idle.append(wire)

    async def _wire(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.open:
                return wire
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(lambda: Wire(self.now), "127.0.0.1", self._port)
        return wire

    async def _tell(self, total: int) -> None:
        """Where it stands, on standard error, every five seconds."""
        while True:
            await asyncio.sleep(5.0)
            good = sum(seen.good for seen in self.seen)
            refused = sum(seen.refused for seen in self.seen)
            print(
                f"  {self._name}: {self.now():5.0f} s, {len(self.seen)} of {total} tries ended ({good} good, "
                f"{refused} refused), {self.alive} under way",
                file=sys.stderr,
                flush=True,
            )


class Mix(msgspec.Struct, frozen=True):
    """What requests are like. Prompts are drawn evenly around `prompt_tokens` (a half to three halves); the engine ends
    answers where it likes, `max_tokens` at the latest."""

    prompt_tokens: int = 120
    max_tokens: int = 160


def arrivals(
    rate: float,
    until_s: float,
    mix: Mix,
    seed: int,
    *,
    since_s: float = 0.0,
    headers: str = "",
    tag: str = "",
) -> Iterator[Ask]:
    """A Poisson process of requests per second in [since_s, until_s). No two prompts share a beginning."""
    chance = np.random.default_rng(seed)
    at, number = since_s, seed * 1_000_000
    while rate > 0 and (at := at + chance.exponential(1.0 / rate)) < until_s:
        number += 1
        tokens = int(chance.integers(mix.prompt_tokens // 2, mix.prompt_tokens * 3 // 2 + 1))
        yield Ask(float(at), body(segment_text(Segment(number, tokens)), mix), headers, tag)


def body(prompt: str, mix: Mix) -> bytes:
    """A streamed chat request that asks for its usage."""
    return json.dumps(
        {
            "model": "m",
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": mix.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
