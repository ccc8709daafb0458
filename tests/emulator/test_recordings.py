"""Byte for byte where it can be, else field by field in order: the emulator's answers against recorded ones."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.process import EmulatorProcess
from tests.emulator.wire import Got, exchange, get, post, shape

ERRORS = [
    "err-bad-json",
    "err-bad-token-id",
    "err-bad-type",
    "err-content-type",
    "err-empty-messages",
    "err-empty-prompt",
    "err-max-tokens-neg",
    "err-max-tokens-too-big",
    "err-max-tokens-zero",
    "err-missing-messages",
    "err-temp-range",
    "err-tools-auto-off",
    "err-unknown-model",
    "err-unknown-model-completions",
]
WHOLE = [
    "chat-nonstream",
    "completions-nonstream-ids",
    "completions-nonstream-text",
    "unknown-field",
    "detokenize",
    "tokenize-chat",
    "tokenize-prompt",
    "err-unknown-model",
]
STREAMS = [
    "chat-stream",
    "chat-stream-usage",
    "chat-stream-usage-continuous",
    "chat-stream-tokenids",
    "chat-stream-n2",
    "completions-stream-ids",
]
GETS = ["models", "version", "health", "ping", "load"]


def recorded(shared: Path, name: str) -> Got:
    """A recorded answer; chunked bodies are taken from their decoded file."""
    folder = shared / "fixtures" / "vllm"
    head, _, body = (folder / f"{name}.http").read_bytes().partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = [tuple(line.lower().split(": ", 1)) for line in lines[1:]]
    if ("transfer-encoding", "chunked") in headers:
        body = (folder / f"{name}.body").read_bytes()
    return Got(int(lines[0].split()[1]), headers, body)  # type: ignore[arg-type]


def asked(shared: Path, name: str) -> bytes:
    return (shared / "fixtures" / "vllm" / f"{name}.req").read_bytes()


def path_of(body: bytes, name: str) -> str:
    if name.startswith(("tokenize", "detokenize")):
        return f"/{name.partition('-')[0]}"
    return "/v1/chat/completions" if b'"messages"' in body or "missing" in name else "/v1/completions"


def header_names(got: Got) -> list[str]:
    """In order, without those that the connection or middleware of that recording added."""
    return [name for name, _value in got.headers if name not in {"connection", "x-request-id"}]


@pytest.mark.shared
@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_the_recorded_bytes(tiny: EmulatorProcess, shared: Path, name: str) -> None:
    body = asked(shared, name)
    kind = {"content-type": "text/plain"} if name == "err-content-type" else {}
    got, want = post(tiny.port, path_of(body, name), body, kind), recorded(shared, name)
    assert got.body.decode() == want.body.decode()
    assert got.status == want.status
    assert header_names(got) == header_names(want)


@pytest.mark.shared
def test_a_text_far_too_long_is_refused_before_it_is_split(tiny: EmulatorProcess, shared: Path) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x" * 36050}]}
    got, want = post(tiny.port, "/v1/chat/completions", body), recorded(shared, "err-too-long-chat")
    assert got.body == want.body


@pytest.mark.shared
def test_unknown_paths_and_methods(tiny: EmulatorProcess, shared: Path) -> None:
    for name, got in {
        "err-unknown-path": exchange(tiny.port, "POST", "/v1/nope", b"{}"),
        "err-method": exchange(tiny.port, "GET", "/v1/chat/completions"),
    }.items():
        want = recorded(shared, name)
        assert (got.status, got.body, header_names(got)) == (want.status, want.body, header_names(want))


@pytest.mark.shared
@pytest.mark.parametrize("name", GETS)
def test_simple_answers(tiny: EmulatorProcess, shared: Path, name: str) -> None:
    got, want = get(tiny.port, "/v1/models" if name == "models" else f"/{name}"), recorded(shared, name)
    assert (got.status, header_names(got)) == (want.status, header_names(want))
    assert (shape(got.json) if got.body else None) == (shape(want.json) if want.body else None)


@pytest.mark.shared
@pytest.mark.parametrize("name", WHOLE)
def test_answers_in_one_piece_have_the_recorded_shape(tiny: EmulatorProcess, shared: Path, name: str) -> None:
    body = asked(shared, name)
    got, want = post(tiny.port, path_of(body, name), body), recorded(shared, name)
    assert got.status == want.status
    assert header_names(got) == header_names(want)
    assert shape(got.json) == shape(want.json)


def kinds(events: list[Any]) -> list[Any]:
    """The shapes of a stream's events, each once, in order of first appearance."""
    return list({json.dumps(shape(event)): None for event in events})


@pytest.mark.shared
@pytest.mark.parametrize("name", STREAMS)
def test_streams_have_the_recorded_chunks(tiny: EmulatorProcess, shared: Path, name: str) -> None:
    body = asked(shared, name)
    got, want = post(tiny.port, path_of(body, name), body), recorded(shared, name)
    assert header_names(got) == header_names(want)
    assert kinds(got.events) == kinds(want.events)
    assert got.events[-1] == want.events[-1] == "[DONE]"
    assert re.sub(rb"data: .*", b"data", got.body).count(b"data\n\n") == len(got.events)


@pytest.mark.shared
@pytest.mark.parametrize("name", ["metrics-busy", "metrics-idle", "dev/metrics-sleeping"])
def test_every_family_of_the_recorded_page_is_there(tiny: EmulatorProcess, shared: Path, name: str) -> None:
    page = get(tiny.port, "/metrics").body.decode()
    ours, theirs = declarations(page), declarations((shared / f"fixtures/vllm/{name}.body").read_text())
    missing = {line for line in theirs if "vllm:" in line and "sleep_mode_operation" not in line} - ours
    assert not missing
    assert labels(page) >= labels((shared / "fixtures/vllm/metrics-busy.body").read_text())


def declarations(page: str) -> set[str]:
    return {line for line in page.splitlines() if line.startswith("#")}


def labels(page: str) -> set[tuple[str, str]]:
    """Sample names with their label names in order, for the families of the engine."""
    found = set()
    for line in page.splitlines():
        match = re.match(r"(vllm:\w+)\{(.*)\} ", line)
        if match and match[1] != "vllm:cache_config_info":
            found.add((match[1], ",".join(re.findall(r"(\w+)=", match[2]))))
    return found
