"""A journal reads back exactly, and replays to the same commands or says where it does not."""

import math
import random
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.brain import Brain
from headway.core.commands import Abort, Command, Hold, Probe, Record, Reject, Relay, SetTimer
from headway.core.constants import BrainConfig
from headway.core.events import Event, TimerFired
from headway.core.ids import AttemptId, RequestId
from headway.core.outcome import Outcome
from headway.core.plugin import NoConfig
from headway.core.request import RequestInfo
from headway.wire import journal
from tests.core.house import FewestInFlight
from tests.core.storm import CONFIG, Storm
from tests.interpreted import interpreted


def header() -> bytes:
    return journal.encode_header("fewest", 3, CONFIG, NoConfig())


def make(head: journal.Header) -> Brain:
    config = msgspec.json.decode(head.config, type=BrainConfig)
    return Brain(config, FewestInFlight(binds_late=True), random.Random(head.seed))


def written(storm: Storm) -> Iterator[bytes]:
    yield header()
    for event, commands in storm.journal:
        yield journal.encode_entry(event, commands)


def test_the_header_tells_how_to_make_the_brain_again() -> None:
    head = journal.decode_header(header())
    assert (head.version, head.policy, head.seed) == (journal.VERSION, "fewest", 3)
    assert msgspec.json.decode(head.config, type=BrainConfig) == CONFIG
    assert header().count(b"\n") == 1


@pytest.mark.slow
def test_every_event_and_command_of_a_storm_reads_back() -> None:
    for event, commands in Storm(3).run(400).journal:
        line = journal.encode_entry(event, commands)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert journal.decode_entry(line) == journal.Entry(event, commands)


@pytest.mark.parametrize(
    "command",
    [
        Reject(RequestId("r"), 503, "queue_full", "full", 2.0, True),
        Relay(RequestId("r"), AttemptId("r-0")),
        Abort(AttemptId("r-0"), "replica_gone"),
        Hold(RequestId("r"), 3),
        SetTimer("queue:m", 1.25),
        Probe("a"),  # type: ignore[arg-type]
    ],
)
def test_commands_read_back(command: Command) -> None:
    assert journal.decode_entry(journal.encode_entry(TimerFired(0.0, "x"), [command])).commands == [command]


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_exact(at: float) -> None:
    entry = journal.decode_entry(journal.encode_entry(TimerFired(at, "x"), [SetTimer("x", at)]))
    assert entry.event.at == at
    assert math.copysign(1, entry.event.at) == math.copysign(1, at)


@pytest.mark.slow
def test_a_replay_reproduces_every_command() -> None:
    assert journal.replay(written(Storm(3).run(500)), make) is None


@pytest.mark.slow
def test_a_replay_tells_the_first_difference() -> None:
    storm = Storm(3).run(200)
    lines = list(written(storm))
    event, commands = next((e, c) for e, c in storm.journal if any(isinstance(x, Record) for x in c))
    place = storm.journal.index((event, commands))
    lines[place + 1] = journal.encode_entry(event, commands[:-1])
    found = journal.replay(lines, make)
    assert found is not None
    assert (found.line, found.event) == (place + 2, event)
    assert len(found.replayed) > len(found.recorded)


class Mute:
    """Decides nothing."""

    def handle(self, event: Event) -> list[Command]:
        return []


def test_a_cut_last_line_ends_the_journal() -> None:
    whole = journal.encode_entry(TimerFired(0.0, "x"), [])
    assert journal.replay([header(), whole, whole[:-9]], lambda _: Mute()) is None


@pytest.mark.parametrize("numbers", [(1, 3), (2, 3), (1, 1), (1, 0, 2)])
def test_lines_that_are_missing_or_moved_are_an_error(numbers: tuple[int, ...]) -> None:
    entries = [journal.encode_entry(TimerFired(0.0, "x"), [], number) for number in numbers]
    with pytest.raises(journal.Gap, match="lines are missing or moved"):
        list(journal._read(iter(entries)))


def test_lines_without_numbers_are_taken_as_they_come() -> None:
    entries = [journal.encode_entry(TimerFired(0.0, "x"), [])] * 3
    assert len(list(journal._read(iter(entries)))) == 3
    assert b"number" not in entries[0]


def test_a_torn_line_in_the_middle_is_an_error() -> None:
    with pytest.raises(journal.JournalError, match="line 2") as caught:
        journal.replay([header(), b'{"event":\n', b"{}\n"], lambda _: Mute())
    assert caught.value.line == 2


def test_an_event_that_no_brain_can_take_is_told_by_its_line() -> None:
    class Lost:
        def handle(self, event: Event) -> list[Command]:
            raise OverflowError("math range error")

    entry = journal.encode_entry(TimerFired(1.0, "t"), [])
    with pytest.raises(journal.JournalError, match=r"line 2: .* \(OverflowError: math range error\)"):
        journal.replay([header(), entry], lambda _: Lost())


@pytest.mark.parametrize("line", [b"", b"{}\n", b"[1]\n", b'{"event": 3}\n', b"\xff\n"])
def test_garbage_is_an_error_not_a_surprise(line: bytes) -> None:
    with pytest.raises(journal.JournalError):
        journal.decode_header(line)
    with pytest.raises(journal.JournalError):
        journal.decode_entry(line, 5)


def test_what_is_nested_too_deeply_is_no_journal() -> None:
    deep = b'{"x":' + b"[" * 100_000
    with pytest.raises(journal.JournalError, match="line 1"):
        journal.decode_header(deep)
    with pytest.raises(journal.JournalError, match="line 5"):
        journal.decode_entry(deep, 5)
    with pytest.raises(journal.JournalError, match="line 2"):
        journal.replay([header(), deep + b"\n"], lambda _header: None)  # type: ignore[arg-type, return-value]


def test_another_version_is_refused() -> None:
    with pytest.raises(journal.JournalError, match="version 9"):
        journal.decode_header(header().replace(b'"version":%d' % journal.VERSION, b'"version":9'))


@interpreted  # a compiled class takes no words for numbers
@pytest.mark.parametrize("kind", journal.FORMS)
def test_what_is_no_struct_is_written_with_every_field(kind: type[RequestInfo | Outcome]) -> None:
    form = journal.FORMS[kind]
    facts = form(*(f"{field}" for field in form.__struct_fields__))
    made = kind(**msgspec.structs.asdict(facts))
    assert [getattr(made, field) for field in kind.__slots__] == sorted(form.__struct_fields__)
    assert made.facts() == msgspec.structs.astuple(facts)


def test_what_is_no_event_has_no_form_in_a_journal() -> None:
    with pytest.raises(NotImplementedError, match="object has no form in a journal"):
        journal.encode(object())
