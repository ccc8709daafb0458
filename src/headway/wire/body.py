"""What a request body says, as values: `Body`, or `BodyError` when it is refused. Reading: `openai` and `form`.

Plain classes and no Structs, as in the brain (`core.entries`): compiled code reads them as fast as local variables.
"""

from typing import Any, Final, final

from headway.wire.resume_pins import API
from headway.wire.splice import Edit

MAX_MODEL_CHARS: Final = 512
"""Longest model name taken. Real names are paths at most; a longer one would only bloat logs and error texts."""


BODY: Final = (
    "model", "stream", "prompt_bytes", "prompt_tokens", "media_tokens", "max_output_tokens", "sequences",
    "prefix_hashes", "session_key", "include_usage", "usage_edit", "generates", "pinned", "fingerprint", "priority",
    "form", "counted_tokens", "min_output_tokens",
)  # fmt: skip
"""Fields of a `Body`, in the order of its arguments: a compiled class does not tell."""


@final
class Body:
    """What one request body says. Counts are 0 where the body does not tell.

    `prompt_bytes` raw length of the prompt's JSON (tools and system text included), less inline media;
    `prompt_tokens` exact, when token ids were sent; `media_tokens` rough; `max_output_tokens` the client's limit,
    `min_output_tokens` below which no output ends (`min_tokens`, or the limit with `ignore_eos`);
    `sequences` generations asked for (n or best_of, times prompts); `prefix_hashes` chained hashes of full blocks of
    the raw prompt; `usage_edit` would turn on `stream_options.include_usage`, None when the client spoke about it or
    nothing streams; `include_usage` None when the client did not say; `form` tells form data from JSON;
    `pinned`: why it cannot be continued on another replica, "" if it can (`resume_pins`); `fingerprint` hash of all
    bytes; `priority` as the client wrote it (engines: lower first); `counted_tokens` of the prompt's texts, for whoever
    has counted them.
    """

    __slots__ = (
        "counted_tokens", "fingerprint", "form", "generates", "include_usage", "max_output_tokens", "media_tokens",
        "min_output_tokens", "model", "pinned", "prefix_hashes", "priority", "prompt_bytes", "prompt_tokens",
        "sequences", "session_key", "stream", "usage_edit",
    )  # fmt: skip

    def __init__(
        self,
        model: str,
        stream: bool = False,
        prompt_bytes: int = 0,
        prompt_tokens: int = 0,
        media_tokens: int = 0,
        max_output_tokens: int = 0,
        sequences: int = 1,
        prefix_hashes: tuple[int, ...] = (),
        session_key: str = "",
        include_usage: bool | None = None,
        usage_edit: Edit | None = None,
        generates: bool = True,
        pinned: str = API,
        fingerprint: int = 0,
        priority: int = 0,
        form: bool = False,
        counted_tokens: int = 0,
        min_output_tokens: int = 0,
    ) -> None:
        self.model: Final = model
        self.stream: Final = stream
        self.prompt_bytes: Final = prompt_bytes
        self.prompt_tokens: Final = prompt_tokens
        self.media_tokens: Final = media_tokens
        self.max_output_tokens: Final = max_output_tokens
        self.sequences: Final = sequences
        self.prefix_hashes: Final = prefix_hashes
        self.session_key: Final = session_key
        self.include_usage: Final = include_usage
        self.usage_edit: Final = usage_edit
        self.generates: Final = generates
        self.pinned: Final = pinned
        self.fingerprint: Final = fingerprint
        self.priority: Final = priority
        self.form: Final = form
        self.counted_tokens: Final = counted_tokens
        self.min_output_tokens: Final = min_output_tokens

    @property
    def resumable(self) -> bool:
        """Whether nothing in the body forbids continuing it on another replica."""
        return not self.pinned

    def changed(self, **changes: Any) -> "Body":
        """The same but for these fields. Raises TypeError for one that there is none of."""
        return Body(**{**{name: getattr(self, name) for name in BODY}, **changes})


@final
class BodyError:
    """Why a body was refused: the parts of an OpenAI error."""

    __slots__ = ("code", "message", "param", "status")

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        self.status: Final = status
        self.code: Final = code
        self.message: Final = message
        self.param: Final = param


def bad_model(model: str | None, required: bool) -> BodyError | None:
    """The refusal of a model name that is missing where it is `required`, empty or absurdly long."""
    if not model:
        return BodyError(400, "missing_model", "you must provide a model parameter", "model") if required else None
    if len(model) > MAX_MODEL_CHARS:
        return BodyError(400, "invalid_model", f"model names longer than {MAX_MODEL_CHARS} are refused", "model")
    return None
