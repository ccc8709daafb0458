"""A raw closed-loop load client for measuring proxies: keep-alive connections, no HTTP library in the way."""

import asyncio
import json
import socket
import subprocess
import time

PROMPT = "The quick brown fox jumps over the lazy dog near the river bank. " * 27


def request(port: int, stream: bool, stamp: bool, number: int) -> bytes:
    """A 2 kB chat request; the number makes prompts differ after the shared system text."""
    message = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{number} {PROMPT}"}]
    body = json.dumps({"model": "bench", "messages": message, "max_tokens": 64}, separators=(",", ":"))[:-1]
    body += (',"stream":true' if stream else "") + (',"metadata":{"stamp":true}' if stamp else "") + "}"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    head += f"user-agent: bench/1\r\naccept: */*\r\ncontent-length: {len(body)}\r\n\r\n"
    return (head + body).encode()


class Client(asyncio.Protocol):
    """One keep-alive connection that sends requests one after the other, until the shared counter is used up."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.tail = b""
        self.left = -1
        self.sent = 0.0
        self.active = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.next()

    def next(self) -> None:
        self.active = self.load.take()
        if not self.active:
            self.transport.close()
            return
        self.tail, self.left, self.sent = b"", -1, time.perf_counter()
        self.transport.write(request(self.load.port, self.load.stream, self.load.stamp, self.load.started))

    def data_received(self, data: bytes) -> None:
        if self.load.stamp:
            self.lag(data)
        if self.load.stream:
            self.tail = (self.tail + data)[-64:]
            if self.tail.endswith(b"0\r\n\r\n") and b"[DONE]" in self.tail:
                self.done()
            return
        if self.left < 0:
            self.tail += data
            end = self.tail.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.tail[:end].lower()
            if not head.startswith(b"http/1.1 200"):
                self.load.broken += 1
            at = head.find(b"content-length:")
            self.left = int(head[at + 15 :].split(b"\r\n", 1)[0]) - (len(self.tail) - end - 4)
        else:
            self.left -= len(data)
        if self.left == 0:
            self.done()

    def lag(self, data: bytes) -> None:
        at = data.rfind(b'"sent_ns":')
        if at >= 0 and len(data) >= at + 29:
            self.load.lags.append((time.monotonic_ns() - int(data[at + 10 : at + 29])) / 1e9)

    def done(self) -> None:
        self.load.times.append(time.perf_counter() - self.sent)
        self.active = False
        self.next()

    def connection_lost(self, error: Exception | None) -> None:
        if self.active:
            self.load.broken += 1
        self.load.closed()


class Load:
    """A bounded closed loop: `total` requests over `connections` connections."""

    def __init__(self, port: int, total: int, connections: int, stream: bool, stamp: bool = False) -> None:
        self.port, self.total, self.connections, self.stream, self.stamp = port, total, connections, stream, stamp
        self.started = self.broken = 0
        self.times: list[float] = []
        self.lags: list[float] = []
        self.open = connections
        self.finished = asyncio.Event()

    def take(self) -> bool:
        if self.started >= self.total:
            return False
        self.started += 1
        return True

    def closed(self) -> None:
        self.open -= 1
        if self.open == 0:
            self.finished.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(self.connections):
            await loop.create_connection(lambda: Client(self), "127.0.0.1", self.port)
        await asyncio.wait_for(self.finished.wait(), 300)


def wait_ready(port: int, process: subprocess.Popen[bytes] | None, name: str) -> None:
    """Wait until a chat request through the port is answered with 200."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if process and process.poll() is not None:
            raise SystemExit(f"{name} ended with status {process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", port), 2) as s:
                s.sendall(request(port, False, False, 0))
                s.settimeout(2)
                if b" 200 " in s.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{name} did not answer within 60 s")
