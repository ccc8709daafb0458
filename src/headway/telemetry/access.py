"""One client request, as the accounts, the metrics and the access log see it. A value, nothing else."""

from typing import Final, Literal, get_args

from headway.core.ids import RequestId

Account = Literal["ok", "client_error", "server_error", "client_closed", "shed"]
"""The class a request is booked under. Every request that was started ends in exactly one:
started = ok + client_error + server_error + client_closed + shed, once nothing is in flight.
`shed` is our own refusal for lack of room; an error inside a 200 stream is a server_error."""

ACCOUNTS: Final[tuple[Account, ...]] = get_args(Account)


class Access:
    """One request: filled in along its way, booked once when it ended, and never changed after that.

    `at` is the wall clock when it ended (unix seconds, for logs only); `started_at`, `asked_at` (the brain was)
    and `first_token_at` are of the monotonic clock. `path` is the route's template, or "unmatched"; `model` is a name
    the fleet knows, or "other": both become labels, so a client must not choose them. `code` says why, for everything
    that is not plain success (our refusal's code or the outcome's kind). `replica` is where the last attempt went.
    `ttft_s` counts from arrival to the first content, None when there was none; `queued_s` from the brain being asked
    until a replica was tried first, or the end.

    No Struct, because every request writes and reads one, which is what compiled code does best with its own classes.
    """

    __slots__ = (
        "account", "asked_at", "at", "attempts", "bytes_in", "bytes_out", "cached_tokens", "client_request_id", "code",
        "duration_s", "first_token_at", "method", "model", "output_tokens", "path", "prompt_tokens", "queued_s",
        "replica", "request_id", "started_at", "status", "stream", "tenant", "ttft_s",
    )  # fmt: skip

    def __init__(
        self, request_id: RequestId, method: str, path: str, client_request_id: str, started_at: float
    ) -> None:
        self.at = 0.0
        self.request_id = request_id
        self.method = method
        self.path = path
        self.status = 0
        self.account: Account = "ok"
        self.model = "other"
        self.client_request_id = client_request_id
        self.tenant = ""
        self.code = ""
        self.replica = ""
        self.attempts = 0
        self.queued_s = 0.0
        self.ttft_s: float | None = None
        self.duration_s = 0.0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.stream = False
        self.started_at = started_at
        self.asked_at = started_at
        self.first_token_at: float | None = None

    def attempted(self, replica: str, at: float) -> None:
        """A replica is tried."""
        if not self.attempts:
            self.queued_s = at - self.asked_at
        self.attempts += 1
        self.replica = replica

    def ended(self, wall: float, at: float, account: Account, status: int, code: str, bytes_out: int) -> None:
        """It is over: `wall` by the wall clock, `at` by the monotonic one."""
        self.at = wall
        self.duration_s = at - self.started_at
        if not self.attempts and self.asked_at > self.started_at:  # it was sent nowhere: all it did was to wait
            self.queued_s = at - self.asked_at
        if self.first_token_at is not None:
            self.ttft_s = self.first_token_at - self.started_at
        self.account = account
        self.status = status
        self.code = code
        self.bytes_out = bytes_out


LOGGED: Final = (
    "at", "request_id", "method", "path", "status", "account", "model", "client_request_id", "tenant", "code",
    "replica", "attempts", "queued_s", "ttft_s", "duration_s", "prompt_tokens", "cached_tokens", "output_tokens",
    "bytes_in", "bytes_out", "stream",
)  # fmt: skip
"""What the access log says of a request, in this order."""
