"""One token for us before any for clients: what warms up an engine that was just started or woken.

The first request of a fresh process compiles, captures graphs and allocates; it can take a hundred times as long as the
second. It is asked for here by the plainest call there is. An engine that has no completions is asked to chat; one that
has neither (embeddings only) is as warm as we can make it. Any answer but a 5xx means that the engine does what it does
for clients; 501 is how some say that they never will.
"""

import msgspec

from headway.core.replica import ReplicaSpec
from headway.runtime.http import Answer, Client, Failure

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
ABSENT = frozenset((404, 405, 501))
BODY_CAP_BYTES = 64 * 1024


def _asks(model: str) -> tuple[tuple[str, bytes], ...]:
    """What is asked, the next only if the one before it is absent."""
    common = {"model": model, "max_tokens": 1, "temperature": 0, "stream": False}
    return (
        (COMPLETIONS, msgspec.json.encode({**common, "prompt": "1 2 3"})),
        (CHAT, msgspec.json.encode({**common, "messages": [{"role": "user", "content": "1 2 3"}]})),
    )


async def warm_up(spec: ReplicaSpec, client: Client, headers: dict[str, str], timeout_s: float) -> str | Failure:
    """Have a replica's engine generate one token within `timeout_s` for each way of asking. Empty if it is warm, else
    what it said or why it said nothing."""
    model = spec.model or next(iter(spec.serves.values()), "")
    base = spec.url.rstrip("/")
    typed = {**headers, "content-type": "application/json"}
    for path, body in _asks(model):
        got = await client.fetch(
            base + path, method="POST", timeout_s=timeout_s, cap_bytes=BODY_CAP_BYTES, headers=typed, body=body
        )
        if not isinstance(got, Answer):
            return got
        if got.status in ABSENT:
            continue
        return f"status {got.status} to one token" if got.status >= 500 else ""
    return ""
