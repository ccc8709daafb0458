"""Make before break, failover and eviction, event by event: what the client has, who is left, and who is settled."""

from collections.abc import Callable
from typing import Any

import pytest

from headway.core.commands import Command, Hold, Reject
from headway.core.events import AttemptFinished, FirstToken
from headway.core.outcome import OutcomeKind
from headway.gateway import mover as module
from headway.perfmodel.vocabulary import FIRST_BYTE
from headway.runtime.clock import now
from headway.wire.resume_cut import Cut
from tests.gateway.stage import CHAT, COMPLETIONS, R1, R2, Connection, Stage, dispatch
from tests.interpreted import interpreted
from tests.wire.engine import framed, stream
from tests.wire.engine import whole as at_once

pytestmark = interpreted
Make = Callable[..., Stage]


def state(s: Stage) -> str:
    return module.STATES[s.mover._state]


def whole(s: Stage) -> None:
    """The client has what one undisturbed engine says, and nobody holds anything."""
    assert s.client.body == s.undisturbed
    assert s.client.ended
    s.closed()


def goes_on_at(s: Stage, number: int, replica: str) -> Callable[[AttemptFinished], list[Command]]:
    """The brain's answer to a loss."""
    return lambda event: [dispatch(s.request, number, replica, resumes=True)]  # type: ignore[arg-type]


# A move.


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_move(stage: Make, path: str) -> None:
    s = stage()
    source = s.running(8, path)
    warming = s.migrate()
    assert (state(s), warming.path) == ("WARMING", COMPLETIONS)
    source.plays(3)
    asking = s.warmed(warming)
    assert (state(s), asking.path) == ("CUTTING", "/detokenize")
    before = s.client.body
    source.plays(2)
    assert s.client.body == before, "held back for the cut"
    target = s.spelled(asking)
    target.begins()
    assert not source.dropped
    target.plays()
    assert source.dropped
    whole(s)
    assert s.kinds == [("0", "migrated"), ("1", "ok")]
    assert (s.ends[0][1].output_tokens, s.ends[1][1].output_tokens) == (10 if path == CHAT else 11, 40)
    firsts = [event.attempt_id for event in s.brain.events if isinstance(event, FirstToken)]
    assert firsts == [s.attempt(0), s.attempt(1)]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("place", range(2, 38))
def test_a_move_at_every_place(stage: Make, path: str, place: int) -> None:
    """Also within a character: what was sent beyond the last whole one is said again, and not shown again."""
    s = stage()
    s.running(place, path)
    target = s.moving(reason="drain")  # however much is to be said again
    target.begins()
    target.plays()
    whole(s)


def test_a_move_in_the_middle_of_a_write(stage: Make) -> None:
    """Half an event is nobody's: the cut is before it, and the rest of it never comes."""
    s = stage()
    source = s.running(6)
    event = source.script[6]
    source.says(event[:-20])
    target = s.moving()
    source.says(event[-20:])
    target.begins()
    target.plays()
    whole(s)


def test_there_and_back_again(stage: Make) -> None:
    s = stage()
    s.running(6)
    first = s.moving()
    first.begins()
    first.plays(9)
    second = s.moving(number=2, to=R2, source=1)
    second.begins()
    second.plays()
    whole(s)
    assert s.kinds == [("0", "migrated"), ("1", "migrated"), ("2", "ok")]


# The source counts until the target's first word.

FAILURES: dict[str, Callable[[Connection], None]] = {
    "dies": lambda c: c.dies(),
    "resets": lambda c: c.dies(OutcomeKind.RESET),
    "refuses": lambda c: c.refuses(503),
    "finds fault": lambda c: c.refuses(400),
}


@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("when", ["warming", "asking", "going on"])
def test_a_target_that_fails(stage: Make, when: str, how: str) -> None:
    s = stage()
    source = s.running(8)
    target = s.migrate()
    if when != "warming":
        target = s.warmed(target)
    if when == "going on":
        target = s.spelled(target)
    source.plays(2)
    FAILURES[how](target)
    assert state(s) == "PLAIN"
    source.plays()
    whole(s)
    assert sorted(s.kinds)[0] == ("0", "ok")
    assert s.kinds[0][0] == "1"
    assert not s.ends[0][1].committed


