"""Our own errors in OpenAI's shape: as a whole body, and as an event inside a stream that has already begun.

What lives here: the bytes and the words of an error. What must not: which error to send when (gateway, brain).

Error types are those the OpenAI API uses: every 4xx says `invalid_request_error` (OpenAI itself answers 401 and 404
with that type and tells them apart by `code`: `invalid_api_key`, `model_not_found`), 429 says
`rate_limit_error`, 502 and 504 say `upstream_error` (the engine, not we, failed), other 5xx say `server_error`.
"""

import msgspec

_TYPE_BY_STATUS = {403: "permission_error", 429: "rate_limit_error", 502: "upstream_error", 504: "upstream_error"}


def error_type(status: int) -> str:
    """The `error.type` that goes with a status."""
    return _TYPE_BY_STATUS.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def error_body(
    status: int, message: str, code: str | None = None, param: str | None = None, type: str | None = None
) -> bytes:
    """`{"error":{message,type,param,code}}` for a response of `status`. `type` defaults to `error_type(status)`."""
    error = {"message": message, "type": type or error_type(status), "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def sse_error(message: str, code: str, status: int = 502) -> bytes:
    """One in-band error event, for a stream that was already answered with 200.

    `code` is an int of the 5xx class, as engines send it in band: clients that know only numbers can still tell that
    trying again makes sense. The stable word goes to `reason`. No `[DONE]` may follow.
    """
    error = {"message": message, "type": error_type(status), "param": None, "code": status, "reason": code}
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"
