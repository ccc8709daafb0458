"""`headway serve` in front of two `headway emulate`, all as processes of their own, with the official SDK as client."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.compose.processes import Process, command, get, running, until

pytestmark = pytest.mark.slow

MODEL = "llama-3.1-8b"
ENGINE_KEYS = ("zq9-planted-engine-a", "zq9-planted-engine-b")
ADMIN_TOKEN = "zq9-planted-admin"
CLIENT_KEY = "zq9-planted-client"
AUTHORIZED = {"authorization": f"Bearer {ADMIN_TOKEN}"}
MESSAGES: Any = [{"role": "user", "content": "Tell me a story about a balance."}]
SETTINGS = """\
listen: {{port: 0}}
admin: {{port: 0, token: "${{ADMIN_TOKEN}}"}}
replicas:
  - {{url: "{a}", api_key: "${{KEY_A}}", labels: {{name: a}}}}
  - {{url: "{b}", api_key_file: "{key_file}", labels: {{name: b}}}}
models: {{nick: [absent, {model}]}}
timeouts: {{drain_s: 8}}
journal: {journal}
logging: {{level: debug}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def engines(folder: Path) -> Iterator[list[Process]]:
    flags = ("--model", MODEL, "--port", "0", "--control-port", "-1", "--exit-with-parent")
    with (
        running(folder, "engine-a", "emulate", *flags, "--api-key", ENGINE_KEYS[0]) as a,
        running(folder, "engine-b", "emulate", *flags, "--api-key", ENGINE_KEYS[1]) as b,
    ):
        yield [a, b]


def settings(folder: Path, engines: list[Process], name: str) -> list[str]:
    (folder / "key-b").write_text(ENGINE_KEYS[1] + "\n")
    text = SETTINGS.format(
        a=engines[0].url(),
        b=engines[1].url(),
        key_file=folder / "key-b",
        model=MODEL,
        journal=folder / f"{name}.journal",
    )
    (folder / f"{name}.yaml").write_text(text)
    return ["serve", "--config", str(folder / f"{name}.yaml")]


ENVIRON = {"ADMIN_TOKEN": ADMIN_TOKEN, "KEY_A": ENGINE_KEYS[0]}


def fleet(serve: Process) -> Any:
    status, page = get(serve.url("admin_port") + "/fleet", headers=AUTHORIZED)
    assert status == 200
    return page


def complete(serve: Process, replicas: int = 2) -> bool:
    views = fleet(serve)["fleet"]["views"]
    return len(views) == replicas and all(view["sample"] is not None for view in views)


def client(serve: Process) -> openai.OpenAI:
    return openai.OpenAI(base_url=serve.url() + "/v1", api_key=CLIENT_KEY, max_retries=0, timeout=20)


@pytest.fixture(scope="module")
def serve(folder: Path, engines: list[Process]) -> Iterator[Process]:
    with running(folder, "serve", *settings(folder, engines, "serve"), environ=ENVIRON) as process:
        until(lambda: complete(process))
        yield process


def test_plain_and_streamed_answers_are_the_engines(serve: Process, engines: list[Process]) -> None:
    with client(serve) as sdk:
        plain = sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=40)
        stream = sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=40, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    body = {"model": MODEL, "messages": MESSAGES, "max_tokens": 40}
    headers = {"authorization": f"Bearer {ENGINE_KEYS[0]}", "content-type": "application/json"}
    status, direct = get(engines[0].url() + "/v1/chat/completions", "POST", body, headers)
    assert status == 200
    assert plain.choices[0].message.content == direct["choices"][0]["message"]["content"]
    assert "".join(pieces) == plain.choices[0].message.content
    assert plain.usage is not None
    assert plain.usage.completion_tokens == 40


def test_models_and_aliases(serve: Process) -> None:
    with client(serve) as sdk:
        assert {model.id for model in sdk.models.list()} == {MODEL, "nick"}
        answer = sdk.chat.completions.create(model="nick", messages=MESSAGES, max_tokens=5)
        assert answer.choices[0].message.content
        with pytest.raises(openai.NotFoundError) as error:
            sdk.chat.completions.create(model="no-such", messages=MESSAGES)
    assert error.value.code == "model_not_found"
    assert f"known here: `{MODEL}`, `nick`" in error.value.message


