"""What the brain is told about a request. What it believes about it is `demand`.

A plain class and not a Struct, as `entries`: the brain and the gateway read its fields some fifty times per request.
"""

from typing import Any, Final, final

from headway.core.ids import RequestId

REQUEST: Final = (
    "id", "model", "tenant", "tier", "prompt_bytes", "prompt_tokens", "media_tokens", "max_output_tokens", "sequences",
    "prefix_hashes", "session_key", "deadline", "stream", "generates", "resumable", "precision_floor",
    "fingerprint", "policy", "body_bytes", "counted_tokens", "min_output_tokens", "pinned",
)  # fmt: skip
"""Its fields, in the order of its arguments."""


@final
class RequestInfo:
    """The facts of one client request. Everything here was read from bytes; nothing is a guess.

    `prompt_bytes` is the raw length of the prompt text (the JSON of messages, prompt or input, less inline media);
    `prompt_tokens` is 0 unless the count is known exactly (token ids were sent).
    `counted_tokens` is a count that is nearly exact: of the prompt's texts by the model's tokenizer, without all that
    a chat template adds; 0 without one.
    `media_tokens` is a rough token count for inline images and audio, added to the text estimate.
    `max_output_tokens` is 0 when the client stated no limit. No output ends below `min_output_tokens`, unless its limit
    is lower (`min_tokens`; or that limit itself, for who ignores the end of text).
    `prefix_hashes` are chained 64-bit hashes of consecutive fixed-size blocks of the raw prompt text.
    `generates` is False for requests that produce no tokens step by step (embeddings, rerank, tokenize ...).
    `fingerprint` identifies the body, so that a request that kills engines can be quarantined.
    `deadline` is on the same monotonic clock as event times.
    `tenant` is empty while no keys exist. `tier` is how important the request is (`core.tenant.Tier`); nothing that a
    client says lifts it above what its tenant may have.
    `resumable`: another replica could go on with it; else `pinned` says why not, in a word, if that was asked.
    `precision_floor` is the least precision the client takes ("" = the one its model name stands for); `policy` the
    routing policy it asks for, "" = the gateway's own. `body_bytes` is what holding it costs us.
    """

    __slots__ = (
        "body_bytes", "counted_tokens", "deadline", "fingerprint", "generates", "id", "max_output_tokens",
        "media_tokens", "min_output_tokens", "model", "pinned", "policy", "precision_floor", "prefix_hashes",
        "prompt_bytes", "prompt_tokens", "resumable", "sequences", "session_key", "stream", "tenant", "tier",
    )  # fmt: skip

    def __init__(
        self,
        id: RequestId,
        model: str,
        tenant: str = "",
        tier: int = 0,
        prompt_bytes: int = 0,
        prompt_tokens: int = 0,
        media_tokens: int = 0,
        max_output_tokens: int = 0,
        sequences: int = 1,
        prefix_hashes: tuple[int, ...] = (),
        session_key: str = "",
        deadline: float | None = None,
        stream: bool = False,
        generates: bool = True,
        resumable: bool = False,
        precision_floor: str = "",
        fingerprint: int = 0,
        policy: str = "",
        body_bytes: int = 0,
        counted_tokens: int = 0,
        min_output_tokens: int = 0,
        pinned: str = "",
    ) -> None:
        self.id: Final = id
        self.model: Final = model
        self.tenant: Final = tenant
        self.tier: Final = tier
        self.prompt_bytes: Final = prompt_bytes
        self.prompt_tokens: Final = prompt_tokens
        self.media_tokens: Final = media_tokens
        self.max_output_tokens: Final = max_output_tokens
        self.sequences: Final = sequences
        self.prefix_hashes: Final = prefix_hashes
        self.session_key: Final = session_key
        self.deadline: Final = deadline
        self.stream: Final = stream
        self.generates: Final = generates
        self.resumable: Final = resumable
        self.precision_floor: Final = precision_floor
        self.fingerprint: Final = fingerprint
        self.policy: Final = policy
        self.body_bytes: Final = body_bytes
        self.counted_tokens: Final = counted_tokens
        self.min_output_tokens: Final = min_output_tokens
        self.pinned: Final = pinned

    def facts(self) -> tuple[Any, ...]:
        """All of it, in the order of the arguments."""
        return tuple(getattr(self, name) for name in REQUEST)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RequestInfo) and self.facts() == other.facts()

    def __hash__(self) -> int:
        return hash(self.facts())

    def __repr__(self) -> str:
        return f"RequestInfo{self.facts()}"

    def changed(self, **changes: Any) -> "RequestInfo":
        """The same request but for these fields. Raises TypeError for one that there is none of."""
        return RequestInfo(**{**dict(zip(REQUEST, self.facts(), strict=True)), **changes})
