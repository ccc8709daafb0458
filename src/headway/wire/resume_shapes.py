"""What a tape reads of a streamed event: Structs that msgspec decodes into. Meaning is in `resume`."""

import msgspec
from msgspec import Raw

ABSENT = Raw(b"")


class Counts(msgspec.Struct, gc=False):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Delta(msgspec.Struct, gc=False):
    content: str | None = None
    role: Raw = ABSENT
    reasoning: Raw = ABSENT
    reasoning_content: Raw = ABSENT
    tool_calls: Raw = ABSENT
    function_call: Raw = ABSENT


class Part(msgspec.Struct, gc=False):
    """One choice of a chunk."""

    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class Chunk(msgspec.Struct, gc=False):
    choices: list[Part] | None = None
    usage: Counts | None = None
    error: Raw = ABSENT
    prompt_token_ids: list[int] | None = None