def test_a_target_that_cannot_be_connected(stage: Make) -> None:
    s = stage()
    source = s.running(8)
    s.pool.refusing.add(R1)
    s.migrate()
    assert (state(s), s.kinds) == ("PLAIN", [("1", "connect_failed")])
    source.plays()
    whole(s)


@pytest.mark.parametrize("says", [b"", b"data: {\n\n", b'data: {"error":{"message":"x"}}\n\n', b"data: [DONE]\n\n"])
def test_a_target_that_has_nothing_to_say(stage: Make, says: bytes) -> None:
    s = stage()
    source = s.running(8)
    target = s.moving()
    target.begins()
    target.says(says)
    target.ends()
    source.plays()
    whole(s)
    assert sorted(s.kinds)[0] == ("0", "ok")


SHOWN: dict[str, Any] = {"stop": ["never said"], "include_stop_str_in_output": True, "temperature": 0}
"""With these the cut goes back behind what was sent: the rest is said twice, and must be shown once."""


def test_what_is_said_twice_is_shown_once(stage: Make) -> None:
    s = stage()
    s.running(20, **SHOWN)
    target = s.moving(reason="drain")
    assert s.mover._target is not None
    assert s.mover._target._cut.surplus
    target.begins()
    before = s.client.body
    target.plays(1)
    assert (s.client.body, state(s)) == (before, "CUTTING"), "it is behind yet"
    target.plays()
    whole(s)


def test_a_target_that_says_something_else_than_was_said(stage: Make) -> None:
    """What is generated again is compared; it differs, and is not shown."""
    s = stage()
    source = s.running(20, **SHOWN)
    target = s.moving(reason="drain")
    target.begins()
    target.says(target.script[0].replace(b'"text":"', b'"text":"something else '))
    assert (state(s), target.dropped, s.kinds) == ("PLAIN", True, [("1", "cancelled")])
    source.plays()
    whole(s)


@pytest.mark.parametrize("when", ["warming", "asking", "going on"])
def test_a_source_that_finishes_first(stage: Make, when: str) -> None:
    s = stage()
    source = s.running(30)
    target = s.migrate()
    if when != "warming":
        target = s.warmed(target)
    if when == "going on":
        target = s.spelled(target)
        target.begins()
    source.plays()
    assert target.dropped
    whole(s)
    assert sorted(s.kinds) == [("0", "ok"), ("1", "cancelled")]


def test_a_source_that_said_its_last_while_the_target_was_warmed(stage: Make) -> None:
    """Its framing has not ended yet, but there is nothing left to move."""
    s = stage()
    source = s.running(8)
    warming = s.migrate()
    script = source.script
    for event in script[8:-1]:
        source.says(event)
    s.warmed(warming)
    assert (state(s), s.kinds) == ("PLAIN", [("1", "cancelled")])
    source.says(script[-1])
    source.ends()
    whole(s)


# What is held back.


def test_a_source_that_says_too_much_meanwhile(stage: Make) -> None:
    s = stage(hold_bytes=600)
    source = s.running(8)
    s.moving()
    source.plays(1)
    assert state(s) == "CUTTING"
    source.plays(5)
    assert (state(s), s.kinds) == ("PLAIN", [("1", "cancelled")])
    source.plays()
    whole(s)


@pytest.mark.parametrize(("when", "seconds"), [("warming", 7.0), ("cutting", 0.7)])
def test_a_target_that_is_late(stage: Make, when: str, seconds: float) -> None:
    s = stage(hold_s=0.7, warm_s=7.0)
    source = s.running(8)
    target = s.migrate()
    if when == "cutting":
        target = s.spelled(s.warmed(target))
    source.plays(2)
    s.timers.fire(seconds)
    assert (state(s), target.dropped, s.kinds) == ("PLAIN", True, [("1", "cancelled")])
    source.plays()
    whole(s)


def held_back(s: Stage, place: int) -> Connection:
    """A stream whose words come one event late, though there are no stop strings: a cut is far back."""
    source = s.running(place)
    s.mover.tape.rewind(Cut(4, "", surplus=s.mover.tape.text))
    s.mover.tape.say("", [FIRST_BYTE + 90] * 20)
    return source


def test_what_would_have_to_be_said_again_at_length_stays(stage: Make) -> None:
    s = stage()
    source = held_back(s, 8)
    s.moving(reason="balance")
    assert (state(s), s.kinds) == ("PLAIN", [("1", "cancelled")])
    assert "20 tokens would have to be said again" in s.ends[-1][1].detail
    assert not source.dropped
    s.exchange.client_gone()


