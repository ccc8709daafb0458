"""What a scripted engine does with a request. Each function makes one `Script`; `then` and `cut` combine them."""

import asyncio
import json
from collections.abc import Sequence

from tests.harness.engine import Connection, Script, Seen

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
LAST_CHUNK = b"0\r\n\r\n"
CHAT_ANSWER: dict[str, object] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
}
METRICS = (
    "# TYPE vllm:num_requests_running gauge\n"
    'vllm:num_requests_running{{engine="0",model_name="{model}"}} {running}\n'
    "# TYPE vllm:num_requests_waiting gauge\n"
    'vllm:num_requests_waiting{{engine="0",model_name="{model}"}} {waiting}\n'
    "# TYPE vllm:kv_cache_usage_perc gauge\n"
    'vllm:kv_cache_usage_perc{{engine="0",model_name="{model}"}} {kv_usage}\n'
    "# TYPE vllm:num_preemptions_total counter\n"
    'vllm:num_preemptions_total{{engine="0",model_name="{model}"}} 0.0\n'
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}",engine="0"}} 1.0\n'
)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse(data: object) -> bytes:
    """One event: JSON, or raw text when given bytes."""
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode()) + b"\n\n"


def token(text: str, finish: str | None = None, **more: object) -> bytes:
    """One content event of a chat stream."""
    return sse({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more})


def events(count: int, text: str = "t{i}") -> list[bytes]:
    """`count` content events, the last with a finish reason, then `[DONE]`."""
    made = [token(text.format(i=i), "stop" if i == count - 1 else None) for i in range(count)]
    return [*made, DONE]


def response(
    body: bytes, status: str = "200 OK", content_type: str = "application/json", headers: Sequence[str] = ()
) -> bytes:
    """A whole response with a length."""
    lines = [f"HTTP/1.1 {status}", f"content-type: {content_type}", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def raw(*pieces: bytes, gap_s: float = 0.0) -> Script:
    """Exactly these bytes, a pause between the pieces."""

    async def script(connection: Connection, _: Seen) -> None:
        for number, piece in enumerate(pieces):
            if number and gap_s and await connection.pause(gap_s):
                return
            await connection.send(piece)

    return script


def timed(pieces: Sequence[tuple[float, bytes]]) -> Script:
    """Each piece at its time (s after the request)."""

    async def script(connection: Connection, _: Seen) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for at, piece in pieces:
            if await connection.pause(max(0.0, began + at - loop.time())):
                return
            await connection.send(piece)

    return script


def answer(
    body: object = CHAT_ANSWER, status: str = "200 OK", headers: Sequence[str] = (), after_s: float = 0
) -> Script:
    """A JSON answer (bytes are sent as they are), after a while."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return timed([(after_s, response(data, status, headers=headers))])


def error(status: int, message: str = "no", headers: Sequence[str] = ()) -> Script:
    """An error as vLLM words it."""
    body = {"error": {"message": message, "type": "Error", "param": None, "code": status}}
    return answer(body, f"{status} Error", headers)


def stream(count: int = 5, gap_s: float = 0.0, pieces: Sequence[bytes] | None = None) -> Script:
    """A chunked event stream, one chunk per event, properly ended."""
    body = [chunk(piece) for piece in (pieces if pieces is not None else events(count))]
    return raw(STREAM_HEAD, *body, LAST_CHUNK, gap_s=gap_s)


def stall(before: bytes = b"") -> Script:
    """Send this much, then say nothing until the peer leaves."""

    async def script(connection: Connection, _: Seen) -> None:
        if before:
            await connection.send(before)
        await connection.gone.wait()

    return script


def cut(data: bytes, how: str, after_s: float = 0.0) -> Script:
    """Send this much, then leave: "fin" or "rst"."""

    async def script(connection: Connection, _: Seen) -> None:
        if data:
            await connection.send(data)
            await asyncio.sleep(max(after_s, 0.002))  # an RST at once would overtake the bytes
        (connection.rst if how == "rst" else connection.fin)()

    return script


def rst_after(data: bytes, count: int) -> Script:
    """RST after `count` bytes of this response."""
    return cut(data[:count], "rst")


def fin_after(data: bytes, count: int) -> Script:
    """FIN after `count` bytes of this response."""
    return cut(data[:count], "fin")


def then_close(script: Script, how: str = "fin", after_s: float = 0.0) -> Script:
    """Answer, then close the connection without having announced it."""

    async def both(connection: Connection, seen: Seen) -> None:
        await script(connection, seen)
        await asyncio.sleep(after_s)
        (connection.rst if how == "rst" else connection.fin)()

    return both


def metrics_page(
    model: str = "m", running: float = 0, waiting: float = 0, kv_usage: float = 0, blocks: int = 1024
) -> bytes:
    """A vLLM-like metrics page."""
    return METRICS.format(model=model, running=running, waiting=waiting, kv_usage=kv_usage, blocks=blocks).encode()


def vllm_paths(model: str = "m", **gauges: float) -> dict[str, Script]:
    """What a healthy vLLM answers on its side doors."""
    models = {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "vllm", "max_model_len": 8192}]}
    page = metrics_page(model, **gauges)  # type: ignore[arg-type]
    return {
        "/health": raw(response(b"")),
        "/v1/models": answer(models),
        "/metrics": raw(response(page, content_type="text/plain; version=0.0.4; charset=utf-8")),
        "/version": answer({"version": "0.32.0"}),
    }
