"""What a request body says, as values: `Body`, or `BodyError` when it is refused. Reading: `openai` and `form`."""

import msgspec

from headway.wire.resume_pins import API
from headway.wire.splice import Edit

MAX_MODEL_CHARS = 512
"""Longest model name taken. Real names are paths at most; a longer one would only bloat logs and error texts."""


class Body(msgspec.Struct, frozen=True, gc=False):
    """What one request body says. Counts are 0 where the body does not tell.

    `prompt_bytes` raw length of the prompt's JSON (tools and system text included), less inline media;
    `prompt_tokens` exact, when token ids were sent; `media_tokens` rough; `max_output_tokens` the client's limit;
    `sequences` generations asked for (n or best_of, times prompts); `prefix_hashes` chained hashes of full blocks of
    the raw prompt; `usage_edit` would turn on `stream_options.include_usage`, None when the client spoke about it or
    nothing streams; `include_usage` None when the client did not say; `form` tells form data from JSON;
    `pinned`: why it cannot be continued on another replica, "" if it can (`resume_pins`); `fingerprint` hash of all
    bytes; `priority` as the client wrote it (engines: lower first); `counted_tokens` of the prompt's texts, for whoever
    has counted them.
    """

    model: str
    stream: bool = False
    prompt_bytes: int = 0
    prompt_tokens: int = 0
    media_tokens: int = 0
    max_output_tokens: int = 0
    sequences: int = 1
    prefix_hashes: tuple[int, ...] = ()
    session_key: str = ""
    include_usage: bool | None = None
    usage_edit: Edit | None = None
    generates: bool = True
    pinned: str = API
    fingerprint: int = 0
    priority: int = 0
    form: bool = False
    counted_tokens: int = 0

    @property
    def resumable(self) -> bool:
        """Whether nothing in the body forbids continuing it on another replica."""
        return not self.pinned


class BodyError(msgspec.Struct, frozen=True, gc=False):
    """Why a body was refused: the parts of an OpenAI error."""

    status: int
    code: str
    message: str
    param: str | None = None


def bad_model(model: str | None, required: bool) -> BodyError | None:
    """The refusal of a model name that is missing where it is `required`, empty or absurdly long."""
    if not model:
        return BodyError(400, "missing_model", "you must provide a model parameter", "model") if required else None
    if len(model) > MAX_MODEL_CHARS:
        return BodyError(400, "invalid_model", f"model names longer than {MAX_MODEL_CHARS} are refused", "model")
    return None
