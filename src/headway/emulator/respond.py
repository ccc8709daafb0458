"""Plain answers with the headers vLLM sends, in its order: length, type, then `vary`."""

import msgspec
from starlette.responses import Response

from headway.emulator.errors import Refusal

MISSING = "Not Found"


def ok(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return body(msgspec.json.encode(value), status, headers)


def body(data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer that is JSON already."""
    return varying(Response(data, status, media_type="application/json", headers=headers))


def empty(status: int = 200) -> Response:
    """An answer without a body."""
    return varying(Response(status_code=status))


def varying(response: Response) -> Response:
    """The same, with the header that vLLM's CORS layer adds last."""
    response.raw_headers.append((b"vary", b"Origin"))
    return response


def error(refusal: Refusal) -> Response:
    """A refusal on the wire."""
    return body(refusal.body(), refusal.status)
