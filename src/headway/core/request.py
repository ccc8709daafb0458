"""What the brain is told about a request. What it believes about it is `demand`."""

import msgspec

from headway.core.ids import RequestId


class RequestInfo(msgspec.Struct, frozen=True, gc=False):
    """The facts of one client request. Everything here was read from bytes; nothing is a guess.

    `prompt_bytes` is the raw length of the prompt text (the JSON of messages, prompt or input, less inline media);
    `prompt_tokens` is 0 unless the count is known exactly (token ids were sent).
    `counted_tokens` is a count that is nearly exact: of the prompt's texts by the model's tokenizer, without all that
    a chat template adds; 0 without one.
    `media_tokens` is a rough token count for inline images and audio, added to the text estimate.
    `max_output_tokens` is 0 when the client stated no limit.
    `prefix_hashes` are chained 64-bit hashes of consecutive fixed-size blocks of the raw prompt text.
    `generates` is False for requests that produce no tokens step by step (embeddings, rerank, tokenize ...).
    `fingerprint` identifies the body, so that a request that kills engines can be quarantined.
    `deadline` is on the same monotonic clock as event times.
    `tenant` is empty while no keys exist. `tier` is how important the request is (`core.tenant.Tier`); nothing that a
    client says lifts it above what its tenant may have.
    `precision_floor` is the least precision the client takes ("" = the one its model name stands for); `policy` the
    routing policy it asks for, "" = the gateway's own. `body_bytes` is what holding it costs us.
    """

    id: RequestId
    model: str
    tenant: str = ""
    tier: int = 0
    prompt_bytes: int = 0
    prompt_tokens: int = 0
    media_tokens: int = 0
    max_output_tokens: int = 0
    sequences: int = 1
    prefix_hashes: tuple[int, ...] = ()
    session_key: str = ""
    deadline: float | None = None
    stream: bool = False
    generates: bool = True
    resumable: bool = False
    precision_floor: str = ""
    fingerprint: int = 0
    policy: str = ""
    body_bytes: int = 0
    counted_tokens: int = 0
