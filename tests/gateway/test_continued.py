"""An attempt that goes on with what another began: what it asks, what it counts, and how it fails unheard."""

import json
from collections.abc import Callable

import pytest

from headway.core.events import FirstToken, Progress
from headway.core.outcome import VERDICT, OutcomeKind, Verdict
from headway.core.replica import ReplicaSpec
from headway.engines import sglang
from headway.gateway.continued import PREPARE_S, Continued
from headway.gateway.target import Target
from tests.gateway.stage import COMPLETIONS, R1, Connection, Stage, dispatch
from tests.interpreted import interpreted

pytestmark = interpreted
Make = Callable[..., Stage]


def alone(s: Stage, place: int = 8, **fields: object) -> Connection:
    """One that was evicted and is to go on: the connection on which is asked what ids spell."""
    s.running(place, **fields)
    s.evict()
    return s.resume()


def attempt(s: Stage) -> Continued:
    source = s.exchange.source
    assert isinstance(source, Continued)
    return source


def test_what_is_asked_of_the_target(stage: Make) -> None:
    """The prompt's ids and all that were said, under its own name for the model, and less of them to come."""
    s = stage()
    target = s.spelled(alone(s))
    asked = json.loads(target.body)
    said = s.mover.tape.ids
    assert asked["prompt"] == (s.mover.tape.prompt_ids or []) + said
    assert (asked["model"], asked["max_tokens"], asked["stream"]) == ("tiny", 40 - len(said), True)
    s.exchange.client_gone()


def test_its_replica_is_gone(stage: Make) -> None:
    s = stage()
    s.running(8)
    s.evict()
    del s.pool.targets[R1]
    s.resume()
    number, outcome = s.ends[-1]
    assert (number, outcome.kind, outcome.sent, outcome.resumable) == ("1", OutcomeKind.CONNECT_FAILED, False, True)
    s.exchange.client_gone()


def test_patience_with_what_it_asks_first(stage: Make) -> None:
    s = stage()
    asking = alone(s)
    assert attempt(s).overdue
    assert s.client.deadline == s.plane.sweeper.now + PREPARE_S
    s.exchange.expired(s.client.deadline)
    assert asking.dropped
    assert s.kinds[-1] == ("1", "first_byte_timeout")
    s.exchange.client_gone()


def test_patience_with_its_first_word(stage: Make) -> None:
    s = stage()
    target = s.spelled(alone(s))
    assert s.client.deadline == s.plane.sweeper.now + s.plane.config.timeouts.first_byte_s
    s.exchange.expired(s.client.deadline)
    assert target.dropped
    assert s.kinds[-1] == ("1", "first_byte_timeout")
    s.exchange.client_gone()


def test_a_target_of_a_move_has_the_movers_patience(stage: Make) -> None:
    """The request's deadline is its source's."""
    s = stage()
    s.running(8)
    deadline = s.client.deadline
    s.moving()
    assert s.client.deadline == deadline
    s.exchange.client_gone()


def test_what_it_says_counts_from_where_the_cut_is(stage: Make) -> None:
    """Progress tells new tokens only, the settlement all that the client has had."""
    s = stage()
    target = s.spelled(alone(s))
    had = s.mover.tape.generated
    target.begins()
    target.plays(5)
    s.timers.fire(0.05)
    counts = [event.counts for event in s.brain.events if isinstance(event, Progress)][-1]
    assert dict(counts)[s.attempt(1)] == 5
    target.plays()
    (_, outcome) = s.ends[-1]
    assert (outcome.output_tokens, s.booked[0].output_tokens) == (40, 40)
    assert had < 40
    s.closed()


def test_its_first_word_is_told_once(stage: Make) -> None:
    s = stage()
    target = s.spelled(alone(s))
    target.begins()
    target.plays(3)
    firsts = [event.attempt_id for event in s.brain.events if isinstance(event, FirstToken)]
    assert firsts == [s.attempt(0), s.attempt(1)]
    s.exchange.client_gone()


