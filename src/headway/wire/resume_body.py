"""The body that asks another replica to go on where a stream was cut.

What lives here: from a client's body and a cut to the body for the target, three ways. What must not: which way an
engine takes (`engines`), and where the cut is (`resume`).

Every value that is kept keeps its bytes. What changes: the prompt, the limits (less what was generated), and that the
target streams, tells its usage and, where asked, its token ids.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from headway.wire.numbers import whole
from headway.wire.spans import top_level
from headway.wire.splice import Octets

CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"

_CHAT_ONLY: Final = frozenset({
    "messages", "max_completion_tokens", "logprobs", "top_logprobs", "response_format", "tools", "functions",
    "tool_choice", "function_call", "parallel_tool_calls", "add_generation_prompt", "continue_final_message",
    "chat_template", "chat_template_kwargs", "documents", "add_special_tokens", "reasoning_effort", "modalities",
    "audio", "store", "metadata", "n_predict", "reasoning_format",
})  # fmt: skip
"""Fields that mean nothing, or something else, once a chat goes on as a completion."""

_ZERO: Final = frozenset({b"0", b"0.0"})
_NEUTRAL: Final = frozenset({b"null", b"false", b"0", b"0.0", b"1", b"1.0", b"[]"})
_LIMITS: Final = ("max_completion_tokens", "max_tokens", "n_predict")

Raws = dict[str, bytes]


class Unresumable(ValueError):
    """No body can be made of this: the limit is unknown, or a field has a shape that no engine takes."""


class LimitReached(Unresumable):
    """All that may be generated was: nobody need be asked, the stream ends here (`Splicer.finish("length")`)."""


class Ask(msgspec.Struct, frozen=True):
    """A request to the target: `POST path` with `body`."""

    path: str
    body: bytes


class Wants(msgspec.Struct, frozen=True):
    """What the target's stream must tell beside text. (Where `usage` is False, the client's own wish stands.)"""

    ids: bool = True
    usage: bool = True


class Stops(msgspec.Struct, frozen=True):
    """Stop strings, and whether they are `shown` in the output; `greedy`: what is generated again will be the same."""

    strings: tuple[str, ...] = ()
    shown: bool = False
    greedy: bool = False

    @property
    def reach(self) -> int:
        """How many characters before its end a stop string may begin."""
        return max(map(len, self.strings), default=1) - 1

    @property
    def hold(self) -> int:
        """Characters that the engine holds back and that are not to be generated again: others would come."""
        return 0 if self.shown or self.greedy else self.reach

    @property
    def lags(self) -> bool:
        """Whether text is held back at all."""
        return bool(self.strings) and not self.shown

    @property
    def again(self) -> bool:
        """Whether a cut by text should go back to a word's start, see `Tape.by_text`."""
        return bool(self.strings) and self.greedy

    @property
    def back(self) -> int:
        """Characters to generate again, so that no stop string lies across the cut: only where the same will come."""
        return self.reach if self.shown and self.greedy else 0


class Limits(msgspec.Struct, frozen=True):
    """What bounds the output, in tokens; 0 where unknown or without a bound.

    `context`: prompt and output together; `default`: what this engine takes when the client names no limit.
    """

    context: int = 0
    default: int = 0


ALL: Final = Wants()
NO_IDS: Final = Wants(ids=False)
NO_MORE: Final[Mapping[str, object]] = {}


def by_ids(
    body: Octets,
    prompt: Sequence[int],
    said: Sequence[int],
    limits: Limits,
    wants: Wants = ALL,
    more: Mapping[str, object] = NO_MORE,
) -> Ask:
    """Chat or completion, continued as a completion of token ids: prompt, then what was generated.

    `more`: fields of the engine's own. Raises Unresumable, TooManyKeys.
    """
    fields = _fields(body)
    _shrink(fields, len(said), _room(fields, len(prompt), limits))
    return _completion(fields, [*prompt, *said], wants, more)


def by_text(
    body: Octets,
    prompt: str | Sequence[int],
    said: str | Sequence[int],
    generated: int,
    limits: Limits,
    wants: Wants = NO_IDS,
    more: Mapping[str, object] = NO_MORE,
) -> Ask:
    """The same by text: `prompt` as the engine renders it, then what the client was sent, which stands for `generated`
    tokens. Where the client's own prompt is ids, `said` is what the engine makes of the text. Raises as `by_ids`.
    """
    fields = _fields(body)
    _shrink(fields, generated, _room(fields, 0, limits))
    if isinstance(prompt, str) and isinstance(said, str):
        return _completion(fields, prompt + said, wants, more)
    if isinstance(prompt, str) or isinstance(said, str):
        raise Unresumable("text cannot be joined to ids")
    return _completion(fields, [*prompt, *said], wants, more)


def by_message(
    body: Octets,
    said: str,
    generated: int,
    limits: Limits,
    wants: Wants = NO_IDS,
    more: Mapping[str, object] = NO_MORE,
) -> Ask:
    """A chat continued as a chat: the answer so far becomes the assistant's message, which the template leaves open.
    A chat without a limit goes on without one: what is left of the context is what was left before."""
    fields = _fields(body)
    _shrink(fields, generated, _room(fields, 0, Limits(default=limits.default)))
    fields["messages"] = _with_answer(fields, said)
    fields["add_generation_prompt"] = b"false"
    fields["continue_final_message"] = b"true"
    return Ask(CHAT, _written(_streaming(fields, wants), more))


