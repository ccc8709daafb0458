"""The client is bounded, follows nobody, and turns what goes wrong into values."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from headway.runtime.http import Answer, Failure, FailureKind, client
from tests.runtime.servers import Reply, serving

Run = Callable[[Any], Any]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Thing: Yes\r\n\r\nhello"


def fetch_from(run: Run, answer: bytes, delay_s: float = 0.0, **how: Any) -> tuple[Answer | Failure, list[bytes]]:
    async def story() -> tuple[Answer | Failure, list[bytes]]:
        async with serving({"/x": Reply(raw=answer, delay_s=delay_s)}) as served, client() as http:
            return await http.fetch(served.url + "/x", **how), served.heads

    return run(story())


def test_an_answer_has_status_lower_case_headers_and_body(run: Run) -> None:
    answer, heads = fetch_from(run, OK)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.headers["x-thing"], answer.body, answer.cut) == (200, "Yes", b"hello", False)
    assert b"accept-encoding: identity" in heads[0].lower()


def test_a_redirect_is_an_answer_and_is_not_followed(run: Run) -> None:
    answer, heads = fetch_from(run, b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n")
    assert isinstance(answer, Answer)
    assert (answer.status, len(heads)) == (302, 1)


def test_proxies_of_the_environment_are_not_used(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    answer, _ = fetch_from(run, OK)
    assert isinstance(answer, Answer)


@pytest.mark.parametrize(("cap", "body", "cut"), [(4, b"hell", True), (5, b"hello", False), (6, b"hello", False)])
def test_a_body_longer_than_the_cap_is_cut(run: Run, cap: int, body: bytes, cut: bool) -> None:
    answer, _ = fetch_from(run, OK, cap_bytes=cap)
    assert isinstance(answer, Answer)
    assert (answer.body, answer.cut) == (body, cut)


def test_a_compressed_body_is_not_unfolded(run: Run) -> None:
    squeezed = b"\x1f\x8b\x08\x00 no gzip at all"
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(squeezed)}\r\n\r\n".encode()
    answer, _ = fetch_from(run, head + squeezed)
    assert isinstance(answer, Answer)
    assert answer.body == squeezed


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", FailureKind.BROKEN),
        (b"not http at all\r\n\r\n", FailureKind.BROKEN),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", FailureKind.BROKEN),
    ],
)
def test_garbage_and_truncation_are_failures(run: Run, raw: bytes, kind: FailureKind) -> None:
    answer, _ = fetch_from(run, raw)
    assert isinstance(answer, Failure)
    assert answer.kind is kind


def test_silence_is_a_timeout(run: Run) -> None:
    answer, _ = fetch_from(run, OK, delay_s=0.2, timeout_s=0.05)
    assert isinstance(answer, Failure)
    assert answer.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_closed_port_is_refused(run: Run, host: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else can take the port
        port = taken.getsockname()[1]

        async def story() -> Answer | Failure:
            async with client() as http:
                return await http.fetch(f"http://{host}:{port}/")

        failure = run(story())
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.REFUSED
    assert str(failure).startswith("refused: nobody listens at ")


@pytest.mark.parametrize("url", ["http://", "nonsense", "http://name.invalid/"])
def test_an_address_that_is_none_is_unreachable(run: Run, url: str) -> None:
    async def story() -> Answer | Failure:
        async with client() as http:
            return await http.fetch(url)

    failure = run(story())
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.UNREACHABLE


def test_a_lack_of_descriptors_is_ours(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_args: object, **_more: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def story() -> Answer | Failure:
        async with serving({}) as served, client() as http:
            monkeypatch.setattr("socket.socket", none_left)
            failure = await http.fetch(served.url)
            monkeypatch.undo()
            return failure

    failure = run(story())
    assert isinstance(failure, Failure)
    assert failure.kind is FailureKind.OURS


def test_more_than_a_hundred_exchanges_run_at_once(run: Run) -> None:
    async def story() -> int:
        async with serving({"/": Reply(delay_s=None)}) as served, client() as http:
            asking = [asyncio.ensure_future(http.fetch(served.url + "/", timeout_s=20)) for _ in range(300)]
            await served.asked_for("/", 300)
            for question in asking:
                question.cancel()
            await asyncio.wait(asking)
            return served.asked["/"]

    assert run(story()) == 300
