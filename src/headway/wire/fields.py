"""The fields of each kind of request body that Headway looks at, and the paths that take each kind.

What lives here: names of fields, per API. What must not: arithmetic over them (`openai`). All but `model` and `stream`
are kept raw: a wrong type in one of them is for the engine to refuse, in its own words, and a number no float can hold
must get through untouched.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from headway.wire.resume_pins import PINNED

ABSENT = Raw(b"")
NOTHING: tuple[Raw, ...] = ()


class Fields(msgspec.Struct, gc=False):
    """Any JSON body: a model, maybe a stream, and a prompt whose length is told but whose prefix is not followed."""

    generates: ClassVar[bool] = False
    replayable: ClassVar[bool] = False
    streams_by_default: ClassVar[bool] = False

    model: str | None = None
    stream: bool | None = None
    input: Raw = ABSENT
    prompt: Raw = ABSENT
    messages: Raw = ABSENT
    query: Raw = ABSENT
    documents: Raw = ABSENT
    text_1: Raw = ABSENT
    text_2: Raw = ABSENT
    tokens: Raw = ABSENT
    user: Raw = ABSENT
    priority: Raw = ABSENT

    def prompts(self) -> tuple[Raw, ...]:
        """The parts of the prompt; when the body generates, the first one is the text whose prefix is followed."""
        return self.input, self.prompt, self.messages, self.query, self.documents, self.text_1, self.text_2, self.tokens

    def heads(self) -> tuple[Raw, ...]:
        """What a chat template puts before the prompt, or what keeps engines from sharing a cached prefix."""
        return NOTHING

    def limits(self) -> tuple[Raw, ...]:
        """Limits on output tokens, the one that rules first."""
        return NOTHING

    def counts(self) -> tuple[Raw, ...]:
        """How many sequences are generated: the largest counts."""
        return NOTHING

    def least(self) -> tuple[Raw, Raw]:
        """Tokens below which no output ends, and whether the limit is what ends it."""
        return ABSENT, ABSENT

    def sessions(self) -> tuple[Raw, ...]:
        """What may name the conversation, the most telling first."""
        return (self.user,)

    def options(self) -> Raw | None:
        """`stream_options`; None: this API does not know them."""
        return None


class Sampling(msgspec.Struct, gc=False):
    """What chat and completions share."""

    generates: ClassVar[bool] = True
    replayable: ClassVar[bool] = True
    streams_by_default: ClassVar[bool] = False

    model: str | None = None
    stream: bool | None = None
    stream_options: Raw = ABSENT
    max_tokens: Raw = ABSENT
    n: Raw = ABSENT
    user: Raw = ABSENT
    prompt_cache_key: Raw = ABSENT
    cache_salt: Raw = ABSENT
    priority: Raw = ABSENT
    seed: Raw = ABSENT
    presence_penalty: Raw = ABSENT
    frequency_penalty: Raw = ABSENT
    logprobs: Raw = ABSENT
    prompt_logprobs: Raw = ABSENT
    response_format: Raw = ABSENT
    structured_outputs: Raw = ABSENT
    guided_json: Raw = ABSENT
    guided_regex: Raw = ABSENT
    guided_choice: Raw = ABSENT
    guided_grammar: Raw = ABSENT
    json_schema: Raw = ABSENT
    grammar: Raw = ABSENT
    regex: Raw = ABSENT
    ebnf: Raw = ABSENT
    use_beam_search: Raw = ABSENT
    bad_words: Raw = ABSENT
    stop_regex: Raw = ABSENT
    mirostat: Raw = ABSENT
    custom_logit_processor: Raw = ABSENT
    truncate_prompt_tokens: Raw = ABSENT
    kv_transfer_params: Raw = ABSENT
    min_tokens: Raw = ABSENT
    ignore_eos: Raw = ABSENT

    def heads(self) -> tuple[Raw, ...]:
        """A cache salt keeps prefixes apart."""
        return (self.cache_salt,)

    def least(self) -> tuple[Raw, Raw]:
        """Of vLLM, SGLang, TensorRT-LLM and (the second) llama.cpp."""
        return self.min_tokens, self.ignore_eos

    def sessions(self) -> tuple[Raw, ...]:
        """OpenAI's own field for keeping a conversation on one cache comes first."""
        return self.prompt_cache_key, self.user

    def options(self) -> Raw | None:
        """OpenAI's stream options."""
        return self.stream_options


