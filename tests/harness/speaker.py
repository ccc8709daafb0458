"""A scripted engine that really generates: each token depends on all before it, as on an emulated vLLM.

So that a request which was moved in the middle says the same as one that was not, or the difference shows. What lives
here: saying it, at a pace, and failing on the way as a test wants. The tokens are `tests.wire.engine`'s.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tests.harness import scripts
from tests.harness.engine import Connection, Script, Seen
from tests.wire.engine import CHAT, COMPLETIONS, detokenise, framed, stream, whole

MODEL = "tiny"


@dataclass(frozen=True)
class Trouble:
    """How an answer fails: after so many bytes of its stream, in one of `WAYS`."""

    at: int
    way: str


WAYS = ("rst", "fin", "last", "hang", "abort", "error", "early")
"""RST; FIN; the last chunk too early; silence; finish reason "abort"; an error event; a status 503 before anything."""


@lru_cache(4096)
def said(path: str, body: bytes, name: str) -> bytes:
    """The whole stream for a request."""
    return framed(stream(path, body, name))


class Speaker:
    """Scripts of one engine. `trouble(seen)` says whether and how an answer fails; `sent(seen)` is called after each
    piece. `piece`: bytes at a time, `gap_s` between them."""

    def __init__(
        self,
        name: str,
        trouble: Callable[[Seen], Trouble | None] = lambda _seen: None,
        piece: Callable[[], int] = lambda: 0,
        gap_s: float = 0.0,
        sent: Callable[[Seen], None] = lambda _seen: None,
    ) -> None:
        self.name = name
        self.trouble = trouble
        self.piece = piece
        self.gap_s = gap_s
        self.sent = sent

    def paths(self) -> dict[str, Script]:
        """All that this engine answers."""
        return {
            **scripts.vllm_paths(MODEL),
            "/detokenize": self._detokenise,
            CHAT: self._speak,
            COMPLETIONS: self._speak,
        }

    async def _detokenise(self, connection: Connection, seen: Seen) -> None:
        ids = json.loads(seen.request.body)["tokens"]
        await scripts.answer({"prompt": detokenise(ids)})(connection, seen)

    async def _speak(self, connection: Connection, seen: Seen) -> None:
        if not json.loads(seen.request.body).get("stream"):
            answer = whole(seen.request.path, bytes(seen.request.body), f"{self.name}-{seen.connection}-{seen.number}")
            await connection.send(scripts.response(answer))
            return
        data = said(seen.request.path, bytes(seen.request.body), f"{self.name}-{seen.connection}-{seen.number}")
        trouble = self.trouble(seen)
        if trouble is not None and trouble.way == "early":
            await scripts.error(503, "busy")(connection, seen)
            return
        await connection.send(scripts.STREAM_HEAD)
        for piece in self._pieces(data if trouble is None else data[: trouble.at]):
            await connection.send(scripts.chunk(piece))
            self.sent(seen)
            if connection.gone.is_set() or (self.gap_s and await connection.pause(self.gap_s)):
                return
        if trouble is None:
            await connection.send(scripts.LAST_CHUNK)
        else:
            await self._fail(trouble, data, connection)

    def _pieces(self, data: bytes) -> Sequence[bytes]:
        """An event at a time, or so many bytes."""
        size = self.piece()
        if size:
            return [data[at : at + size] for at in range(0, len(data), size)]
        return re.findall(rb"(?s).+?(?:\n\n|$)", data)

    async def _fail(self, trouble: Trouble, data: bytes, connection: Connection) -> None:
        whole = data.rfind(b"\n\n", 0, trouble.at) + 2 == trouble.at or trouble.at == 0
        if trouble.way in ("abort", "error"):
            rest = b"" if whole else data[trouble.at : data.find(b"\n\n", trouble.at) + 2]
            event = {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}
            if trouble.way == "abort":
                event = {"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": "abort"}]}
            await connection.send(scripts.chunk(rest + scripts.sse(event)))
            await connection.send(scripts.chunk(scripts.DONE) + scripts.LAST_CHUNK)
        elif trouble.way == "last":
            await connection.send(scripts.LAST_CHUNK)
        elif trouble.way == "hang":
            await connection.gone.wait()
        else:
            await asyncio.sleep(0.002)  # an RST at once would overtake the bytes
            (connection.rst if trouble.way == "rst" else connection.fin)()