@pytest.mark.parametrize("reason", ["drain", "operator"])
@pytest.mark.parametrize(("token_s", "made"), [(0.01, True), (0.2, False)])
def test_what_people_want_may_take_what_the_cut_may(stage: Make, reason: str, token_s: float, made: bool) -> None:
    """20 tokens again of 2 s at most: at once given up where they would take longer, not when all that was waited."""
    s = stage(hold_s=2.0)
    held_back(s, 8)
    s.exchange.ticket.first_token_at = now() - token_s * s.mover.tape.generated
    s.moving(reason=reason)
    assert (state(s), s.kinds) == (("CUTTING", []) if made else ("PLAIN", [("1", "cancelled")]))
    s.exchange.client_gone()


@pytest.mark.parametrize("when", ["streaming", "warming", "cutting", "moved"])
def test_a_slow_client_holds_all_up(stage: Make, when: str) -> None:
    s = stage()
    source = s.running(8)
    open_ = [source]
    if when != "streaming":
        open_.append(s.migrate())
    if when in ("cutting", "moved"):
        open_[1] = s.spelled(s.warmed(open_[1]))
    if when == "moved":
        open_[1].begins()
        open_[1].plays(1)
        open_.pop(0)
    s.client.paused = True
    s.exchange.pause()
    assert [c.paused for c in open_] == [when != "warming" or c is source for c in open_], "a warm-up says little"
    s.client.paused = False
    s.exchange.resume()
    assert [connection.paused for connection in open_] == [False] * len(open_)
    open_[0].plays()
    whole(s)


def test_a_target_that_takes_over_while_the_client_is_slow_waits(stage: Make) -> None:
    s = stage()
    s.running(8)
    target = s.moving()
    s.client.paused = True
    target.begins()
    target.plays(1)
    assert (state(s), target.paused) == ("PLAIN", True)
    target.resume()
    target.plays()
    whole(s)


# The client leaves.

PHASES = ("sent", "streaming", "warming", "asking", "going on", "moved", "evicted", "alone asking", "alone going on")


def reach(s: Stage, phase: str) -> None:
    if phase == "sent":
        s.arrive()
        return
    s.running(8)
    if phase in ("warming", "asking", "going on", "moved"):
        connection = s.migrate()
        if phase != "warming":
            connection = s.warmed(connection)
        if phase in ("going on", "moved"):
            connection = s.spelled(connection)
        if phase == "moved":
            connection.begins()
            connection.plays(2)
    if phase in ("evicted", "alone asking", "alone going on"):
        s.brain.then.append(lambda _: [Hold(s.request, 1)])
        s.evict()
        if phase != "evicted":
            asking = s.resume()
            if phase == "alone going on":
                s.spelled(asking)


@pytest.mark.parametrize("phase", PHASES)
def test_the_client_leaves(stage: Make, phase: str) -> None:
    """Everything is closed at once, and every reservation given back, once."""
    s = stage()
    reach(s, phase)
    s.exchange.client_gone()
    s.client.over = True  # it is told nothing: it is gone
    s.closed()
    assert all(connection.dropped or connection.owner is None for connection in s.pool.connections)
    assert [access.account for access in s.booked] == ["client_closed"]
    expected = {
        "sent": ["client_closed"], "streaming": ["client_closed"], "moved": ["client_closed", "migrated"],
        "evicted": ["evicted"], "alone asking": ["client_closed", "evicted"],
        "alone going on": ["client_closed", "evicted"],
    }.get(phase, ["cancelled", "client_closed"])  # fmt: skip
    assert sorted(kind for _, kind in s.kinds) == expected


@pytest.mark.parametrize("phase", PHASES)
def test_the_gateway_shuts_down(stage: Make, phase: str) -> None:
    s = stage()
    reach(s, phase)
    s.exchange.shut_down()
    s.closed()
    assert b"shutting down" in s.client.got
    assert not s.client.body.endswith(b"[DONE]\n\n")


# The source is lost.

LOSSES: dict[str, Callable[[Connection], None]] = {
    "dies": lambda c: c.dies(),
    "says an error": lambda c: c.says(b'data: {"error":{"message":"EngineCore died","code":500}}\n\n'),
    "aborts": lambda c: c.says(
        b'data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"abort"}]}\n\n'
    ),
    "ends early": lambda c: c.ends(),
}  # fmt: skip


