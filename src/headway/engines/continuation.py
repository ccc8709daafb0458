"""How a running chat or completion goes on on another replica of the same engine: what to ask for when it starts, what
to ask the engine at the cut, and the body for the target.

Values only: whoever relays makes the calls. Reading streams and writing bodies is `wire.resume*`; here is what differs
between engines, as data. Where an engine can move its KV cache itself, that is `KvMove` or `KvPull`, another way to the
same end.
"""

import enum
from typing import Final

import msgspec

from headway.wire import resume_body
from headway.wire.body import Body
from headway.wire.resume import Tape
from headway.wire.resume_body import CHAT, COMPLETIONS, Ask, Limits, Stops, Unresumable, Wants
from headway.wire.resume_cut import Cut
from headway.wire.resume_splice import Manner
from headway.wire.resume_whole import Form
from headway.wire.spans import TooManyKeys
from headway.wire.splice import Octets

_ANSWER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUE = msgspec.json.Decoder(str | list[int])

UNSUPPORTED: Final = "engine"
"""Why a request is pinned whose engine has no way to go on."""


UNCOUNTED: Final = "fields"
"""Why a request is pinned that has more fields than are read."""


class Way(enum.StrEnum):
    """What the target is given: token ids, the text they make, or a chat whose last message is left open."""

    IDS = "ids"
    TEXT = "text"
    MESSAGE = "message"
    NONE = "none"


class Words(msgspec.Struct, frozen=True):
    """An endpoint that turns text into ids or back, or a chat into text: `path`, the field asked with, the one that
    answers, and what else to say."""

    path: str
    asks: str
    answers: str
    more: dict[str, object] = {}

    def ask(self, value: object, model: str = "") -> Ask:
        """The call."""
        named: dict[str, object] = {"model": model} if model else {}
        return Ask(self.path, msgspec.json.encode({**named, self.asks: value, **self.more}))

    def text(self, answer: bytes) -> str:
        """The text answered. Raises Unresumable if there is none."""
        value = self._read(answer)
        if isinstance(value, str):
            return value
        raise Unresumable(f"{self.path} did not answer with text")

    def ids(self, answer: bytes) -> list[int]:
        """The ids answered. Raises Unresumable if there are none."""
        value = self._read(answer)
        if isinstance(value, list):
            return value
        raise Unresumable(f"{self.path} did not answer with ids")

    def _read(self, answer: bytes) -> str | list[int]:
        try:
            return _VALUE.decode(_ANSWER.decode(answer).get(self.answers, msgspec.Raw(b"null")))
        except msgspec.DecodeError as error:
            raise Unresumable(f"{self.path} did not answer as expected") from error


class KvMove(msgspec.Struct, frozen=True):
    """KV moved by the engine through a folder that both replicas see: save on the source once the request has left its
    slot, restore on the target, then resume there with `slot_field`.

    The request must have been given its slot when it started: the OpenAI API does not tell which one it got.
    `fixed_s`: what a move costs however little there is, both halves; `per_token_s`: a guess until it was measured.
    """

    save: str
    restore: str
    slot_field: str
    fixed_s: float
    per_token_s: float

    def save_ask(self, slot: int, name: str) -> Ask:
        """Write a slot's KV to a file. `name` is ours, never the client's: it becomes a path on the engine's disk."""
        return Ask(self.save.format(slot=slot), msgspec.json.encode({"filename": name}))

    def restore_ask(self, slot: int, name: str) -> Ask:
        """Read it back."""
        return Ask(self.restore.format(slot=slot), msgspec.json.encode({"filename": name}))


class KvPull(msgspec.Struct, frozen=True):
    """KV that the target fetches itself while the source goes on: ask the source for one more token of what it holds,
    with `wanted` as `field`; what its answer says there is for the target, in the same field.

    `fixed_s`: what that costs however little there is; `per_token_s`: a guess until it was measured.
    """

    field: str
    wanted: dict[str, object]
    fixed_s: float
    per_token_s: float

    def ticket(self, answer: bytes) -> dict[str, object]:
        """What the source says. Raises Unresumable if it gives nothing away."""
        try:
            found = msgspec.json.decode(_ANSWER.decode(answer).get(self.field, b"null"), type=dict[str, object] | None)
        except msgspec.DecodeError as error:
            raise Unresumable(f"{self.field} is not as expected") from error
        if not found:
            raise Unresumable("the source has no connector for its KV")
        return found