class Chat(Sampling, gc=False):
    """/v1/chat/completions."""

    messages: Raw = ABSENT
    tools: Raw = ABSENT
    functions: Raw = ABSENT
    max_completion_tokens: Raw = ABSENT

    def prompts(self) -> tuple[Raw, ...]:
        """The conversation."""
        return (self.messages,)

    def heads(self) -> tuple[Raw, ...]:
        """Chat templates render tools before the conversation."""
        return self.tools, self.functions, self.cache_salt

    def limits(self) -> tuple[Raw, ...]:
        """The newer name rules (OpenAI, vLLM)."""
        return self.max_completion_tokens, self.max_tokens

    def counts(self) -> tuple[Raw, ...]:
        """Choices."""
        return (self.n,)


class Completion(Sampling, gc=False):
    """/v1/completions."""

    prompt: Raw = ABSENT
    suffix: Raw = ABSENT
    echo: Raw = ABSENT
    best_of: Raw = ABSENT
    n_predict: Raw = ABSENT

    def prompts(self) -> tuple[Raw, ...]:
        """A string, token ids, or a list of either."""
        return (self.prompt,)

    def limits(self) -> tuple[Raw, ...]:
        """llama.cpp's native name second."""
        return self.max_tokens, self.n_predict

    def counts(self) -> tuple[Raw, ...]:
        """best_of generations run although only n are returned."""
        return self.n, self.best_of


class NativeCompletion(Completion, gc=False):
    """llama.cpp's /completion, /completions and /infill: streams of its own, which nobody continues."""

    replayable: ClassVar[bool] = False


class Responses(Fields, gc=False):
    """/v1/responses."""

    generates: ClassVar[bool] = True

    instructions: Raw = ABSENT
    tools: Raw = ABSENT
    max_output_tokens: Raw = ABSENT
    prompt_cache_key: Raw = ABSENT
    conversation: Raw = ABSENT

    def prompts(self) -> tuple[Raw, ...]:
        """A string or items."""
        return (self.input,)

    def heads(self) -> tuple[Raw, ...]:
        """Instructions become the system message."""
        return self.tools, self.instructions

    def limits(self) -> tuple[Raw, ...]:
        """One name."""
        return (self.max_output_tokens,)

    def sessions(self) -> tuple[Raw, ...]:
        """State kept by the engine binds the session more than a cache key does. (`previous_response_id` names a turn,
        another one each time, and no session.)"""
        return self.conversation, self.prompt_cache_key, self.user


class Messages(Fields, gc=False):
    """Anthropic's /v1/messages."""

    generates: ClassVar[bool] = True

    system: Raw = ABSENT
    tools: Raw = ABSENT
    max_tokens: Raw = ABSENT
    metadata: Raw = ABSENT

    def prompts(self) -> tuple[Raw, ...]:
        """The conversation."""
        return (self.messages,)

    def heads(self) -> tuple[Raw, ...]:
        """The system text is a field of its own."""
        return self.tools, self.system

    def limits(self) -> tuple[Raw, ...]:
        """One name."""
        return (self.max_tokens,)

    def sessions(self) -> tuple[Raw, ...]:
        """`metadata.user_id`."""
        return self.metadata, self.user


class Nested(msgspec.Struct, gc=False):
    """`sampling_params` (SGLang, vLLM) or `options` (Ollama)."""

    max_new_tokens: Raw = ABSENT
    max_tokens: Raw = ABSENT
    min_new_tokens: Raw = ABSENT
    min_tokens: Raw = ABSENT
    ignore_eos: Raw = ABSENT
    num_predict: Raw = ABSENT
    n: Raw = ABSENT


_NESTED = msgspec.json.Decoder(Nested)
_NO_NESTED = Nested()


def _nested(raw: Raw) -> Nested:
    """The limits inside; none for anything but an object (SGLang takes a list of them for a batch)."""
    if raw is ABSENT:
        return _NO_NESTED
    try:
        return _NESTED.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _NO_NESTED