@pytest.mark.parametrize("how", LOSSES)
@pytest.mark.parametrize("place", [2, 8, 20])
def test_another_goes_on(stage: Make, how: str, place: int) -> None:
    s = stage()
    source = s.running(place)
    s.brain.then.append(goes_on_at(s, 1, "r1"))
    LOSSES[how](source)
    assert state(s) == "ALONE"
    target = s.spelled(s.pool.connections[-1])
    target.begins()
    target.plays()
    whole(s)
    assert s.ends[0][1].resumable
    assert s.kinds[1] == ("1", "ok")


@pytest.mark.parametrize("when", ["warming", "asking", "going on"])
def test_the_target_that_was_made_ready_takes_over_from_the_dead(stage: Make, when: str) -> None:
    s = stage()
    source = s.running(8)
    target = s.migrate()
    if when != "warming":
        target = s.warmed(target)
    if when == "going on":
        target = s.spelled(target)
    source.plays(1)
    source.dies()
    assert (state(s), s.kinds) == ("ALONE", [("0", "truncated")])
    if when == "warming":
        assert target.dropped, "it was to read only what there was then"
        target = s.pool.connections[-1]
    target = s.spelled(target)
    target.begins()
    target.plays()
    whole(s)
    assert s.exchange.ticket.attempts == 2


@pytest.mark.parametrize("how", [name for name in FAILURES if name != "finds fault"])
@pytest.mark.parametrize("when", ["asking", "going on"])
def test_who_was_to_go_on_is_lost_too(stage: Make, when: str, how: str) -> None:
    s = stage()
    source = s.running(8)
    s.brain.then += [goes_on_at(s, 1, "r1"), goes_on_at(s, 2, "r2")]
    source.dies()
    target = s.pool.connections[-1]
    if when == "going on":
        target = s.spelled(target)
    FAILURES[how](target)
    third = s.spelled(s.pool.connections[-1])
    assert (third.target.spec.id, state(s)) == (R2, "ALONE")
    third.begins()
    third.plays()
    whole(s)
    assert s.ends[1][1].output_tokens == s.ends[0][1].output_tokens, "it said nothing itself"


def test_a_continuation_that_is_refused_for_what_it_asks_ends_the_stream(stage: Make) -> None:
    """No other engine would say otherwise."""
    s = stage()
    source = s.running(8)
    s.brain.then.append(goes_on_at(s, 1, "r1"))
    source.dies()
    s.pool.connections[-1].refuses(400)
    assert b'"reason":"upstream_failed"' in s.client.body
    assert not s.client.ended
    s.closed()


@pytest.mark.parametrize("head", [False, True])
def test_what_waits_in_an_engine_is_recalled(stage: Make, head: bool) -> None:
    """Engines give the head of a stream at once; of it alone the client can be told by another, too."""
    s = stage()
    source = s.arrive()
    if head:
        source.begins()
        s.timers.fire(0.05)
    assert s.exchange.outlet.begun is head
    s.brain.then.append(lambda _: [dispatch(s.request, 1, R1)])
    s.exchange.abort(s.attempt(0), "recalled")
    assert (s.kinds, s.ends[0][1].committed, s.refusals) == ([("0", "cancelled")], False, 0)
    other = s.pool.connections[-1]
    other.begins()
    other.plays()
    assert s.client.got.count(b"HTTP/1.1 200") == 1
    assert s.client.body == framed(stream(s.path, s.body, "at-r1"))
    s.closed()


def test_a_recall_that_comes_too_late_is_refused(stage: Make) -> None:
    s = stage()
    source = s.running(8)
    s.exchange.abort(s.attempt(0), "recalled")
    assert (s.kinds, s.refusals) == ([], 1)
    source.plays()
    whole(s)


def test_nobody_is_left(stage: Make) -> None:
    s = stage()
    source = s.running(8)
    s.brain.then.append(lambda _: [Reject(s.request, 502, "upstream_failed", "no more")])
    source.dies()
    assert b"no more" in s.client.body
    assert s.undisturbed.startswith(s.client.body.rpartition(b"data: ")[0])
    s.closed()


