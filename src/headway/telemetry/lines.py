"""The access log's lines: one per finished request, for machines or for people. Made on the log's own thread."""

import time
from collections.abc import Callable
from operator import attrgetter

import msgspec

from headway.telemetry.access import LOGGED, Access
from headway.telemetry.redact import Redactor

COLOURS = {"ok": "\x1b[32m", "client_error": "\x1b[33m", "client_closed": "\x1b[33m"}
_LOGGED = attrgetter(*LOGGED)
PLAIN, RED = "\x1b[0m", "\x1b[31m"


class _Stamp:
    """The text of a wall-clock second, made once per second: formatting time costs as much as the rest of a line."""

    def __init__(self, form: str, convert: Callable[[float], time.struct_time]) -> None:
        self._form = form
        self._convert = convert
        self._second = -1
        self._text = ""

    def __call__(self, at: float) -> str:
        second = int(at)
        if second != self._second:
            self._second, self._text = second, time.strftime(self._form, self._convert(second))
        return self._text


class AccessJson:
    """What is `LOGGED` of an `Access`, with an ISO time in UTC."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._stamp = _Stamp("%Y-%m-%dT%H:%M:%S", time.gmtime)
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, access: Access) -> str:
        fields = dict(zip(LOGGED, _LOGGED(access), strict=True))
        if access.client_request_id:
            fields["client_request_id"] = self._redactor.scrub(access.client_request_id)
        stamp = f"{self._stamp(access.at)}.{int(access.at % 1 * 1000):03d}Z"
        return f'{{"timestamp":"{stamp}","level":"info","event":"access",{self._encode(fields)[1:].decode()}'


class AccessText:
    """One readable line. Text that a client chose is quoted, so that it cannot forge a line or a colour."""

    def __init__(self, redactor: Redactor, colours: bool = False) -> None:
        self._redactor = redactor
        self._colours = colours
        self._stamp = _Stamp("%H:%M:%S", time.localtime)

    def __call__(self, access: Access) -> str:
        colour = COLOURS.get(access.account, RED) if self._colours else ""
        return (
            f"{self._stamp(access.at)} {colour}{access.status} {access.code or access.account}"
            f"{PLAIN if colour else ''} {access.method} {access.path} {access.model!a}{_where(access)}"
            f" {access.duration_s * 1e3:.0f} ms{_numbers(access)} {access.request_id}{self._theirs(access)}"
        )

    def _theirs(self, access: Access) -> str:
        return f" client {self._redactor.scrub(access.client_request_id)!a}" if access.client_request_id else ""


def _where(access: Access) -> str:
    again = f" attempt {access.attempts}" if access.attempts > 1 else ""
    return f" -> {access.replica}{again}" if access.replica else ""


def _numbers(access: Access) -> str:
    ttft = "" if access.ttft_s is None else f" ttft {access.ttft_s * 1e3:.0f} ms"
    return f"{ttft} {access.prompt_tokens}+{access.output_tokens} tokens" if access.attempts else ttft
