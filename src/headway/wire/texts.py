"""The texts of a prompt as strings, for whoever counts their tokens: what a body says, less all that is no text.

`openai.scan` keeps prompts raw, because hardly anybody needs more; this is the second look that a tokenizer takes. What
it cannot read (odd types, images) it leaves out or gives up on: engines refuse odd bodies in their own words.
"""

from typing import Any

import msgspec
from msgspec import Raw

from headway.wire.splice import Octets

ABSENT = Raw(b"")


class Texts(msgspec.Struct, frozen=True, gc=False):
    """`parts` in order, UTF-8. `messages` is how many a chat template has to wrap, 0 where none is applied. `whole`:
    the one part is all that the engine reads, so its tokens are the prompt's."""

    parts: tuple[bytes, ...]
    messages: int = 0
    whole: bool = False


class _Part(msgspec.Struct, gc=False):
    text: str | None = None


_Content = str | list[str | _Part] | None


class _Function(msgspec.Struct, gc=False):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    content: _Content = None
    tool_calls: list[_Call] | None = None
    arguments: str | None = None
    output: _Content = None


class _Prompt(msgspec.Struct, gc=False):
    """/v1/completions. What else changes the tokens makes their count inexact."""

    prompt: str | list[str] | None = None
    suffix: Raw = ABSENT
    truncate_prompt_tokens: Raw = ABSENT
    add_special_tokens: Raw = ABSENT
    prompt_embeds: Raw = ABSENT


class _Conversation(msgspec.Struct, gc=False):
    """Chat, Anthropic's messages, OpenAI's responses."""

    messages: list[_Message] | None = None
    input: str | list[_Message] | None = None
    system: _Content = None
    instructions: _Content = None
    tools: Raw = ABSENT
    functions: Raw = ABSENT


_PROMPT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Prompt)
_CONVERSATION: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_Conversation)
_DECODERS = {
    "/v1/completions": _PROMPT,
    "/v1/chat/completions": _CONVERSATION,
    "/v1/messages": _CONVERSATION,
    "/v1/responses": _CONVERSATION,
}


def texts(body: Octets, path: str) -> Texts | None:
    """The texts of a body that `openai.scan` has taken; None where there are none to be had. About 1 ms per MB."""
    decoder = _DECODERS.get(path)
    if decoder is None:
        return None
    try:
        found = decoder.decode(body)
    except msgspec.ValidationError:
        return None
    return _of_prompt(found) if isinstance(found, _Prompt) else _of_conversation(found)


def _of_prompt(found: _Prompt) -> Texts | None:
    prompt = found.prompt
    if not prompt:
        return None
    if isinstance(prompt, str):
        changed = (found.suffix, found.truncate_prompt_tokens, found.add_special_tokens, found.prompt_embeds)
        return Texts((prompt.encode(),), whole=all(raw is ABSENT or bytes(raw) == b"null" for raw in changed))
    return Texts(tuple(text.encode() for text in prompt))


def _of_conversation(found: _Conversation) -> Texts | None:
    parts: list[bytes] = [bytes(raw) for raw in (found.tools, found.functions) if raw is not ABSENT]
    messages = 0
    for content in (found.system, found.instructions):
        if content:
            messages += 1
            _gather(content, parts)
    if isinstance(found.input, str):
        found.input = [_Message(found.input)]
    for message in (*(found.messages or ()), *(found.input or ())):
        messages += 1
        _gather(message.content, parts)
        _gather(message.output, parts)
        if message.arguments:
            parts.append(message.arguments.encode())
        for call in message.tool_calls or ():
            if call.function is not None:
                parts.append(f"{call.function.name} {call.function.arguments}".encode())
    return Texts(tuple(parts), messages) if messages else None


def _gather(content: _Content, parts: list[bytes]) -> None:
    if isinstance(content, str):
        parts.append(content.encode())
        return
    for part in content or ():
        text = part if isinstance(part, str) else part.text
        if text:
            parts.append(text.encode())
