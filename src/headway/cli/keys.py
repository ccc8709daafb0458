"""`headway keys`: gives out API keys, lists and revokes them. A running gateway notices within two seconds.

A key is shown once, alone on standard output, so that it can be piped to where it belongs; only its hash is kept.
"""

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from headway.cli.console import err, fail, out
from headway.compose.keyfile import NAME, ApiKey, KeysError, change, make, read, revoked
from headway.compose.load import near, validate
from headway.compose.load import read as read_settings
from headway.compose.source import SettingsError

Config = Annotated[Path | None, typer.Option(help="Settings file that names the file of keys.")]
File = Annotated[Path | None, typer.Option(help="The file of keys itself.")]


def group() -> typer.Typer:
    """`add`, `list` and `revoke`."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
    app.command("add", help="Give a tenant a key, and show it once.")(add)
    app.command("list", help="List keys: whose, since when, and whether they are good.")(show)
    app.command("revoke", help="Make a key good for nothing.")(revoke)
    return app


def add(
    tenant: Annotated[str, typer.Argument(help="Whose key it is: a name under `tenants:`, or a new one.")],
    note: Annotated[str, typer.Option(help="What it is for.")] = "",
    config: Config = None,
    keys_file: File = None,
) -> None:
    """Give a tenant a key."""
    file, tenants = _where(config, keys_file)
    if NAME.fullmatch(tenant) is None:
        fail(f"{tenant!r} is no name for a tenant", "1 to 64 letters, digits, dots, dashes and underscores", code=2)
    key, secret = make(tenant, note)
    try:
        change(file, lambda keys: (*keys, key))
    except KeysError as error:
        fail(str(error))
    typer.echo(secret)
    err.print(f"key {key.id} of {escape(tenant)}: shown this once, only its hash is kept", highlight=False)
    if tenants and tenant not in tenants:
        hint = near(tenant, tenants) or "; it has no limits"
        err.print(f"[yellow]note[/] {escape(tenant)} is not among the tenants of {escape(str(config))}{escape(hint)}")


def show(
    config: Config = None,
    keys_file: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List keys. Hashes are not shown."""
    try:
        keys = read(_where(config, keys_file)[0])
    except KeysError as error:
        fail(str(error))
    if as_json:
        shown = [{name: value for name, value in msgspec.structs.asdict(k).items() if name != "hash"} for k in keys]
        typer.echo(json.dumps(shown, indent=2))
        return
    table = Table("id", "tenant", "created", "ends in", "note", "revoked", box=None)
    for key in keys:
        row = (key.id, key.tenant, key.created, key.hint, key.note, key.revoked)
        table.add_row(*map(escape, row), style="dim" if key.revoked else None)
    out.print(table)


def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the key, as `headway keys list` shows it.")],
    config: Config = None,
    keys_file: File = None,
) -> None:
    """Revoke a key. Its line stays, so that old logs can be read."""

    def without(keys: tuple[ApiKey, ...]) -> list[ApiKey]:
        if key_id not in {key.id for key in keys}:
            fail(f"there is no key {key_id}" + near(key_id, [key.id for key in keys]), "headway keys list shows all")
        return [revoked(key) if key.id == key_id else key for key in keys]

    try:
        change(_where(config, keys_file)[0], without)
    except KeysError as error:
        fail(str(error))
    err.print(f"key {escape(key_id)} is revoked", highlight=False)


def _where(config: Path | None, keys_file: Path | None) -> tuple[Path, list[str]]:
    """The file of keys, and the tenants that settings know."""
    if keys_file is not None:
        return keys_file, []
    if config is None:
        fail("name the file of keys", "--config headway.yaml, or --keys-file FILE", code=2)
    try:
        settings = validate(read_settings(config))
    except SettingsError as error:
        fail(str(error))
    if settings.keys_file is None:
        fail(f"{config} has no keys_file", "add `keys_file: /etc/headway/keys.json` to it, or say --keys-file")
    return settings.keys_file, list(settings.tenants)
