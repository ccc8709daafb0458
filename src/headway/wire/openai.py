"""Request bodies of the OpenAI-shaped inference APIs: one pass finds what routing needs, and where to splice.

What lives here: reading a client's body. What must not: deciding anything about it, or changing it (`splice`).
"""

import msgspec

from headway.wire.splice import Edit


class Body(msgspec.Struct, frozen=True, gc=False):
    """What one request body says. Token counts are 0 where the body does not tell them exactly.

    `usage_edit` would turn on `stream_options.include_usage` when the body streams and the client did not say.
    `include_usage` is None when the client did not say. `form` tells multipart form data from JSON.
    `resumable`: nothing in the body forbids continuing it elsewhere by token replay.
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
    resumable: bool = False
    fingerprint: int = 0
    priority: int = 0
    form: bool = False


class BodyError(msgspec.Struct, frozen=True, gc=False):
    """Why a body was refused: the parts of an OpenAI error."""

    status: int
    code: str
    message: str
    param: str | None = None


def scan(body: bytes, path: str, block_bytes: int = 512) -> Body | BodyError:
    """Read a JSON body sent to `path` (no query, no replica prefix)."""
    raise NotImplementedError


def multipart(body: bytes, content_type: str) -> Body | BodyError:
    """Read the whole form-data body of an audio request. `model` may come after the file."""
    raise NotImplementedError


def model_edits(body: bytes, info: Body, name: str, content_type: str = "") -> list[Edit]:
    """Edits that make the engine see `name` as the model (every top-level `model`, should it be there twice).

    Costs a second look at the body: call it only when the name differs from `info.model`.
    """
    raise NotImplementedError
