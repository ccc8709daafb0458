"""From a client's bytes to what the brain is told, and from the brain's choice to the bytes an engine gets."""

from headway.core.commands import Dispatch
from headway.core.ids import RequestId
from headway.core.request import RequestInfo
from headway.gateway.identity import session_of
from headway.gateway.notes import Notes
from headway.telemetry.redact import without_secrets
from headway.wire import openai, rewrites
from headway.wire.body import Body, BodyError
from headway.wire.splice import Edit, Octets, Piece, pieces


def unknown(parsed: Body) -> Body:
    """The same, asking for a model that nobody serves: the name goes into our refusal and into journals, and some put
    their key there."""
    return parsed.changed(model=without_secrets(parsed.model))


def request_info(
    parsed: Body, notes: Notes, request: RequestId, size: int, at: float, resumable: bool, pinned: str
) -> RequestInfo:
    """The facts for the brain; `size` is that of the body. A session header wins over what the body names. What may be
    resumed is streamed by its engine, whether its client wants a stream or not; `pinned` is why it may not."""
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
        parsed.stream or resumable,
        parsed.generates,
        resumable,
        notes.precision_floor,
        parsed.fingerprint,
        notes.policy,
        size,
        parsed.counted_tokens,
        parsed.min_output_tokens,
        pinned,
    )


def payload(
    body: Octets, parsed: Body, command: Dispatch, path: str, form: str, with_usage: bool, endless: bool
) -> list[Piece] | BodyError:
    """The bytes for an engine: the client's, but for the model's name, the usage option, the limit and the logprobs
    where they must differ. In pieces, so that a large body is not held twice while a slow engine takes it.

    `form` is the content type of form data, `endless` as for `rewrites.cap_edits`.
    """
    edits: list[Edit] = []
    if command.model and command.model != parsed.model:
        renaming = openai.model_edits(body, parsed, command.model, form)
        if isinstance(renaming, BodyError):
            return renaming
        edits += renaming
    if with_usage and parsed.usage_edit is not None:
        edits.append(parsed.usage_edit)
    if not form:
        cap = rewrites.cap_edits(body, path, command.max_tokens, endless) if command.max_tokens else []
        quiet = [] if command.logprobs else rewrites.logprobs_edits(body, path)
        for wanted in (cap, quiet):
            if isinstance(wanted, BodyError):
                return wanted
            edits += wanted
    return pieces(body, edits)