class Given(msgspec.Struct, frozen=True):
    """What the target's body needs beside the client's and the tape. `context_tokens` of the model; `usage`: the target
    is to tell its usage though the client did not ask.

    For `Way.TEXT`, `prompt` is what `render` says of a chat, or a completion's own; where that is ids, `said_ids` are
    those that `tokenise` makes of what was said. `fields`: say, the slot whose KV was restored.
    """

    context_tokens: int = 0
    usage: bool = False
    prompt: str | list[int] = ""
    said_ids: list[int] = []
    fields: dict[str, object] = {}


NOTHING_GIVEN: Final = Given()


class Continuation(msgspec.Struct, frozen=True):
    """One engine's way to continue. The defaults are those of an engine that has none.

    `chat`, `completion`, `media`: the way for each, `media` for a chat with images or sound. `default_tokens`: what a
    completion without a limit gets, 0 if it has none. `open_ended`: a completion without a limit may fill the context,
    so none has to be worked out for a chat without one. `pins`: further fields that forbid it on this engine.
    `fields`: what the target's body says besides. `bare_finish`: see `Manner`. `chat_form`, `completion_form`: what its
    answers in one piece look like.
    """

    chat: Way = Way.NONE
    completion: Way = Way.NONE
    media: Way = Way.NONE
    default_tokens: int = 0
    open_ended: bool = False
    pins: tuple[str, ...] = ()
    fields: dict[str, object] = {}
    bare_finish: bool = False
    render: Words | None = None
    tokenise: Words | None = None
    detokenise: Words | None = None
    kv: KvMove | None = None
    pull: KvPull | None = None
    chat_form: Form = Form()
    completion_form: Form = Form()

    def form(self, path: str) -> Form:
        """What an answer in one piece looks like."""
        return self.chat_form if path == CHAT else self.completion_form

    def way(self, path: str, media: bool = False) -> Way:
        """The way for requests to `path`."""
        if path == CHAT:
            return self.media if media else self.chat
        return self.completion if path == COMPLETIONS and not media else Way.NONE

    def pinned(self, body: Octets, parsed: Body, path: str) -> str:
        """Why this request stays where it is, "" if it need not. Ask once, when it starts."""
        if parsed.pinned:
            return parsed.pinned
        if self.way(path, parsed.media_tokens > 0) is Way.NONE:
            return "media" if parsed.media_tokens else UNSUPPORTED
        try:
            return resume_body.first_set(body, self.pins) if self.pins else ""
        except TooManyKeys:
            return UNCOUNTED

    def render_ask(self, body: Octets) -> Ask:
        """The call that tells a chat's prompt as text: `render.text(answer)`."""
        if self.render is None:
            raise Unresumable("the engine does not render")
        return Ask(self.render.path, resume_body.rendering(body))

    def ask(self, way: Way, body: Octets, tape: Tape, cut: Cut, given: Given = NOTHING_GIVEN) -> Ask:
        """The request to the target. Raises LimitReached where nothing is left to generate, Unresumable where the limit
        cannot be known."""
        default = 0 if resume_body.has(body, "messages") else self.default_tokens
        limits = Limits(0 if self.open_ended else given.context_tokens, default)
        wants = Wants(way is Way.IDS, given.usage)
        more = {**self.fields, **given.fields}
        if way is Way.IDS:
            if tape.prompt_ids is None:
                raise Unresumable("the stream did not tell the ids of its prompt")
            return resume_body.by_ids(body, tape.prompt_ids, tape.ids[: cut.count], limits, wants, more)
        if way is Way.MESSAGE:
            return resume_body.by_message(body, cut.text, cut.count, limits, wants, more)
        said = cut.text if isinstance(given.prompt, str) else given.said_ids
        return resume_body.by_text(body, given.prompt, said, cut.count, limits, wants, more)

    def manner(self, way: Way, parsed: Body, stops: Stops, *, running_usage: bool = False, ids: bool = False) -> Manner:
        """What the client is to see. A stop string can lie across a cut by ids only: text that may begin one was held
        back by the source, so it is not in the text that the target is given."""
        strings = stops.strings if way is Way.IDS else ()
        return Manner(bool(parsed.include_usage), running_usage, ids, self.bare_finish, strings, stops.shown)