@pytest.mark.parametrize("events", [-1, -2])
def test_a_source_lost_behind_its_last_word_is_ended_by_us(stage: Make, events: int) -> None:
    s = stage()
    source = s.arrive(stream_options={"include_usage": True})
    source.begins()
    source.plays(len(source.script) + events)
    source.dies()
    whole(s) if events == -1 else s.closed()
    assert s.client.body.endswith(b"data: [DONE]\n\n")
    assert s.client.body.count(b'"usage":{') == 1
    assert s.kinds == [("0", "truncated")]
    assert s.booked[0].account == "ok"


def test_a_source_lost_with_its_last_token_said_is_ended_by_us(stage: Make) -> None:
    """The limit is reached, but the finish reason was lost on the way."""
    s = stage()
    source = s.arrive(max_tokens=9, ignore_eos=True)
    source.begins()
    script = source.script
    source.plays(len(script) - 2)
    last = script[-2]  # the ninth token, which also says why it ends: without that
    source.says(last.replace(b'"finish_reason":"length","stop_reason":null', b'"finish_reason":null'))
    s.brain.then.append(goes_on_at(s, 1, "r1"))
    source.dies()
    s.spelled(s.pool.connections[-1])
    assert (s.kinds[-1], s.booked[0].account) == (("1", "cancelled"), "ok")
    assert b'"finish_reason":"length"' in s.client.body
    assert s.client.body.endswith(b"data: [DONE]\n\n")
    s.closed()


def test_a_move_with_nothing_left_to_say(stage: Make) -> None:
    """The source will say so itself."""
    s = stage()
    source = s.arrive(max_tokens=9, ignore_eos=True)
    source.begins()
    script = source.script
    source.plays(len(script) - 2)
    last = b'"finish_reason":"length","stop_reason":null'
    source.says(script[-2].replace(last, b'"finish_reason":null'))
    s.migrate()
    assert (state(s), s.kinds, s.pool.connections) == ("PLAIN", [("1", "cancelled")], [source])
    s.exchange.client_gone()


@pytest.mark.parametrize("kind", [OutcomeKind.CANCELLED, OutcomeKind.CLIENT_ERROR])
def test_ends_that_are_no_loss(stage: Make, kind: OutcomeKind) -> None:
    s = stage()
    source = s.running(8)
    assert s.exchange.source is not None
    s.exchange.source.end(kind, "so")
    assert source.dropped
    assert s.kinds == [("0", str(kind))]
    assert b'data: {"error"' in s.client.body
    s.closed()


# Evicted, withdrawn.


@pytest.mark.parametrize("place", [2, 8, 20])
def test_an_eviction(stage: Make, place: int) -> None:
    s = stage(keepalive_s=3.0)
    source = s.running(place)
    s.brain.then.append(lambda _: [Hold(s.request, 1)])
    s.evict()
    assert (state(s), source.dropped, s.kinds) == ("WAITING", True, [("0", "evicted")])
    assert (s.ends[0][1].resumable, s.ends[0][1].output_tokens) == (True, s.mover.tape.generated)
    s.timers.fire(3.0)
    s.timers.fire(3.0)
    assert s.client.body.count(b": waiting for a replica\n") == 2
    target = s.spelled(s.resume())
    target.begins()
    target.plays()
    s.client.got = s.client.got.replace(b"18\r\n: waiting for a replica\n\r\n", b"")
    whole(s)


@pytest.mark.parametrize("phase", ["sent", "warming", "going on", "evicted", "alone asking"])
def test_an_eviction_that_cannot_be_is_refused_at_once(stage: Make, phase: str) -> None:
    """Nobody could go on with it now, or it is under way already."""
    s = stage()
    reach(s, phase)
    before = state(s)
    s.evict()
    assert (s.refusals, state(s)) == (1, before)
    s.exchange.client_gone()


