"""Looking at a fleet: differences of totals, the worst lag, silence."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headway.bench.local_fleet import Address, LocalFleet
from headway.bench.watch import Watcher
from headway.runtime.http import Answer, Failure, FailureKind

Run = Callable[..., Any]
FLEET = LocalFleet("http://gateway", "http://admin", (Address("a", "http://a"), Address("b", "http://b")))


class FakeClient:
    """Answers by URL; what is missing is refused."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}

    async def fetch(self, url: str, **_options: object) -> Answer | Failure:
        if url not in self.pages:
            return Failure(FailureKind.REFUSED)
        return Answer(200, self.pages[url])


def page(seconds: float, count: int, lag: float) -> bytes:
    return (
        f'vllm:time_to_first_token_seconds_sum{{engine="0"}} {seconds}\n'
        f'vllm:time_to_first_token_seconds_count{{engine="0"}} {count}\n'
        f"headway_emulator_clock_lag_ratio {lag}\n"
    ).encode()


def test_glances(run: Run) -> None:
    http = FakeClient()
    watcher = Watcher(FLEET, http)  # type: ignore[arg-type]
    http.pages["http://admin/fleet"] = msgspec.json.encode({"requests": {"started": 3, "ok": 3}})
    http.pages["http://a/metrics"] = page(1.0, 4, 0.02)
    first = run(watcher.glance())
    assert first.ttft_s == {"a": 0.25}
    assert first.accounts == {"started": 3, "ok": 3}
    http.pages["http://a/metrics"] = page(2.0, 6, 0.3)
    assert run(watcher.glance()).ttft_s == {"a": 0.5}
    http.pages["http://a/metrics"] = page(2.0, 6, 0.1)
    assert run(watcher.glance()).ttft_s == {"a": 0.5}  # nothing new: the last known
    assert watcher.worst_lag == pytest.approx(0.3)
    assert first.ttft_s == {"a": 0.25}  # an old glance does not change


def test_a_silent_gateway_is_no_glance(run: Run) -> None:
    watcher = Watcher(FLEET, FakeClient())  # type: ignore[arg-type]
    assert run(watcher.glance()) is None
    assert watcher.worst_lag == 0.0