def test_a_request_is_explained(serve: Process) -> None:
    with client(serve) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=12)
    request_id = raw.headers["x-request-id"]
    admin = serve.url("admin_port")
    status, explanation = get(f"{admin}/requests/{request_id}/explain", headers=AUTHORIZED)
    assert status == 200
    (attempt,) = explanation["attempts"]
    assert len(attempt["decision"]["candidates"]) == 2
    assert attempt["settled"]["outcome"]["output_tokens"] == 12
    shown = command("explain", request_id, "--admin", admin, environ={"HEADWAY_ADMIN_TOKEN": ADMIN_TOKEN})
    assert shown.returncode == 0, shown.stderr
    assert "headroom" in shown.stdout
    assert "output tokens" in shown.stdout
    refused = command("explain", request_id, "--admin", admin)
    assert refused.returncode == 1
    assert "HEADWAY_ADMIN_TOKEN" in refused.stderr


def test_a_request_is_explained_by_the_clients_own_id(serve: Process) -> None:
    with client(serve) as sdk:
        sdk.chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=2, extra_headers={"x-request-id": "my-own-id-7"}
        )
    status, explanation = get(serve.url("admin_port") + "/requests/my-own-id-7/explain", headers=AUTHORIZED)
    assert status == 200
    assert explanation["request_id"] != "my-own-id-7"


def test_operators_drain_remove_and_add(serve: Process, engines: list[Process]) -> None:
    admin = serve.url("admin_port")
    drained = fleet(serve)["fleet"]["views"][0]["spec"]["id"]
    other = fleet(serve)["fleet"]["views"][1]["spec"]["id"]
    assert get(f"{admin}/replicas/{drained}/drain", "POST", headers=AUTHORIZED)[0] == 200
    with client(serve) as sdk:
        for _ in range(6):
            sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2)
    latest = get(f"{admin}/requests", headers=AUTHORIZED)[1][:6]
    assert {entry["chosen"] for entry in latest} == {other}
    assert get(f"{admin}/replicas/{drained}", "DELETE", headers=AUTHORIZED)[0] == 204
    assert complete(serve, replicas=1)
    url = next(engine.url() for engine in engines if engine.url().endswith(drained.rpartition(":")[2]))
    status, added = get(f"{admin}/replicas", "POST", {"url": url, "engine": "vllm", "model": MODEL}, AUTHORIZED)
    assert status == 201
    assert added["id"] != drained, "a new registration has a new id"
    until(lambda: complete(serve))


def test_metrics_and_accounts_balance(serve: Process) -> None:
    with client(serve) as sdk:
        for _ in range(5):
            sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2)
    page = fleet(serve)
    requests = page["requests"]
    assert requests["started"] == sum(count for name, count in requests.items() if name != "started")
    assert page["fleet"]["in_flight"] == page["fleet"]["queued"] == 0
    assert all(view["reserved_tokens"] == 0 for view in page["fleet"]["views"])
    status, text = get(serve.url("admin_port") + "/metrics", headers=AUTHORIZED)
    assert status == 200
    assert b"headway_replica_kv_used_tokens{" in text
    assert b"headway_scrapes_total " in text


def test_strangers_learn_nothing_from_the_admin_port(serve: Process) -> None:
    admin = serve.url("admin_port")
    assert get(f"{admin}/fleet")[0] == 401
    assert get(f"{admin}/readyz")[0] == 200
    assert get(serve.url() + "/fleet")[0] == 404, "nothing of it is on the data port"


def test_no_secret_in_any_output(serve: Process) -> None:
    """B8, cases 130, 131, 140: at debug level, in log, metrics, fleet and errors."""
    with client(serve) as sdk, pytest.raises(openai.APIError) as error:
        sdk.chat.completions.create(model=CLIENT_KEY, messages=MESSAGES, extra_headers={"x-request-id": CLIENT_KEY})
    admin = serve.url("admin_port")
    pages = [get(f"{admin}{path}", headers=AUTHORIZED)[1] for path in ("/fleet", "/metrics", "/replicas", "/requests")]
    text = serve.log.read_text() + str(pages)
    for secret in (*ENGINE_KEYS, ADMIN_TOKEN):
        assert secret not in text
        assert secret not in str(error.value)
    assert '"level":"debug"' in text or '"level":"info"' in text
    assert f"Bearer {CLIENT_KEY}" not in text
    assert MESSAGES[0]["content"] not in text


