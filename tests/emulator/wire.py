"""Plain HTTP for tests: one exchange with everything visible, a stream event by event, and the shape of JSON."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

import msgspec


class Got(msgspec.Struct, frozen=True):
    """An answer as it came. `headers` in order, names in lower case."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of each event of a stream; [DONE] as text."""
        data = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [one if one == "[DONE]" else json.loads(one) for one in data]

    def header(self, name: str) -> str | None:
        """A header's value."""
        return dict(self.headers).get(name)


def exchange(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
    patience_s: float = 10.0,
) -> Got:
    """One request on a fresh connection. Bodies that are not bytes are sent as JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience_s)
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    kind = {} if data is None else {"content-type": "application/json"}
    try:
        connection.request(method, path, data, {**kind, **(headers or {})})
        answer = connection.getresponse()
        return Got(answer.status, [(name.lower(), value) for name, value in answer.getheaders()], answer.read())
    finally:
        connection.close()


def post(port: int, path: str, body: Any, headers: dict[str, str] | None = None) -> Got:
    """A POST."""
    return exchange(port, "POST", path, body, headers)


def get(port: int, path: str, headers: dict[str, str] | None = None) -> Got:
    """A GET."""
    return exchange(port, "GET", path, headers=headers)


def shape(value: Any) -> Any:
    """Keys in order and kinds of values, without the values; a list is the shape of its first element."""
    if isinstance(value, dict):
        return [(key, shape(one)) for key, one in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


@contextlib.contextmanager
def opened(
    port: int, body: dict[str, Any], path: str = "/v1/chat/completions", patience_s: float = 10.0
) -> Iterator[http.client.HTTPResponse]:
    """A request whose answer has begun; the client leaves at the end. TimeoutError if it does not begin in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience_s)
    answer = None
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = connection.getresponse()
        yield answer
    finally:
        if answer is not None:
            answer.close()
        connection.close()


def hurried(port: int, body: dict[str, Any]) -> None:
    """A request by a client with a tenth of a second's patience."""
    with opened(port, body, patience_s=0.1):
        pass
