"""What a relay asks, written down: for tests of relays, one at a time."""

from headway.core.outcome import OutcomeKind
from headway.gateway.head import HeadReader, ResponseHead
from headway.gateway.outlet import Outlet

OOM = b'{"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB","code":500}}'


class Client:
    """The client's transport: it gives what it gets to the boss."""

    def __init__(self, boss: "Boss") -> None:
        self.boss = boss

    def write(self, data: bytes) -> None:
        assert self.boss.outlet.begun
        assert data
        self.boss.given += data


class Boss:
    """Writes down."""

    def __init__(self, injected_usage: bool = False) -> None:
        self.outlet = Outlet(Client(self))  # type: ignore[arg-type]
        self.advanced = False
        self.injected_usage = injected_usage
        self.quotes = False
        self.goes_on = False
        self.given = b""
        self.said: list[object] = []

    def commit(self, first: bytes, reframe: bool = False) -> None:
        self.outlet.begun = True
        self.outlet.body_sent |= bool(first)
        self.given += first

    def complete(self, kind: OutcomeKind) -> None:
        self.said.append(kind)

    def failed(self, kind: OutcomeKind, detail: str) -> None:
        self.said.append(("failed", kind))

    def broken(self, kind: OutcomeKind, detail: str, farewell: bytes = b"") -> None:
        self.given += farewell
        self.said.append(("broken", kind))

    def first_token(self) -> None:
        self.said.append("first token")

    def passed(self) -> None:
        assert self.said[-1] == "first token"

    def advance(self) -> None:
        self.advanced = True

    def may_be_quoted(self) -> bool:
        return self.quotes

    def may_go_on(self) -> bool:
        return self.goes_on


def head(status: int = 200, media: str = "text/event-stream", lines: str = "") -> ResponseHead:
    read, _ = HeadReader().response(f"HTTP/1.1 {status} X\r\ncontent-type: {media}\r\n{lines}\r\n".encode())
    assert read is not None
    return read