@pytest.mark.parametrize(
    "pieces",
    [[], [b": hello\n\n"], [b"data: [DONE]\n\n"], [b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n"], [b"data: {\n\n"]],
)
def test_a_continuation_without_a_word_is_no_answer(stage: Make, pieces: list[bytes]) -> None:
    s = stage()
    target = s.spelled(alone(s))
    before = s.client.body
    target.begins()
    for piece in pieces:
        target.says(piece)
    target.ends()
    number, outcome = s.ends[-1]
    assert (number, s.client.body) == ("1", before)
    assert outcome.kind is not OutcomeKind.OK
    assert outcome.resumable
    s.exchange.client_gone()


def test_one_that_ends_without_a_reason_is_lost(stage: Make) -> None:
    """[DONE] came, but nobody said why it ended: another goes on."""
    s = stage()
    target = s.spelled(alone(s))
    target.begins()
    target.plays(4)
    s.brain.then.append(lambda _: [dispatch(s.request, 2, R1, resumes=True)])
    target.says(b"data: [DONE]\n\n")
    target.ends()
    assert s.kinds[-1][0] == "1"
    assert s.ends[-1][1].resumable
    third = s.spelled(s.pool.connections[-1])
    third.begins()
    third.plays()
    assert s.client.body == s.undisturbed
    s.closed()


def test_one_whose_end_is_lost_is_ended_by_us(stage: Make) -> None:
    s = stage()
    target = s.spelled(alone(s, stream_options={"include_usage": True}))
    target.begins()
    target.plays(len(target.script) - 1)  # all but [DONE]
    target.dies()
    assert s.client.body == s.undisturbed
    assert s.booked[0].account == "ok"
    s.closed()


def text_of(data: bytes) -> str:
    events = [json.loads(event[6:]) for event in data.split(b"\n\n") if event.startswith(b"data: {")]
    return "".join(event["choices"][0]["text"] for event in events)


def test_a_stop_string_across_the_cut_ends_it_early(stage: Make) -> None:
    """Neither engine sees the whole of it; the target's connection is closed, for it would go on."""
    early = 0
    for begin in range(12, 90, 2):
        s = stage()
        s.running(1, COMPLETIONS)
        stop = text_of(s.undisturbed)[begin : begin + 8]
        s.exchange.client_gone()
        s = stage()
        s.running(12, COMPLETIONS, stop=[stop])
        if s.exchange.mover is None or s.mover.tape.ended:
            continue
        s.evict()
        target = s.spelled(s.resume())
        target.begins()
        target.plays()
        assert text_of(s.client.body) == text_of(s.undisturbed)
        assert s.client.body.endswith(b"data: [DONE]\n\n")
        s.closed()
        early += target.dropped
    assert early


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_what_an_engine_says_of_a_continuation_is_not_for_the_client(stage: Make, status: int) -> None:
    s = stage()
    asking = alone(s)
    target = s.spelled(asking)
    before = s.client.body
    target.refuses(status)
    assert s.client.body.startswith(before)
    assert s.kinds[-1][0] == "1"
    if not s.client.over:
        s.exchange.client_gone()
    else:
        assert b'"code":502' in s.client.body


def test_an_engine_that_cannot_tell_what_ids_spell(stage: Make) -> None:
    s = stage()
    alone(s).answers({"no": "prompt"})
    number, outcome = s.ends[-1]
    assert (number, outcome.kind) == ("1", OutcomeKind.CANCELLED)
    assert b"did not answer as expected" in s.client.body
    s.closed()


def test_one_of_another_kind_of_engine_cannot_go_on(stage: Make) -> None:
    s = stage()
    s.running(8)
    s.evict()
    dialect = sglang.PLUGIN.factory(sglang.PLUGIN.config())
    s.pool.targets[R1] = Target(ReplicaSpec(R1, "http://r1:1", "sglang", "tiny"), s.plane.config, dialect)
    s.resume()
    assert s.kinds[-1] == ("1", "no_resources"), "nothing that would be held against the replica"
    assert VERDICT[s.ends[-1][1].kind] is Verdict.NEUTRAL
    s.exchange.client_gone()


def test_the_whole_path(stage: Make) -> None:
    """Twice evicted, once lost."""
    s = stage()
    target = s.spelled(alone(s, 5))
    target.begins()
    target.plays(7)
    s.evict(1)
    target = s.spelled(s.resume(2))
    target.begins()
    target.plays(7)
    s.brain.then.append(lambda _: [dispatch(s.request, 3, R1, resumes=True)])
    target.dies()
    target = s.spelled(s.pool.connections[-1])
    target.begins()
    target.plays()
    assert s.client.body == s.undisturbed
    s.closed()
    assert s.kinds == [("0", "evicted"), ("1", "evicted"), ("2", "truncated"), ("3", "ok")]


# Of an answer in one piece.


def test_an_answer_that_cannot_go_on_is_an_error_with_a_status(stage: Make) -> None:
    s = stage(plain=True)
    target = s.spelled(alone(s, stream=False))
    target.begins()
    target.plays(3)
    s.mover.tape.pinned = "tools"
    target.dies()
    assert s.client.got.startswith(b"HTTP/1.1 502")
    assert s.kinds[-1] == ("1", "truncated")
    s.closed()


def test_a_client_that_leaves_behind_the_last_word_has_nothing(stage: Make) -> None:
    s = stage(plain=True)
    target = s.spelled(alone(s, stream=False))
    target.begins()
    for event in target.script:
        target.says(event)
    s.exchange.client_gone()
    assert s.booked[0].account == "client_closed"
    assert s.client.got == b""
