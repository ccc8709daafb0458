"""`headway migrate`: has a running gateway let another replica go on with a request."""

import time
import urllib.parse
from typing import Annotated, Any

import typer
from rich.markup import escape

from headway.cli import adminport
from headway.cli.console import fail, out

POLL_S = 0.1
STAYED = frozenset({"refused", "planned", "abandoned"})
"""Results after which a request is where it was."""


def command(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of its answer: the client's own, or ours.")],
    to: Annotated[str, typer.Option(help="Replica that is to go on with it. By default where that is cheapest.")] = "",
    timeout_s: Annotated[float, typer.Option(help="How long to wait for what becomes of it.", min=0.0)] = 20.0,
    admin: Annotated[str, typer.Option(help="Address of the admin port.")] = adminport.DEFAULT,
) -> None:
    """Move a running request; its client notices nothing. A token is read from HEADWAY_ADMIN_TOKEN."""
    path = f"/requests/{urllib.parse.quote(request_id, safe='')}/migrate"
    answer = adminport.ask(
        admin,
        path,
        {"to": to},
        post=True,
        steps={404: f"only what runs can be moved; curl {admin}/replicas lists where to"},
    )
    where = "" if admin == adminport.DEFAULT else f" --admin {admin}"
    last = _outcome(admin, answer["id"], answer["moves"], time.monotonic() + timeout_s)
    if last is None:
        fail(f"{request_id} stays: the gateway does not move requests")
    if last["result"] in STAYED:
        why = last["reason"].removeprefix("operator (").removesuffix(")")
        dry = "migration.dry_run is set, moves are only planned"
        fail(
            f"{request_id} stays: {dry if last['result'] == 'planned' else why}",
            f"headway explain {answer['id']}{where} tells more",
        )
    done = f"from {last['source']} to {last['target'] or 'the queue'}, {last['replayed_tokens']} tokens to be read"
    under_way = ", still under way" if last["result"] == "begun" else f" in {last['took_s']:.2f} s"
    out.print(escape(f"{answer['id']}: {done}{under_way}"))
    out.print(f"[dim]headway explain {escape(answer['id'] + where)} tells more[/]")


def _outcome(admin: str, request_id: str, moves: list[dict[str, Any]], until: float) -> dict[str, Any] | None:
    """The last step of its moves, once it is more than an order, or when there was no more patience."""
    while moves and moves[-1]["result"] == "begun" and time.monotonic() < until:
        time.sleep(POLL_S)
        moves = adminport.ask(admin, f"/requests/{urllib.parse.quote(request_id, safe='')}/explain")["moves"]
    return moves[-1] if moves else None