def test_an_eviction_of_what_is_pinned_is_refused(stage: Make) -> None:
    s = stage()
    source = s.running(3)
    source.says(b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm"},"finish_reason":null}]}\n\n')
    s.evict()
    assert (s.refusals, state(s), source.dropped) == (1, "PLAIN", False)
    s.exchange.client_gone()


NOT_NOW = "it is not being answered by the source now"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("pinned", "its stream cannot be continued: reasoning"), ("of another attempt", NOT_NOW),
        ("over", "the source said its last"), ("under way", NOT_NOW), ("nothing said", "too little was said yet"),
        ("unknown replica", "the target is not there, or another kind of engine"),
    ],
)  # fmt: skip
def test_a_move_that_cannot_be_ends_at_once(stage: Make, why: str, told: str) -> None:
    """The target's reservation is given back; nothing else happens."""
    s = stage()
    source = s.running(8 if why != "nothing said" else 0)
    number = 1
    if why == "pinned":
        source.says(b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm"},"finish_reason":null}]}\n\n')
    elif why == "over":
        for event in source.script[8:-1]:
            source.says(event)
    elif why == "under way":
        s.migrate()
        number = 2
    if why == "unknown replica":
        del s.pool.targets[R1]
    before = state(s)
    s.migrate(number, source=5 if why == "of another attempt" else 0)
    assert (s.kinds, state(s), s.ends[-1][1].detail) == ([(str(number), "cancelled")], before, told)
    assert not source.dropped
    s.exchange.client_gone()


@pytest.mark.parametrize("when", ["warming", "going on"])
def test_a_target_that_the_brain_withdraws(stage: Make, when: str) -> None:
    s = stage()
    source = s.running(8)
    target = s.migrate()
    if when == "going on":
        target = s.spelled(s.warmed(target))
    source.plays(1)
    s.exchange.abort(s.attempt(1), "replica_gone")
    assert (state(s), target.dropped, s.kinds) == ("PLAIN", True, [("1", "cancelled")])
    source.plays()
    whole(s)


def test_a_source_that_the_brain_withdraws_goes_on_elsewhere(stage: Make) -> None:
    s = stage()
    s.running(8)
    s.brain.then.append(goes_on_at(s, 1, "r1"))
    s.exchange.abort(s.attempt(0), "replica_gone")
    target = s.spelled(s.pool.connections[-1])
    target.begins()
    target.plays()
    whole(s)


def test_late_news_of_a_target_that_was_given_up_changes_nothing(stage: Make) -> None:
    s = stage()
    source = s.running(8)
    s.migrate()
    target = s.mover._target
    assert target is not None
    s.exchange.abort(s.attempt(1), "x")
    s.mover.warmed(target)
    s.mover.target_failed(target, OutcomeKind.RESET, "late")
    s.mover.nothing_left(target)
    assert (state(s), s.kinds) == ("PLAIN", [("1", "cancelled")])
    source.plays()
    whole(s)


def test_what_is_kept_is_accounted_for(stage: Make) -> None:
    """The body is kept for continuations although the client's own copy is let go with the first token."""
    s = stage()
    s.running(8)
    assert s.plane.body_bytes == len(s.body)
    s.exchange.client_gone()
    assert s.plane.body_bytes == 0


# In one piece (`Gathered` has more).


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_a_move_of_an_answer_in_one_piece(stage: Make, path: str) -> None:
    s = stage(plain=True, hold_bytes=1, keepalive_s=1.0)
    source = s.running(8, path, stream=False)
    target = s.moving()
    source.plays(9)
    assert state(s) == "CUTTING", "nobody waits for what is held: there is no bound on it but memory's"
    target.begins()
    target.plays()
    assert s.client.body == at_once(path, s.body, "at-r0")
    assert s.client.ended
    s.closed()
    assert s.kinds == [("0", "migrated"), ("1", "ok")]


def test_an_answer_in_one_piece_is_forsaken_by_its_target_when_all_begins_again(stage: Make) -> None:
    """The source turned out to be pinned, and died: the target cannot go on, and another attempt begins."""
    s = stage(plain=True)
    source = s.running(8, stream=False)
    target = s.migrate()
    source.says(b'data: {"choices":[{"index":0,"delta":{"reasoning":"hm"},"finish_reason":null}]}\n\n')
    s.brain.then += [lambda _: [], lambda _: [dispatch(s.request, 2, R2)]]
    source.dies()
    assert (target.dropped, s.kinds) == (True, [("1", "cancelled"), ("0", "truncated")])
    again = s.pool.connections[-1]
    assert again.target.spec.id == R2
    again.begins()
    again.plays()
    assert b"hm" not in s.client.body
    assert s.client.ended
    s.closed()


@pytest.mark.parametrize("plain", [False, True])
def test_a_body_of_countless_fields_is_sent_as_it_came_and_stays(stage: Make, plain: bool) -> None:
    s = stage(plain=plain)
    source = s.arrive(**{f"k{n}": 1 for n in range(5000)}, stream=not plain)
    assert source.body == s.body
    assert not s.mover.can_go_on()
    s.exchange.client_gone()
    s.closed()
