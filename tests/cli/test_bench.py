"""`headway bench` end to end against a scripted server."""

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from headway.cli.bench import command
from tests.bench.scripted import GOOD, Server, error, served

pytestmark = pytest.mark.slow


@contextmanager
def serving(script=lambda _n, _r: GOOD) -> Iterator[Server]:  # type: ignore[no-untyped-def]
    """The scripted server on a thread of its own, because the command runs a loop itself."""
    ready, servers, stop = threading.Event(), list[Server](), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        async with served(script) as server:
            servers.append(server)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    ready.wait(5)
    try:
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
        loop.close()


def bench(*args: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, list(args))


def test_fewer_requests_than_asked_for_are_explained() -> None:
    with serving() as server:
        result = bench(server.url, "--rate", "40", "--duration", "1", "--longest", "200")
        assert "requests/s, not 40: sessions end before --longest (200 tokens)" in result.stderr
        assert (
            "requests/s, not" not in bench(server.url, "--rate", "40", "--duration", "1", "--mix", "documents").stderr
        )


def test_records_that_cannot_be_written_cost_no_run() -> None:
    with serving() as server:
        result = bench(server.url, "--rate", "20", "--duration", "30", "--records", "/nonexistent/records")
        assert result.exit_code == 1
        assert "--records /nonexistent/records: No such file or directory" in result.stderr


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    with serving() as server:
        result = bench(server.url, "--rate", "20", "--duration", "0.5", "--json", "--records", str(records))
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["accounts"]["started"] == said["accounts"]["ok"] == said["workload"]["requests"] > 0
    assert said["summary"]["ttft"]["p99"] > 0
    assert said["model"] == "tiny"
    assert len(records.read_text().splitlines()) == said["accounts"]["started"]


def test_tables() -> None:
    with serving() as server:
        result = bench(server.url, "--rate", "20", "--duration", "0.3", "--mix", "both", "--time-scale", "2")
    assert result.exit_code == 0, result.output
    for word in ("TTFT", "goodput", "time scale 2", "client:", "reported as cached"):
        assert word in result.stdout


def test_all_failed_is_exit_1() -> None:
    with serving(lambda _n, _r: error(400, "bad")) as server:
        result = bench(server.url, "--rate", "20", "--duration", "0.2", "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["summary"]["errors"] == {"client_error:400 bad": said["accounts"]["started"]}


def test_a_trace_is_replayed_with_its_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv.gz"
    rows = "".join(f"{n * 10},{40 + n},{n + 1}\n" for n in range(10)) + "5,90000,1\n"
    trace.write_bytes(gzip.compress(f"ts,inp,outp\n{rows}".encode()))
    with serving() as server:
        result = bench(server.url, "--trace", str(trace), "--columns", "arrival=ts:ms,input=inp,output=outp", "--json")
        sent = sorted(body["max_tokens"] for method, _, _, body in server.seen if method == "POST")
    assert result.exit_code == 0, result.output
    assert sent == list(range(1, 11))
    assert "left out 1 of 11" in result.stderr


def test_a_trace_is_scaled_to_a_rate(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    line = '{{"timestamp": {}, "input_length": 20, "output_length": 2, "hash_ids": [{}]}}\n'
    trace.write_text("".join(line.format(n * 10, n) for n in range(41)))
    with serving() as server:
        result = bench(server.url, "--trace", str(trace), "--rate", "50", "--duration", "0.4", "--json")
    assert 8 <= json.loads(result.stdout)["accounts"]["started"] <= 32


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", '{"timestamp": 1}\n'])
def test_a_strange_file_is_refused_with_a_hint(tmp_path: Path, content: str) -> None:
    trace = tmp_path / "x.csv"
    trace.write_text(content)
    result = bench("http://127.0.0.1:1", "--trace", str(trace))
    assert result.exit_code == 1
    assert "--columns" in result.stderr


def test_nobody_there_is_said() -> None:
    result = bench("http://127.0.0.1:1", "--duration", "0.1")
    assert result.exit_code == 1
    assert "does not answer" in result.stderr
