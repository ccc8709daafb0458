"""`headway drain`: empties a replica of a running gateway, for maintenance."""

import time
import urllib.parse
from typing import Annotated, Any

import typer
from rich.markup import escape

from headway.cli import adminport
from headway.cli.console import err, fail, out

POLL_S = 0.5


def command(
    replica: Annotated[str, typer.Argument(help="Its id, as GET /replicas lists it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it have requests again.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when nothing runs there any more.")] = False,
    timeout_s: Annotated[float, typer.Option(help="How long to wait.", min=0.0)] = 600.0,
    admin: Annotated[str, typer.Option(help="Address of the admin port.")] = adminport.DEFAULT,
) -> None:
    """Send no new requests to a replica, and move those that run there where that is possible."""
    path = f"/replicas/{urllib.parse.quote(replica, safe='')}/{'undrain' if undo else 'drain'}"
    answer = adminport.ask(admin, path, post=True, steps={404: f"curl {admin}/replicas lists the replicas"})
    out.print(escape(f"{replica} {'gets requests again' if undo else 'gets no new requests'}"))
    forecast = None if undo else answer.get("emptying")
    if forecast is not None:
        out.print(escape(_expected(forecast)))
    if wait and not undo:
        _wait(admin, replica, timeout_s, forecast)


def _expected(forecast: dict[str, Any]) -> str:
    """Both times: with moves, and without."""
    running, movable = forecast["requests"], forecast["movable"]
    alone = f"about {forecast['waiting_s']:.1f} s"
    if not running:
        return "nothing runs there"
    if not movable:
        return f"{running} requests run there, none of which can move: it should be empty in {alone}"
    moved = f"about {forecast['moving_s']:.1f} s"
    return f"{running} requests run there, {movable} can move: it should be empty in {moved}; without moves in {alone}"


def _wait(admin: str, replica: str, timeout_s: float, forecast: dict[str, Any] | None) -> None:
    began = time.monotonic()
    with err.status("") as status:
        while running := _in_flight(admin, replica):
            if time.monotonic() - began > timeout_s:
                fail(
                    f"{running} requests still run on {replica} after {timeout_s:g} s",
                    "it gets no new ones: run the command again to go on waiting, or take it back with --undo",
                )
            status.update(escape(f"{running} requests still run on {replica}, {time.monotonic() - began:.0f} s"))
            time.sleep(POLL_S)
    was = f" (forecast: {forecast['moving_s']:.1f} s)" if forecast is not None else ""
    out.print(escape(f"{replica} is empty after {time.monotonic() - began:.1f} s{was}"))


def _in_flight(admin: str, replica: str) -> int:
    """Attempts that run there; none if the replica is gone meanwhile."""
    views: list[dict[str, Any]] = adminport.ask(admin, "/fleet")["fleet"]["views"]
    return next((int(view["in_flight"]) for view in views if view["spec"]["id"] == replica), 0)
