"""From a client's bytes to what the brain is told, and from the brain's choice to the bytes an engine gets."""

from headway.core.ids import RequestId
from headway.core.request import RequestInfo
from headway.gateway.config import GatewayConfig
from headway.gateway.head import RequestHead
from headway.wire import openai
from headway.wire.body import Body, BodyError
from headway.wire.splice import Edit, splice

MAX_SESSION_KEY_CHARS = 256
MAX_DEADLINE_S = 86_400.0


def read_body(body: bytes, head: RequestHead) -> Body | BodyError:
    """What the body says: form data by its content type, everything else as JSON."""
    content_type = head.fields.get(b"content-type", b"")
    if content_type[:20].lower().startswith(b"multipart/form-data"):
        return openai.multipart(body, content_type.decode("latin-1"))
    return openai.scan(body, head.path)


def request_info(parsed: Body, head: RequestHead, config: GatewayConfig, request: RequestId, at: float) -> RequestInfo:
    """The facts for the brain. A session header wins over what the body names."""
    return RequestInfo(
        id=request,
        model=parsed.model,
        priority=parsed.priority,
        prompt_bytes=parsed.prompt_bytes,
        prompt_tokens=parsed.prompt_tokens,
        media_tokens=parsed.media_tokens,
        max_output_tokens=parsed.max_output_tokens,
        sequences=parsed.sequences,
        prefix_hashes=parsed.prefix_hashes,
        session_key=_session(head, config) or parsed.session_key,
        deadline=_deadline(head, config, at),
        stream=parsed.stream,
        generates=parsed.generates,
        resumable=parsed.resumable,
        fingerprint=parsed.fingerprint,
    )


def payload(body: bytes, parsed: Body, model: str, head: RequestHead, with_usage: bool) -> bytes | BodyError:
    """The bytes for an engine: the client's, but for the model's name and the usage option where they must differ."""
    edits: list[Edit] = []
    if model and model != parsed.model:
        content_type = head.fields.get(b"content-type", b"").decode("latin-1")
        renaming = openai.model_edits(body, parsed, model, content_type)
        if isinstance(renaming, BodyError):
            return renaming
        edits += renaming
    if with_usage and parsed.usage_edit is not None:
        edits.append(parsed.usage_edit)
    return splice(body, edits) if edits else body


def _session(head: RequestHead, config: GatewayConfig) -> str:
    """The first session header that says something usable. Repeated, empty and endless ones say nothing."""
    for name in config.session_headers:
        value = head.fields.get(name.lower().encode(), b"")
        if value and len(value) <= MAX_SESSION_KEY_CHARS and b", " not in value:
            return value.decode("latin-1")
    return ""


def _deadline(head: RequestHead, config: GatewayConfig, at: float) -> float | None:
    value = head.fields.get(config.deadline_header.lower().encode())
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return at + seconds if 0.0 < seconds <= MAX_DEADLINE_S else None