def stream_in_background(serve: Process, tokens: int, pieces: list[str]) -> threading.Thread:
    def work() -> None:
        try:
            with client(serve) as sdk:
                stream = sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=tokens, stream=True)
                pieces.extend(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
            pieces.append("[end]")
        except openai.APIError as error:
            pieces.append(f"[error {error}]")

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["", "terminal_closed"])
def test_a_signal_drains_and_the_journal_is_reproduced(
    folder: Path, engines: list[Process], number: signal.Signals
) -> None:
    """Case 112, F16, and `headway verify`."""
    name = f"drain_{number.name}"
    with running(folder, name, *settings(folder, engines, name), environ=ENVIRON) as serve:
        until(lambda: complete(serve))
        pieces: list[str] = []
        thread = stream_in_background(serve, 300, pieces)
        until(lambda: fleet(serve)["fleet"]["in_flight"] == 1)
        serve.popen.send_signal(number)
        until(lambda: get(serve.url("admin_port") + "/readyz")[0] == 503, 2)
        assert get(serve.url("admin_port") + "/healthz")[0] == 200
        thread.join(20)
        assert pieces[-1] == "[end]"
        assert serve.popen.wait(10) == 0
    stopped = json.loads(next(line for line in serve.log.read_text().splitlines() if '"event":"stopped"' in line))
    assert stopped["started"] == stopped["ok"] == 1
    verified = command("verify", str(folder / f"{name}.journal"))
    assert verified.returncode == 0, verified.stderr
    assert "reproduced" in verified.stdout


def test_a_second_signal_is_obeyed_within_a_second(folder: Path, engines: list[Process]) -> None:
    """Case 113."""
    with running(folder, "hurry", *settings(folder, engines, "hurry"), environ=ENVIRON) as serve:
        until(lambda: complete(serve))
        pieces: list[str] = []
        thread = stream_in_background(serve, 3000, pieces)
        until(lambda: fleet(serve)["fleet"]["in_flight"] == 1)
        serve.popen.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert serve.popen.poll() is None
        asked = time.monotonic()
        assert serve.stop(signal.SIGTERM, 5) == 0
        assert time.monotonic() - asked < 1.0
        thread.join(5)
        assert pieces[-1].startswith("[error"), "an in-band error, never a silent clean end"


def test_a_tampered_journal_is_found_out(folder: Path) -> None:
    lines = (folder / "drain_SIGTERM.journal").read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"Dispatch"' in line)
    lines[at] = lines[at].replace(b'"attempt_id":"', b'"attempt_id":"x', 1)
    (folder / "tampered.journal").write_bytes(b"".join(lines))
    verified = command("verify", str(folder / "tampered.journal"))
    assert verified.returncode == 1
    assert f"line {at + 1}" in verified.stderr
    assert "+++ replayed" in verified.stderr


def test_a_replica_that_comes_late_joins(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ["--replica", f"http://127.0.0.1:{port}", "--port", "0", "--admin-port", "0"]
    with running(folder, "late", "serve", *flags) as serve:
        status, answer = get(serve.url() + "/v1/chat/completions", "POST", {"model": MODEL, "messages": MESSAGES})
        assert (status, answer["error"]["code"]) == (503, "no_replica")
        assert get(serve.url("admin_port") + "/readyz")[0] == 503
        with running(folder, "latecomer", "emulate", "--model", MODEL, "--port", str(port), "--control-port", "-1"):
            until(lambda: get(serve.url("admin_port") + "/readyz")[0] == 200, 20)
            with client(serve) as sdk:
                assert sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=3).choices


def test_a_taken_port_is_explained(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flags in (["--port", port, "--admin-port", "0"], ["--port", "0", "--admin-port", port]):
            ended = command("serve", "--replica", "http://127.0.0.1:1", *flags)
            assert ended.returncode == 1
            assert "a port is taken" in ended.stderr
            assert "--admin-port" in ended.stderr
            assert "Traceback" not in ended.stderr
