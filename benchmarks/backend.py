"""Two trivial engines in one process, so that what is measured is the proxy: canned answers, one write per event.

Usage: python benchmarks/backend.py PORT PORT ... [--gap-ms 2] [--events 65]. A POST whose body asks for a stream
gets that many events, one every `gap` ms; other POSTs get a JSON answer; GETs get what routers ask an engine for.
"""

import argparse
import asyncio
import json
import random
import time

import uvloop

ANSWER = json.dumps(
    {
        "id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "word " * 64}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 400, "completion_tokens": 64, "total_tokens": 464},
    }
).encode()  # fmt: skip
PLAIN = b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
    ANSWER
)
STREAM = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
HEAD = '"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1795977686,"model":"bench"'


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(delta: str, finish: str, stamp: bool = False) -> bytes:
    sent = f',"sent_ns":{time.monotonic_ns():019d}' if stamp else ""
    choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}'
    text = f'{{{HEAD},"choices":[{choice}]{sent}}}'
    return _chunk(b"data: " + text.encode() + b"\n\n")


FIRST = _event('{"role":"assistant","content":""}', "null")
LAST = _event("{}", '"stop"') + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
MODELS = {"object": "list", "data": [{"id": "bench", "object": "model", "owned_by": "vllm", "max_model_len": 131072}]}
METRICS = """vllm:num_requests_running{engine="0",model_name="bench"} 1.0
vllm:num_requests_waiting{engine="0",model_name="bench"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="bench"} 0.1
vllm:num_preemptions_total{engine="0",model_name="bench"} 0.0
vllm:prefix_cache_queries_total{engine="0",model_name="bench"} 0.0
vllm:prefix_cache_hits_total{engine="0",model_name="bench"} 0.0
vllm:prompt_tokens_total{engine="0",model_name="bench"} 0.0
vllm:generation_tokens_total{engine="0",model_name="bench"} 0.0
vllm:engine_sleep_state{engine="0",model_name="bench",sleep_state="awake"} 1.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="262144",kv_cache_size_tokens="4194304"} 1.0
"""
GETS = {
    b"/v1/models": json.dumps(MODELS).encode(),
    b"/version": b'{"version":"0.32.0"}',
    b"/metrics": METRICS.encode(),
    b"/get_model_info": b'{"model_path":"bench","is_generation":true}',
    b"/model_info": b'{"model_path":"bench","is_generation":true}',
    b"/get_server_info": b'{"model_path":"bench","served_model_name":"bench","max_total_num_tokens":4194304}',
    b"/server_info": b'{"model_path":"bench","served_model_name":"bench","max_total_num_tokens":4194304}',
}


class Backend(asyncio.Protocol):
    """One connection: reads heads and content-length bodies, answers in order."""

    def __init__(self, gap_s: float, events: int) -> None:
        self.gap_s, self.events = gap_s, events
        self.buffer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if b"transfer-encoding: chunked" in head:
                stop = self.buffer.find(b"0\r\n\r\n", end + 4)
                if stop < 0:
                    return
                length = stop + 5 - end - 4
            if len(self.buffer) < end + 4 + length:
                return
            body = self.buffer[end + 4 : end + 4 + length]
            line = self.buffer[: self.buffer.find(b"\r\n")]
            self.buffer = self.buffer[end + 4 + length :]
            self.answer(line, body)

    def answer(self, line: bytes, body: bytes) -> None:
        if line.count(b" ") != 2 or not line.endswith(b"HTTP/1.1"):  # some routers try gRPC first
            self.transport.close()
            return
        method, target = line.split(b" ")[:2]
        if method != b"POST":
            page = GETS.get(target.split(b"?")[0], b"")
            kind = b"text/plain" if target.startswith(b"/metrics") else b"application/json"
            head = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(page))
            self.transport.write(head + page)
        elif b'"stream":true' in body or b'"stream": true' in body:
            self.transport.write(STREAM + FIRST)
            loop = asyncio.get_running_loop()
            loop.call_later(random.random() * self.gap_s, self.event, self.events - 2, b'"stamp":true' in body)
        else:
            self.transport.write(PLAIN + ANSWER)

    def event(self, left: int, stamp: bool) -> None:
        if self.transport.is_closing():
            return
        if left == 0:
            self.transport.write(LAST)
            return
        self.transport.write(_event('{"content":" word"}', "null", stamp))
        asyncio.get_running_loop().call_later(self.gap_s, self.event, left - 1, stamp)


async def main(ports: list[int], gap_s: float, events: int) -> None:
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(lambda: Backend(gap_s, events), "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("ports", type=int, nargs="+")
    parser.add_argument("--gap-ms", type=float, default=2.0)
    parser.add_argument("--events", type=int, default=65, help="events of one stream")
    arguments = parser.parse_args()
    uvloop.run(main(arguments.ports, arguments.gap_ms / 1e3, arguments.events))
