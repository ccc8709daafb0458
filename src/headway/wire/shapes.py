"""What is read of the JSON of answers, of streamed events and of a few fields of requests: Structs that msgspec decodes
into. What they come to is `usage`.

Only shapes live here; what they mean is the business of `answers`, `chunks`, `sse` and `openai`. They are here because
those are modules that `make fast` compiles, and a Struct in compiled code loses its options.
"""

import msgspec
from msgspec import Raw

ABSENT = Raw(b"")


class Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class RawUsage(msgspec.Struct, gc=False):
    """`usage` objects of all APIs at once, and SGLang's `meta_info`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    prompt_tokens_details: Details | None = None
    input_tokens_details: Details | None = None
    finish_reason: Raw = Raw(b"")


class Finish(msgspec.Struct, gc=False):
    finish_reason: str | None = None


class Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class WholeAnswer(msgspec.Struct, gc=False):
    usage: RawUsage | None = None
    choices: list[Finish] | None = None
    stop_reason: str | None = None
    incomplete_details: Incomplete | None = None
    meta_info: RawUsage | None = None
    tokens_evaluated: int | None = None
    tokens_predicted: int | None = None
    stop_type: str | None = None


class ReasonKind(msgspec.Struct, gc=False):
    type: str | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | list[Raw] | None = None
    role: Raw = ABSENT
    tool_calls: Raw = ABSENT
    reasoning: Raw = ABSENT
    reasoning_content: Raw = ABSENT
    function_call: Raw = ABSENT


class Choice(msgspec.Struct, gc=False):
    delta: Delta | None = None
    text: Raw = ABSENT
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class Chunk(msgspec.Struct, gc=False):
    """OpenAI chat and completions."""

    choices: list[Choice] | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT


class Response(msgspec.Struct, gc=False):
    usage: RawUsage | None = None
    error: Raw = ABSENT
    incomplete_details: Raw = ABSENT


class Message(msgspec.Struct, gc=False):
    usage: RawUsage | None = None


class Stop(msgspec.Struct, gc=False):
    stop_reason: str | None = None


class Other(msgspec.Struct, gc=False):
    """Responses, Anthropic messages, llama.cpp's and SGLang's own streams, and bare errors."""

    type: str = ""
    object: str = ""
    message: Raw = ABSENT
    code: Raw = ABSENT
    delta: Raw = ABSENT
    response: Response | None = None
    meta_info: RawUsage | None = None
    tokens_predicted: int | None = None
    tokens_evaluated: int = 0
    stop: bool = False
    stop_type: str = ""


class Error(msgspec.Struct, gc=False):
    message: str | None = ""
    code: Raw = ABSENT
    type: Raw = ABSENT


class UsageOnly(msgspec.Struct, gc=False):
    choices: list[msgspec.Raw]
    usage: dict[str, msgspec.Raw]


class StreamOptions(msgspec.Struct, gc=False):
    include_usage: bool | None = None


class Named(msgspec.Struct, gc=False):
    id: str = ""
    user_id: str = ""
