"""Detection: the dialect that knows wins over the generic one, and failures say what was tried."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.engines.vllm import Vllm
from headway.observe.detect import Undetected, detect
from headway.runtime.http import client
from tests.observe.fakes import DIALECTS, LOAD, MODELS, Plain, engine, models
from tests.runtime.servers import Reply, Served, serving

Run = Callable[[Any], Any]
ME = ReplicaId("r")


def look(run: Run, replies: dict[str, Reply], **how: Any) -> tuple[ReplicaSpec | Undetected, Served]:
    async def story() -> tuple[ReplicaSpec | Undetected, Served]:
        async with serving(replies) as served, client() as http:
            return await detect(served.url, DIALECTS.values(), http, replica_id=ME, **how), served

    return run(story())


def test_an_engine_that_is_known_fills_the_spec(run: Run) -> None:
    found, served = look(run, {**engine(), MODELS: models("m", "lora")}, key="secret")
    assert found == ReplicaSpec(
        ME,
        served.url,
        "plain",
        "m",
        precision="int8",
        labels={"engine_version": "1.0"},
        serves={"m": "m", "lora": "lora"},
        max_model_tokens=100,
        kv_capacity_tokens=200,
        max_num_seqs=3,
    )
    assert all(b"bearer secret" in head.lower() for head in served.heads)
    assert max(served.asked.values()) == 1


def test_an_unknown_engine_with_cards_is_generic(run: Run) -> None:
    found, _ = look(run, {MODELS: models("m")})
    assert isinstance(found, ReplicaSpec)
    assert (found.engine, found.serves, found.metrics) == ("openai", {"m": "m"}, False)


def test_failures_say_what_each_path_gave(run: Run) -> None:
    found, served = look(run, {LOAD: Reply(b"{}"), MODELS: Reply(status=401)})
    assert str(found) == (
        f"no engine recognised at {served.url} (looked for plain, openai): "
        "/load gave an unknown answer; /v1/models gave status 401"
    )


def test_paths_that_failed_alike_are_told_once(run: Run) -> None:
    found, _ = look(run, {LOAD: Reply(delay_s=None), MODELS: Reply(delay_s=None)}, timeout_s=0.05)
    assert isinstance(found, Undetected)
    assert found.tried == {"every path": "timeout: no full answer within 0.05 s"}


def test_a_dialect_sees_only_the_paths_it_asked_for(run: Run) -> None:
    seen: list[set[str]] = []

    class Curious(Plain):
        detect_paths = (LOAD,)

        def detect(self, answers: Any) -> None:
            seen.append(set(answers))

    async def story() -> None:
        async with serving(engine()) as served, client() as http:
            await detect(served.url, [Curious(), DIALECTS["openai"]], http, replica_id=ME)

    run(story())
    assert seen == [{LOAD}]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (Reply(b"vllm:num_requests_running 1.0\n"), True),
        (Reply(delay_s=None), True),  # cannot be had at the moment
        (Reply(status=500), True),
        (Reply(status=404), False),
        (Reply(status=401), False),
        (Reply(b"process_cpu_seconds_total 1.0\n"), True),  # --disable-log-stats: an alarm, not a silence
        (Reply(b"<html>warming up</html>"), True),
    ],
)
def test_a_load_report_that_fails_or_says_nothing_now_is_asked_for_later(run: Run, page: Reply, expected: bool) -> None:
    """Whoever was looked at while its report stalled was never asked for one again."""
    cards = Reply(b'{"data":[{"id":"m","owned_by":"vllm"}]}')

    async def story() -> ReplicaSpec | Undetected:
        async with serving({MODELS: cards, "/metrics": page}) as served, client() as http:
            patience_s = 0.2 if page.delay_s is None else 5.0
            return await detect(served.url, [Vllm()], http, replica_id=ME, timeout_s=patience_s)

    found = run(story())
    assert isinstance(found, ReplicaSpec)
    assert (found.engine, found.metrics) == ("vllm", expected)


def test_a_dialect_that_fails_keeps_no_engine_from_the_others_and_is_told(run: Run) -> None:
    class Broken(Plain):
        name = "broken"

        def detect(self, answers: Any) -> None:
            raise TypeError("odd")

    async def story(replies: dict[str, Reply]) -> ReplicaSpec | Undetected:
        async with serving(replies) as served, client() as http:
            return await detect(served.url, [Broken(), *DIALECTS.values()], http, replica_id=ME)

    with capture_logs() as logs:
        found = run(story(engine()))
    assert isinstance(found, ReplicaSpec)
    assert found.engine == "plain"
    assert [(entry["failed"], entry["problem"]) for entry in logs] == [("dialect broken", "the error TypeError('odd')")]
    assert "every path gave status 404; dialect broken gave the error TypeError('odd')" in str(run(story({})))


@pytest.mark.parametrize(
    ("cards", "known"),
    [
        (Reply(b"busy", 503), False),
        (Reply(b"slow down", 429), False),
        (Reply(raw=b""), False),
        (Reply(status=404), True),  # it has none
        (Reply(status=401), True),
        (Reply(b'{"data":[]}'), True),
    ],
)
def test_an_engine_whose_cards_fail_at_the_moment_is_not_detected_yet(run: Run, cards: Reply, known: bool) -> None:
    """Registered without names, limits and precision, it kept none of them until its next start."""
    found, served = look(run, {**engine(), MODELS: cards})
    assert isinstance(found, ReplicaSpec) is known
    if not known:
        assert str(found).startswith(f"plain at {served.url} does not say what it serves: /v1/models gave ")