def prompt_of(body: Octets) -> str | list[int] | None:
    """The prompt of a completion, None if it is none of a single text or single list of ids."""
    raw = _fields(body).get("prompt")
    try:
        return None if raw is None else msgspec.json.decode(raw, type=str | list[int])
    except msgspec.DecodeError:
        return None


def rendering(body: Octets) -> bytes:
    """The body that asks an engine for the prompt of a chat (vLLM's /tokenize, llama.cpp's /apply-template)."""
    kept = ("model", "messages", "add_generation_prompt", "continue_final_message", "chat_template")
    fields = _fields(body)
    names = (*kept, "chat_template_kwargs", "add_special_tokens", "tools")
    return _written({name: fields[name] for name in names if name in fields}, NO_MORE)


def stops(body: Octets) -> Stops:
    """The stop strings of a body. Anything but strings counts as none: the engine has refused it."""
    fields = _fields(body)
    try:
        stop = msgspec.json.decode(fields.get("stop", b"null"), type=str | list[str] | None)
    except msgspec.DecodeError:
        stop = None
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    greedy = fields.get("temperature") in _ZERO or _number(fields.get("top_k")) == 1
    return Stops(tuple(filter(None, strings)), fields.get("include_stop_str_in_output") == b"true", greedy)


def has(body: Octets, name: str) -> bool:
    """Whether the body has this field."""
    return name in _fields(body)


def first_set(body: Octets, names: Sequence[str]) -> str:
    """The first of these fields that is there and not null, false, zero or one; "" if none is."""
    fields = _fields(body)
    return next((name for name in names if fields.get(name, b"null") not in _NEUTRAL), "")


def limit_of(body: Octets, prompt_tokens: int, limits: Limits) -> int:
    """Tokens that may be generated altogether, 0 if there is no bound. Raises Unresumable if it cannot be known."""
    return _room(_fields(body), prompt_tokens, limits)


def _fields(body: Octets) -> Raws:
    """Top-level values by key; of a key that is there twice the last counts, as for engines."""
    return {key: bytes(body[start:end]) for key, start, end in top_level(body)}


def _number(raw: bytes | None) -> int:
    return whole(raw or b"")


def _room(fields: Raws, prompt_tokens: int, limits: Limits) -> int:
    """The client's limit, else the engine's own; a chat without either may fill the context."""
    asked = next((number for name in _LIMITS if (number := _number(fields.get(name)))), 0) or limits.default
    if asked or not limits.context:
        return asked
    if not prompt_tokens:
        raise Unresumable("what is left of the context is unknown")
    return limits.context - prompt_tokens


def _shrink(fields: Raws, generated: int, limit: int) -> None:
    """What was generated no longer may be, and no longer must."""
    least = _number(fields.get("min_tokens"))
    for name in _LIMITS:
        fields.pop(name, None)
    if limit:
        if generated >= limit:
            raise LimitReached("the limit is reached")
        fields["max_tokens"] = b"%d" % (limit - generated)
    if least:
        fields["min_tokens"] = b"%d" % max(0, least - generated)


def _completion(fields: Raws, prompt: str | list[int], wants: Wants, more: Mapping[str, object]) -> Ask:
    kept = {name: raw for name, raw in fields.items() if name not in _CHAT_ONLY}
    kept["prompt"] = msgspec.json.encode(prompt)
    return Ask(COMPLETIONS, _written(_streaming(kept, wants), more))


def _streaming(fields: Raws, wants: Wants) -> Raws:
    fields["stream"] = b"true"
    if wants.usage:
        fields["stream_options"] = _with_usage(fields.get("stream_options", b"null"))
    fields.pop("return_token_ids", None)
    return fields | {"return_token_ids": b"true"} if wants.ids else fields


def _with_usage(raw: bytes) -> bytes:
    options = msgspec.json.decode(raw)
    kept = options if isinstance(options, dict) else {}
    return msgspec.json.encode(kept | {"include_usage": True})


def _with_answer(fields: Raws, said: str) -> bytes:
    """The conversation with the answer so far; appended to the last message, if the client began the answer itself."""
    if fields.get("continue_final_message") == b"true":
        messages = msgspec.json.decode(fields.get("messages", b"[]"), type=list[dict[str, msgspec.Raw]])
        begun = msgspec.json.decode(messages[-1].get("content", b"null"), type=str) if messages else ""
        messages[-1:] = [messages[-1] | {"content": msgspec.Raw(msgspec.json.encode(begun + said))}]
        return msgspec.json.encode(messages)
    messages_raw = fields.get("messages", b"[]").rstrip()
    answer = msgspec.json.encode({"role": "assistant", "content": said})
    return messages_raw[:-1] + b"," + answer + b"]"


def _written(fields: Raws, more: Mapping[str, object]) -> bytes:
    whole = fields | {name: msgspec.json.encode(value) for name, value in more.items()}
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + raw for name, raw in whole.items()) + b"}"
