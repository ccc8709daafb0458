"""`headway migrate`: has a running gateway let another replica go on with a request."""

import urllib.parse
from typing import Annotated

import typer

from headway.cli import adminport
from headway.cli.console import fail, out


def command(
    request_id: Annotated[str, typer.Argument(help="The x-request-id of its answer: the client's own, or ours.")],
    to: Annotated[str, typer.Option(help="Replica that is to go on with it. By default where that is cheapest.")] = "",
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
    last = answer["moves"][-1] if answer["moves"] else None
    if last is None or last["result"] == "refused":
        fail(f"{request_id} stays: {last['reason'] if last else 'the gateway does not move requests'}")
    out.print(f"{answer['id']}: from {last['source']} to {last['target']}, {last['replayed_tokens']} tokens to be read")
    where = "" if admin == adminport.DEFAULT else f" --admin {admin}"
    out.print(f"[dim]headway explain {answer['id']}{where} tells what became of it[/]")
