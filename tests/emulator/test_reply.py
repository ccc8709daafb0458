"""A client that leaves frees the engine at once, in a stream as well as in a plain request."""

import http.client
import json
import socket
import time

import pytest

from tests.emulator.process import EmulatorProcess
from tests.emulator.wire import post

BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1500, "ignore_eos": True}


def open_request(port: int, **fields: object) -> socket.socket:
    """A request that has been sent, on a bare socket."""
    body = json.dumps({**BODY, **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnect_frees_the_blocks(slow: EmulatorProcess, stream: bool) -> None:
    connection = open_request(slow.port, stream=stream)
    slow.wait_for(running=1)
    connection.close()
    slow.wait_for(running=0, kv_blocks_used=0)


def test_one_that_waits_is_dropped_too(slow: EmulatorProcess) -> None:
    running = [open_request(slow.port, stream=True) for _ in range(2)]
    slow.wait_for(running=2)
    waiting = open_request(slow.port, stream=True)
    slow.wait_for(waiting=1)
    waiting.close()
    slow.wait_for(waiting=0, running=2)
    for connection in running:
        connection.close()
    slow.wait_for(running=0, kv_blocks_used=0)


def test_tokens_come_one_by_one_at_the_engines_speed(slow: EmulatorProcess) -> None:
    connection = open_request(slow.port, stream=True, max_tokens=20)
    times = []
    data = b""
    while b"[DONE]" not in data:
        data += connection.recv(65536)
        times.append(time.monotonic())
    connection.close()
    step = 0.007  # an 8B model on an H100: 7 ms a token
    assert len(times) > 15
    assert 0.6 * 19 * step < times[-1] - times[0] < 30 * 19 * step


def test_connections_are_kept_open(tiny: EmulatorProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=5)
    connection.request("POST", "/v1/completions", '{"prompt": "x", "max_tokens": 1}')
    assert connection.getresponse().read()
    used = connection.sock
    connection.request("GET", "/health")
    assert connection.getresponse().status == 200
    assert connection.sock is used
    connection.close()


def test_a_client_that_reads_nothing_does_not_stop_the_engine(slow: EmulatorProcess) -> None:
    sleeper = open_request(slow.port, stream=True)
    got = post(slow.port, "/v1/chat/completions", {**BODY, "max_tokens": 5})
    assert got.json["usage"]["completion_tokens"] == 5
    sleeper.close()
    slow.wait_for(running=0)