class Native(Fields, gc=False):
    """SGLang's /generate and vLLM's /inference/v1/generate."""

    generates: ClassVar[bool] = True

    text: Raw = ABSENT
    input_ids: Raw = ABSENT
    token_ids: Raw = ABSENT
    sampling_params: Raw = ABSENT

    def prompts(self) -> tuple[Raw, ...]:
        """Whichever is there."""
        first = self.text if self.text is not ABSENT else self.input_ids
        return (first if first is not ABSENT else self.token_ids,)

    def limits(self) -> tuple[Raw, ...]:
        """SGLang's name, then vLLM's."""
        nested = _nested(self.sampling_params)
        return nested.max_new_tokens, nested.max_tokens

    def least(self) -> tuple[Raw, Raw]:
        """SGLang's name, else vLLM's."""
        nested = _nested(self.sampling_params)
        return nested.min_tokens if nested.min_new_tokens is ABSENT else nested.min_new_tokens, nested.ignore_eos

    def counts(self) -> tuple[Raw, ...]:
        """Parallel samples."""
        return (_nested(self.sampling_params).n,)


class Ollama(Fields, gc=False):
    """/api/chat and /api/generate: they stream unless told not to."""

    generates: ClassVar[bool] = True
    streams_by_default: ClassVar[bool] = True

    system: Raw = ABSENT
    tools: Raw = ABSENT
    limits_: Raw = msgspec.field(default=ABSENT, name="options")

    def prompts(self) -> tuple[Raw, ...]:
        """Messages or a prompt."""
        return (self.messages if self.messages is not ABSENT else self.prompt,)

    def heads(self) -> tuple[Raw, ...]:
        """Rendered before the conversation."""
        return self.tools, self.system

    def limits(self) -> tuple[Raw, ...]:
        """-1 means no limit."""
        return (_nested(self.limits_).num_predict,)


AnyFields = Fields | Chat | Completion

PATHS: dict[str, type[AnyFields]] = {
    "/v1/chat/completions": Chat,
    "/v1/completions": Completion,
    "/completion": NativeCompletion,
    "/completions": NativeCompletion,
    "/infill": NativeCompletion,
    "/v1/responses": Responses,
    "/v1/messages": Messages,
    "/generate": Native,
    "/inference/v1/generate": Native,
    "/api/chat": Ollama,
    "/api/generate": Ollama,
}
"""Paths whose requests generate; every other path is read as plain `Fields`."""

EVERYDAY = frozenset({
    "model", "stream", "stream_options", "input", "prompt", "messages", "query", "documents", "text_1", "text_2",
    "tokens", "text", "input_ids", "token_ids", "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict",
})  # fmt: skip
"""Fields that are always asked for: the prompt, and the limit on output. All others are seldom there."""

COMMON: dict[type[AnyFields], Callable[[tuple[Any, ...]], tuple[Raw, ...]]] = {
    kind: itemgetter(
        *(at for at, f in enumerate(msgspec.structs.fields(kind)) if f.name in EVERYDAY and f.default is ABSENT)
    )
    for kind in {Fields, *PATHS.values()}
}
"""The everyday fields that are kept raw, out of all fields as a tuple."""

SELDOM: dict[type[AnyFields], int] = {
    kind: sum(field.name not in EVERYDAY for field in msgspec.structs.fields(kind)) for kind in COMMON
}
"""How many fields there are that few bodies have: where so many are absent, beside what is of `COMMON`, none is there.
To count is cheaper than to look at each: they are most of all."""

PINS: dict[type[AnyFields], tuple[str, ...]] = {
    kind: tuple(field.name for field in msgspec.structs.fields(kind) if field.name in PINNED) if kind.replayable else ()
    for kind in SELDOM
}
"""Fields that may forbid going on elsewhere, by kind of body; the reasons are in `resume_pins`."""


def pins(fields: AnyFields) -> tuple[Raw, ...]:
    """The values of `PINS`, in order; none of an API that nobody continues."""
    return tuple([getattr(fields, name) for name in PINS[type(fields)]])
