"""The fleet as it is now: rows from the admin API's /fleet, and the table they make.

`FleetMeter` keeps the previous reading of each replica, because tokens/s is a difference.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich import box
from rich.markup import escape
from rich.table import Table

from headway.report.figures import bar, count, rate, seconds

BAR_WIDTH = 8


class FleetRow(msgspec.Struct, frozen=True):
    """One replica now; None is what nobody knows. `state` is a word for people."""

    name: str
    gpu: str
    kv_used_tokens: float | None
    kv_capacity_tokens: float | None
    headroom_tokens: float | None
    running: float | None
    waiting: float | None
    in_flight: int
    tokens_per_s: float | None
    sample_age_s: float | None
    state: str
    ttft_s: float | None = None

    @property
    def kv_share(self) -> float | None:
        """Used share of the KV pool, by our estimate: a ledger may run ahead of an engine that has just preempted."""
        if not self.kv_capacity_tokens or self.kv_used_tokens is None:
            return None
        return min(1.0, self.kv_used_tokens / self.kv_capacity_tokens)


class FleetMeter:
    """Turns successive /fleet answers into rows."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float, float | None]] = {}

    def rows(self, fleet: Mapping[str, Any]) -> list[FleetRow]:
        """Rows of one answer of /fleet, in its order."""
        return [self._row(view) for view in fleet["fleet"]["views"]]

    def _row(self, view: Mapping[str, Any]) -> FleetRow:
        spec = view["spec"]
        capacity = view.get("kv_capacity_tokens") or None
        return FleetRow(
            name=spec.get("labels", {}).get("name") or spec["url"].partition("://")[2],
            gpu=spec.get("gpu", ""),
            kv_used_tokens=view.get("kv_used_tokens"),
            kv_capacity_tokens=capacity,
            headroom_tokens=view.get("headroom_tokens") if capacity else None,
            running=view.get("running"),
            waiting=view.get("waiting"),
            in_flight=view.get("in_flight", 0),
            tokens_per_s=self._tokens_per_s(spec["id"], view.get("sample") or {}),
            sample_age_s=view["sample_age_s"] if view.get("sample") else None,
            state=_state(view),
        )

    def _tokens_per_s(self, replica: str, sample: Mapping[str, Any]) -> float | None:
        """Of the interval between the two latest samples; a sample seen again repeats its answer."""
        if sample.get("generated_tokens_total") is None:
            return None
        total, at = float(sample["generated_tokens_total"]), float(sample["taken_at"])
        before_at, before_total, rate_then = self._last.get(replica, (at, total, None))
        if at > before_at:
            rate_then = max(0.0, total - before_total) / (at - before_at)
        self._last[replica] = (at, total, rate_then)
        return rate_then


def fleet_table(rows: Sequence[FleetRow], title: str = "") -> Table:
    """The table of the fleet, 80 columns wide while every replica is well; troubles get a column of their own."""
    troubled = any(row.state != "ok" for row in rows)
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", show_edge=False, padding=0)
    table.add_column("replica", no_wrap=True)
    table.add_column("GPU", no_wrap=True)
    table.add_column("KV use", no_wrap=True)
    for name in ("headroom", "run", "wait", "in\nflight", "TTFT", "tokens\n/s", "sample\nage"):
        table.add_column(name, justify="right", no_wrap=True)
    if troubled:
        table.add_column("state")
    for row in rows:
        table.add_row(*_cells(row), *([_state_cell(row.state)] if troubled else []))
    return table


def _cells(row: FleetRow) -> list[str]:
    return [
        escape(row.name),
        escape(row.gpu),
        _kv(row.kv_share),
        _headroom(row.headroom_tokens),
        count(row.running),
        count(row.waiting),
        count(row.in_flight),
        seconds(row.ttft_s),
        rate(row.tokens_per_s, ""),
        seconds(row.sample_age_s),
    ]


def _state_cell(state: str) -> str:
    return state if state == "ok" else f"[yellow]{state}[/]"


def plain_line(rows: Sequence[FleetRow]) -> str:
    """The fleet in one line, for logs and pipes."""
    parts = []
    for row in rows:
        used = "?" if row.kv_share is None else f"{row.kv_share * 100:.0f} %"
        parts.append(f"{row.name} KV {used} running {count(row.running)} waiting {count(row.waiting)}")
    return " | ".join(parts)


def _kv(share: float | None) -> str:
    if share is None:
        return bar(None)
    colour = "green" if share < 0.7 else "yellow" if share < 0.9 else "red"
    return f"[{colour}]{bar(share, BAR_WIDTH)}[/] {share * 100:3.0f} %"


def _headroom(tokens: float | None) -> str:
    text = count(tokens)
    return f"[red]{text}[/]" if tokens is not None and tokens < 0 else text


def _state(view: Mapping[str, Any]) -> str:
    """The first that applies: the worst first."""
    words = (
        ("ejected", view.get("breaker", "closed") == "open"),
        ("probing", view.get("breaker") == "half_open"),
        ("draining", view.get("draining")),
        ("asleep", view.get("sleeping")),
        ("stale", view.get("stale")),
        ("warming", view.get("slow_start", 1.0) < 1.0),
    )
    return next((word for word, applies in words if applies), "ok")
