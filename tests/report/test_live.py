"""The live table reads what the admin API says."""

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from headway.core.ids import ReplicaId
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.snapshot import FleetSnapshot, shown
from headway.core.view import Breaker, ReplicaView, Speed
from headway.report.live import FleetMeter, fleet_table, plain_line

SPEED = Speed(0.01, 0.0, 0.0, 1000.0)
ZEROES = ("headroom_sigma", "peak_mean", "peak_var", "reserved_tokens", "prefill_backlog_tokens", "dispatched_tokens")
BASE: dict[str, Any] = dict.fromkeys((*ZEROES, "growth_tokens_per_s", "context_tokens", "output_left_mean"), 0.0)


def answer(taken_at: float = 1.0, generated: int | None = 100, capacity: int = 1000, **fields: Any) -> dict:
    """/fleet as the admin API would say it: built from the real view, so that a renamed field fails here."""
    spec = ReplicaSpec(id=ReplicaId("r1"), url="http://127.0.0.1:9000", gpu="h100-80gb")
    sample = LoadSample(ReplicaId("r1"), taken_at, generated_tokens_total=generated)
    view = ReplicaView(
        **BASE
        | {"spec": spec, "sample": sample, "as_of": taken_at, "sample_age_s": 0.2, "stale": False}
        | {"kv_capacity_tokens": capacity, "kv_used_tokens": 750.0, "headroom_tokens": 125.0, "in_flight": 3}
        | {"running": 2.0, "waiting": 1.0, "max_num_seqs": 8, "speed": SPEED, "breaker": Breaker.CLOSED}
        | {"slow_start": 1.0, "draining": False, "sleeping": False}
        | fields
    )
    snapshot = FleetSnapshot(taken_at, "headroom", 0, 3, False, (view,))
    plain: dict = msgspec.json.decode(msgspec.json.encode({"fleet": snapshot}, enc_hook=shown))
    return plain


def test_a_row() -> None:
    (row,) = FleetMeter().rows(answer())
    assert (row.name, row.gpu, row.state) == ("127.0.0.1:9000", "h100-80gb", "ok")
    assert row.kv_share == 0.75
    assert (row.headroom_tokens, row.running, row.waiting, row.in_flight) == (125.0, 2.0, 1.0, 3)
    assert row.sample_age_s == 0.2
    assert row.tokens_per_s is None  # one reading is no rate


def test_tokens_per_second_is_of_the_last_two_samples() -> None:
    meter = FleetMeter()
    meter.rows(answer(1.0, 100))
    assert meter.rows(answer(1.5, 350))[0].tokens_per_s == 500.0
    assert meter.rows(answer(1.5, 350))[0].tokens_per_s == 500.0  # the same sample again
    assert meter.rows(answer(2.5, 350))[0].tokens_per_s == 0.0
    assert meter.rows(answer(3.5, 50))[0].tokens_per_s == 0.0  # the engine was restarted


def test_unknown_is_a_dash_not_a_zero() -> None:
    (row,) = FleetMeter().rows(answer(capacity=0, generated=None, sample=None))
    assert (row.kv_share, row.headroom_tokens, row.tokens_per_s, row.sample_age_s) == (None, None, None, None)
    assert "KV ?" in plain_line([row])


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"breaker": Breaker.OPEN, "stale": True}, "ejected"),
        ({"breaker": Breaker.HALF_OPEN}, "probing"),
        ({"draining": True}, "draining"),
        ({"sleeping": True}, "asleep"),
        ({"stale": True}, "stale"),
        ({"slow_start": 0.5}, "warming"),
    ],
)
def test_the_worst_state_is_named(fields: dict, word: str) -> None:
    assert FleetMeter().rows(answer(**fields))[0].state == word


def test_the_table_and_the_line() -> None:
    rows = FleetMeter().rows(answer())
    console = Console(width=150, file=io.StringIO())
    console.print(fleet_table([*rows, msgspec.structs.replace(rows[0], ttft_s=0.25, headroom_tokens=-5.0)]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "75 %" in text
    assert "250 ms" in text
    assert "-5" in text
    assert plain_line(rows) == "127.0.0.1:9000 KV 75 % running 2 waiting 1"


def test_a_pool_is_never_shown_fuller_than_full() -> None:
    (row,) = FleetMeter().rows(answer(kv_used_tokens=1030.0))
    assert row.kv_share == 1.0
    assert "KV 100 %" in plain_line([row])


def test_names_of_replicas_are_no_markup() -> None:
    (row,) = FleetMeter().rows(answer())
    console = Console(width=150, file=io.StringIO())
    console.print(fleet_table([msgspec.structs.replace(row, name="[fd00::7]:8000/[/x]", gpu="[red]")]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[fd00::7]:8000/[/x]" in text
    assert "[red]" in text
