"""Refusals, in the words vLLM 0.32 was recorded to use: as values, turned into bytes at the edge."""

import json

import msgspec

ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
BUSY = "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."


class Refusal(msgspec.Struct, frozen=True):
    """An answer that is not what was asked for. `kind` is the error's `type` on the wire."""

    status: int
    message: str
    kind: str = "BadRequestError"
    param: str | None = None

    @property
    def error(self) -> dict[str, object]:
        """The object on the wire, its fields in vLLM's order."""
        inner = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return {"error": inner}

    def body(self) -> bytes:
        """The JSON body of an error answer."""
        return msgspec.json.encode(self.error)

    def event(self) -> bytes:
        """The same inside a stream; vLLM writes it with another encoder, hence the blanks."""
        return f"data: {json.dumps(self.error)}\n\n".encode()


def bad(message: str, param: str | None = None, value: object = None) -> Refusal:
    """A 400 about one parameter, which vLLM names again in brackets."""
    if param is None:
        return Refusal(400, message)
    shown = f"(parameter={param})" if value is None else f"(parameter={param}, value={value})"
    return Refusal(400, f"{message} {shown}", param=param)


def invalid(kind: str, place: str, text: str, given: object, detail: str = "") -> Refusal:
    """A 400 in the words of the validation layer: one field is missing or of the wrong type."""
    shown = f"{{'type': '{kind}', 'loc': '{place}', 'msg': '{text}', 'input': {show(given)}{detail}}}"
    return Refusal(400, f"1 validation error:\n  {shown}", kind="Bad Request", param=place)


def show(value: object) -> str:
    """A value as the validation layer prints it: containers by their size only."""
    if isinstance(value, dict):
        return f"'<dict of {len(value)} items>'"
    if isinstance(value, list):
        return f"'<list of {len(value)} items>'"
    return repr(value)


def unknown_model(asked: str, known: str) -> Refusal:
    """A model name that nobody serves."""
    message = f"The model `{asked}` does not exist. Valid aliases: {known}."
    return Refusal(404, message, kind="NotFoundError", param="model")


BAD_CONTENT_TYPE = Refusal(
    400, "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request"
)
QUEUE_FULL = Refusal(503, BUSY, kind="Service Unavailable")
DEAD = Refusal(500, ENGINE_DEAD, kind="InternalServerError")
