"""From a client's bytes to what the brain is told, and from the brain's choice to the bytes an engine gets."""

from headway.core.ids import RequestId
from headway.core.request import RequestInfo
from headway.gateway.identity import session_of
from headway.gateway.notes import Notes
from headway.wire import openai
from headway.wire.body import Body, BodyError
from headway.wire.splice import Edit, Octets, Piece, pieces


def request_info(parsed: Body, notes: Notes, request: RequestId, size: int, at: float) -> RequestInfo:
    """The facts for the brain; `size` is that of the body. A session header wins over what the body names."""
    return RequestInfo(
        request,
        parsed.model,
        notes.tenant,
        notes.tier,
        parsed.prompt_bytes,
        parsed.prompt_tokens,
        parsed.media_tokens,
        parsed.max_output_tokens,
        parsed.sequences,
        parsed.prefix_hashes,
        notes.session_key or session_of(notes.tenant, parsed.session_key),
        at + notes.patience_s if notes.patience_s else None,
        parsed.stream,
        parsed.generates,
        parsed.resumable,
        notes.precision_floor,
        parsed.fingerprint,
        notes.policy,
        size,
    )


def payload(body: Octets, parsed: Body, model: str, notes: Notes, with_usage: bool) -> list[Piece] | BodyError:
    """The bytes for an engine: the client's, but for the model's name and the usage option where they must differ. In
    pieces, so that a large body is not held twice while a slow engine takes it."""
    edits: list[Edit] = []
    if model and model != parsed.model:
        renaming = openai.model_edits(body, parsed, model, notes.form)
        if isinstance(renaming, BodyError):
            return renaming
        edits += renaming
    if with_usage and parsed.usage_edit is not None:
        edits.append(parsed.usage_edit)
    return pieces(body, edits)
