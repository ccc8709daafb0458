"""One finished client request, as the accounts, the metrics and the access log see it. A value, nothing else."""

from typing import Literal, get_args

import msgspec

Account = Literal["ok", "client_error", "server_error", "client_closed", "shed"]
"""The class a request is booked under. Every request that was started ends in exactly one:
started = ok + client_error + server_error + client_closed + shed, once nothing is in flight.
`shed` is our own refusal for lack of room; an error inside a 200 stream is a server_error."""

ACCOUNTS: tuple[Account, ...] = get_args(Account)


class Access(msgspec.Struct, frozen=True, gc=False):
    """One finished request.

    `at` is the wall clock when the request ended (unix seconds, for logs only). `path` is the route's template, or
    "unmatched"; `model` is a name the fleet knows, or "other": both become labels, so a client must not choose them.
    `code` says why, for everything that is not plain success (our refusal's code or the outcome's kind). `replica`
    is where the last attempt went. `ttft_s` counts from arrival to the first content, None when there was none.
    """

    at: float
    request_id: str
    method: str
    path: str
    status: int
    account: Account
    model: str = "other"
    client_request_id: str = ""
    tenant: str = ""
    code: str = ""
    replica: str = ""
    attempts: int = 0
    queued_s: float = 0.0
    ttft_s: float | None = None
    duration_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    stream: bool = False
