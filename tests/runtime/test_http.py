"""The client is bounded, follows nobody, and turns what goes wrong into values."""

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from headway.runtime import clock
from headway.runtime.http import Answer, Failure, FailureKind, client
from tests.runtime.servers import Reply, serving

Run = Callable[[Any], Any]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Thing: Yes\r\n\r\nhello"


def fetch_from(run: Run, answer: bytes, delay_s: float = 0.0, **how: Any) -> tuple[Answer | Failure, list[bytes]]:
    async def story() -> tuple[Answer | Failure, list[bytes]]:
        async with serving({"/x": Reply(raw=answer, delay_s=delay_s)}) as served, client() as http:
            return await http.fetch(served.url + "/x", **how), served.heads

    return run(story())


def test_an_answer_has_status_and_body(run: Run) -> None:
    answer, heads = fetch_from(run, OK)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body, answer.cut) == (200, b"hello", False)
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


def test_a_body_without_a_length_ends_with_its_connection(run: Run) -> None:
    answer, _ = fetch_from(run, b"HTTP/1.1 200 OK\r\n\r\nhello")
    assert answer == Answer(200, b"hello")


def test_an_interim_answer_is_not_the_answer(run: Run) -> None:
    answer, _ = fetch_from(run, b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK)
    assert answer == Answer(200, b"hello")


def test_a_head_without_end_is_broken(run: Run) -> None:
    answer, _ = fetch_from(run, b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000)
    assert isinstance(answer, Failure)
    assert answer.kind is FailureKind.BROKEN


def exchanges(run: Run, *replies: Reply, **how: Any) -> tuple[list[Answer | Failure], list[int]]:
    """Ask once for each reply; the answers, and after each the number of connections that are open at the server."""

    async def story() -> tuple[list[Answer | Failure], list[int]]:
        answers, open_ones = [], []
        async with serving({}) as served, client() as http:
            for reply in replies:
                served.replies["/"] = reply
                answers.append(await http.fetch(served.url + "/", **how))
                await asyncio.sleep(0.01)
                open_ones.append(len(served.transports))
        return answers, open_ones

    return run(story())


def test_a_connection_is_used_again_only_if_its_answer_ended_where_it_said(run: Run) -> None:
    surplus, closing = (
        Reply(b"", headers=("content-length: 0", "HTTP/1.1 200 OK")),
        Reply(headers=("connection: close",)),
    )
    assert exchanges(run, Reply(), Reply(), Reply())[1] == [1, 1, 1]
    assert exchanges(run, Reply(), closing)[1] == [1, 0]
    assert exchanges(run, Reply(), surplus)[1] == [1, 0]
    assert exchanges(run, Reply(b"hello"), cap_bytes=2)[1] == [0]


@pytest.mark.parametrize(("method", "expected"), [("GET", Answer), ("POST", Failure)])
def test_a_pooled_connection_that_was_closed_is_replaced_for_a_get(run: Run, method: str, expected: type) -> None:
    async def story() -> Answer | Failure:
        async with serving({"/": Reply()}) as served, client() as http:
            await http.fetch(served.url + "/")
            served.replies["/"] = Reply(raw=b"")
            asking = asyncio.ensure_future(http.fetch(served.url + "/", method=method, body=b"x", timeout_s=20))
            await served.asked_for("/", 2)
            served.replies["/"] = Reply()
            return await asking

    assert isinstance(run(story()), expected)


def test_bytes_that_nobody_asked_for_end_a_connection(run: Run) -> None:
    async def story() -> int:
        async with serving({"/": Reply()}) as served, client() as http:
            await http.fetch(served.url + "/")
            next(iter(served.transports)).write(OK)
            await asyncio.sleep(0.01)
            assert isinstance(await http.fetch(served.url + "/"), Answer)
            return len(served.transports)

    assert run(story()) == 1


def test_idle_connections_are_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> tuple[int, int]:
        async with serving({"/": Reply()}) as left, serving({"/": Reply()}) as asked, client() as http:
            await http.fetch(left.url + "/")
            await http.fetch(asked.url + "/")
            later = clock.now() + 3.5
            monkeypatch.setattr(clock, "now", lambda: later)
            await http.fetch(asked.url + "/")
            await asyncio.sleep(0.01)
            return len(left.transports), len(asked.transports)

    assert run(story()) == (0, 1)


def test_credentials_of_the_url_are_sent_and_a_header_stays_one_line(run: Run) -> None:
    async def story() -> tuple[Answer | Failure, list[bytes]]:
        async with serving({"/x?q=1": Reply()}) as served, client() as http:
            url = served.url.replace("//", "//me:secret@") + "/x?q=1"
            await http.fetch(url, headers={"x-key": "k"})
            return await http.fetch(url, headers={"x-key": "k\r\nx-evil: 1"}), served.heads

    failure, heads = run(story())
    assert isinstance(failure, Failure)
    assert len(heads) == 1
    assert b"authorization: Basic bWU6c2VjcmV0\r\nx-key: k" in heads[0]


@pytest.mark.slow
def test_https_is_checked_against_the_given_trust(run: Run) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    trusting, offering = ssl.create_default_context(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.configure_trust(trusting)
    authority.issue_cert("127.0.0.1").configure_cert(offering)

    async def story() -> list[Answer | Failure]:
        async with serving({"/": Reply()}, tls=offering) as served:
            answers = []
            for tls in (trusting, None):
                async with client(tls=tls) as http:
                    answers.append(await http.fetch(served.url + "/"))
            return answers

    good, bad = run(story())
    assert isinstance(good, Answer)
    assert isinstance(bad, Failure)
    assert bad.kind is FailureKind.UNREACHABLE


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


def test_a_lack_of_descriptors_is_ours(run: Run) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story() -> Answer | Failure:
        async with serving({}) as served, client() as http:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                return await http.fetch(served.url)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

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
