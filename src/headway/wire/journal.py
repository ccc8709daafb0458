"""The journal: one JSON line per event with the commands it led to, after one header line.

Replaying a journal through a brain made from its header must reproduce every command byte for byte; floats are written
so that they read back exactly. Writing to a file is the body's business, and so is making a brain: `replay` takes a
callable. A journal whose last line was cut (the process died) is valid up to there. Lines are numbered, so that missing
ones are noticed where leaving them out changes no decision.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

import msgspec
from msgspec.structs import astuple

from headway.core.commands import Command
from headway.core.events import Event
from headway.core.ids import RequestId
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.request import RequestInfo

VERSION = 2
"""Changes when a line of an older version can no longer be replayed."""


class JournalError(ValueError):
    """A line that is not of this journal's format. `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


class Gap(JournalError):
    """Lines that were written are not there."""


class Header(msgspec.Struct, frozen=True):
    """What is needed to make the same brain again: policy, seed of its chance, and both configs as JSON; and
    other policies that requests may ask for."""

    version: int
    policy: str
    seed: int
    config: msgspec.Raw
    policy_config: msgspec.Raw
    others: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event and the commands that followed. `number` counts entries from 1; 0: not numbered."""

    event: Event
    commands: list[Command]
    number: int = 0


class Mismatch(msgspec.Struct, frozen=True):
    """The first line whose commands were not reproduced."""

    line: int
    event: Event
    recorded: str
    replayed: str


class Decider(Protocol):
    """What is replayed: a brain."""

    def handle(self, event: Event) -> list[Command]:
        """What to do about an event."""
        ...


class _Line(msgspec.Struct, frozen=True):
    event: Event
    commands: msgspec.Raw
    number: int = 0


class Request(msgspec.Struct, frozen=True):
    """`RequestInfo`, which is no Struct, in the order of its arguments."""

    id: RequestId
    model: str
    tenant: str = ""
    tier: int = 0
    prompt_bytes: int = 0
    prompt_tokens: int = 0
    media_tokens: int = 0
    max_output_tokens: int = 0
    sequences: int = 1
    prefix_hashes: tuple[int, ...] = ()
    session_key: str = ""
    deadline: float | None = None
    stream: bool = False
    generates: bool = True
    resumable: bool = False
    precision_floor: str = ""
    fingerprint: int = 0
    policy: str = ""
    body_bytes: int = 0
    counted_tokens: int = 0
    min_output_tokens: int = 0
    pinned: str = ""


class Ending(msgspec.Struct, frozen=True):
    """`Outcome`, likewise."""

    kind: OutcomeKind
    status: int = 0
    committed: bool = False
    sent: bool = False
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    hit_limit: bool = False
    retry_after_s: float = 0.0
    detail: str = ""
    resumable: bool = False


FORMS: Final[dict[type, type[msgspec.Struct]]] = {RequestInfo: Request, Outcome: Ending}
"""How the values of events and commands are written that are no Structs."""


def _written(value: object) -> object:
    if isinstance(value, RequestInfo | Outcome):
        return FORMS[type(value)](*value.facts())
    raise NotImplementedError(f"{type(value).__name__} has no form in a journal")


def _read_back(kind: type, value: object) -> object:
    return kind(*astuple(msgspec.convert(value, FORMS[kind])))


encode = msgspec.json.Encoder(enc_hook=_written).encode
"""An event or command as it is in a journal."""

_header = msgspec.json.Decoder(Header).decode
_entry = msgspec.json.Decoder(Entry, dec_hook=_read_back).decode
_line = msgspec.json.Decoder(_Line, dec_hook=_read_back).decode


def encode_header(
    policy: str, seed: int, config: msgspec.Struct, policy_config: msgspec.Struct, others: tuple[str, ...] = ()
) -> bytes:
    """The first line. `config`: the brain's; `policy_config`: the policy's own."""
    raw, policy_raw = msgspec.Raw(encode(config)), msgspec.Raw(encode(policy_config))
    return encode(Header(VERSION, policy, seed, raw, policy_raw, others)) + b"\n"


def encode_entry(event: Event, commands: list[Command], number: int = 0) -> bytes:
    """One further line."""
    return encode(Entry(event, commands, number)) + b"\n"


def decode_header(line: bytes) -> Header:
    """Read the first line. Raises JournalError, also for another version."""
    try:
        header = _header(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalError(1, f"not a journal header ({error})") from error
    if header.version != VERSION:
        raise JournalError(1, f"version {header.version} cannot be read, only {VERSION}")
    return header


def decode_entry(line: bytes, number: int = 0) -> Entry:
    """Read a further line. Raises JournalError."""
    try:
        return _entry(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalError(number, f"not a journal entry ({error})") from error


def replay(lines: Iterable[bytes], make_brain: Callable[[Header], Decider]) -> Mismatch | None:
    """Feed a journal's events to a fresh brain; the first difference, or None. Raises JournalError, also where an event
    is none that a brain can take (it was changed since), and Gap for lines that are missing."""
    source = iter(lines)
    brain = make_brain(decode_header(next(source, b"")))
    for number, line in _read(source):
        try:
            replayed = encode(brain.handle(line.event))
        except Exception as error:
            raise JournalError(number, f"the brain cannot take this event ({type(error).__name__}: {error})") from error
        if replayed != bytes(line.commands):
            return Mismatch(number, line.event, bytes(line.commands).decode(), replayed.decode())
    return None


def _read(source: Iterator[bytes]) -> Iterator[tuple[int, _Line]]:
    for number, text in enumerate(source, start=2):
        try:
            line = _line(text)
        except (msgspec.DecodeError, RecursionError) as error:
            if not text.endswith(b"\n"):  # only the last line can be without: it was being written
                return
            raise JournalError(number, f"not a journal entry ({error})") from error
        if line.number not in (0, number - 1):
            raise Gap(number, f"here should be entry {number - 1:,} and is {line.number:,}: lines are missing or moved")
        yield number, line
