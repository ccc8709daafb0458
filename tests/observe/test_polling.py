"""Which paths are asked, what counts as an answer, and what is remembered about absent ones."""

from collections.abc import Callable
from typing import Any

import pytest

from headway.engines.base import Poll
from headway.observe.config import ObserveConfig
from headway.observe.polling import Polled, Poller
from headway.runtime.http import client
from tests.observe.fakes import EXTRA, LOAD, STAND_IN, Plain, load
from tests.runtime.servers import Reply, Served, serving

Run = Callable[[Any], Any]
CONFIG = ObserveConfig(timeout_s=0.1)


def ask(
    run: Run,
    replies: dict[str, Reply],
    *times: float,
    config: ObserveConfig = CONFIG,
    polls: tuple[Poll, ...] = Plain.polls,
) -> tuple[list[Polled], Served]:
    async def story() -> tuple[list[Polled], Served]:
        async with serving(replies) as served, client() as http:
            poller = Poller(http, served.url, polls, {"authorization": "Bearer k"}, config)
            return [await poller.ask(at) for at in times or (1.0,)], served

    return run(story())


def test_the_first_choice_and_the_optional_one_are_asked(run: Run) -> None:
    (polled,), served = ask(run, {LOAD: load(running=1), EXTRA: Reply(b"x")})
    assert (polled.answers, polled.errors) == ({LOAD: b'{"running":1}', EXTRA: b"x"}, ())
    assert served.asked == {LOAD: 1, EXTRA: 1}
    assert all(b"authorization: bearer k" in head.lower() for head in served.heads)


def test_a_stand_in_is_asked_in_the_same_round_and_the_absent_one_is_spared(run: Run) -> None:
    (first, second, later), served = ask(run, {STAND_IN: load(running=1)}, 1.0, 2.0, 62.0)
    assert first.answers.keys() == second.answers.keys() == later.answers.keys() == {STAND_IN}
    assert first.errors == ()
    assert served.asked == {LOAD: 2, EXTRA: 2, STAND_IN: 3}


class Reserved(Plain):
    """Its first choice may be of no use, and its stand-in takes time."""

    polls = (Poll(LOAD), Poll(STAND_IN, unless=LOAD, says=b"running", patience_s=5.0))


@pytest.mark.parametrize(
    ("first", "told"),
    [(Reply(b"nothing"), {STAND_IN: b'{"running":2}'}), (load(running=1), {LOAD: b'{"running":1}'})],
)
def test_a_stand_in_is_asked_where_the_first_choice_says_nothing_of_use(
    run: Run, first: Reply, told: dict[str, bytes]
) -> None:
    (polled,), _ = ask(run, {LOAD: first, STAND_IN: load(running=2)}, polls=Reserved.polls)
    assert (polled.answers, polled.errors) == (told, ())


def test_without_its_stand_in_what_says_nothing_of_use_is_no_report(run: Run) -> None:
    (polled,), _ = ask(run, {LOAD: Reply(b"nothing")}, polls=Reserved.polls)
    assert (polled.answers, polled.errors) == ({}, ("/stand-in: status 404", "/load: says nothing of use"))


def test_some_answers_may_take_longer(run: Run) -> None:
    slow = {LOAD: Reply(b"nothing"), STAND_IN: Reply(b'{"running":2}', delay_s=0.15)}
    (polled,), _ = ask(run, slow, polls=Reserved.polls)
    assert polled.answers == {STAND_IN: b'{"running":2}'}
    (polled,), _ = ask(run, slow, polls=(Poll(LOAD), Poll(STAND_IN, unless=LOAD, says=b"running")))
    assert polled.answers == {}


def test_nothing_at_all_names_every_required_path(run: Run) -> None:
    (polled,), _ = ask(run, {})
    assert polled.answers == {}
    assert polled.errors == ("/load: status 404", "/stand-in: status 404")


def test_a_failing_optional_path_is_no_error(run: Run) -> None:
    (polled,), _ = ask(run, {LOAD: load(running=1), EXTRA: Reply(status=500)})
    assert polled.errors == ()


def test_an_optional_answer_alone_is_no_report(run: Run) -> None:
    """A busy vLLM answers /is_paused in time and /metrics not: that is silence, not a report without gauges."""
    (polled,), _ = ask(run, {LOAD: Reply(delay_s=None), EXTRA: Reply(b"x")})
    assert polled.answers == {}
    assert polled.errors


@pytest.mark.parametrize("reply", [Reply(status=500), Reply(delay_s=None), Reply(raw=b"garbage\r\n\r\n")])
def test_an_error_is_not_taken_for_absence(run: Run, reply: Reply) -> None:
    polled, served = ask(run, {LOAD: reply}, 1.0, 2.0)
    assert [p.answers for p in polled] == [{}, {}]
    assert served.asked[LOAD] == 2


def test_a_redirect_is_no_answer(run: Run) -> None:
    (polled,), served = ask(run, {LOAD: Reply(status=302, headers=("location: /extra",))})
    assert polled.answers == {}
    assert served.asked[EXTRA] == 1


def test_a_cut_page_ends_with_its_last_whole_line(run: Run) -> None:
    config = ObserveConfig(page_cap_bytes=10)
    (polled,), _ = ask(run, {LOAD: Reply(b"a 1\nb 22222\n")}, config=config)
    assert (polled.answers[LOAD], polled.cut) == (b"a 1\n", True)


def test_refusal_is_told_apart(run: Run) -> None:
    async def story() -> Polled:
        async with serving({}) as served:
            url = served.url
        async with client() as http:
            return await Poller(http, url, Plain.polls, {}, CONFIG).ask(1.0)

    polled = run(story())
    assert polled.refused
    assert "refused" in polled.errors[0]
