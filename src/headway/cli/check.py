"""`headway check`: reads a settings file, says what was understood, and asks the replicas if told to."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from headway.cli.console import err, fail, out
from headway.compose.advice import advice, journal_problem
from headway.compose.load import read, validate
from headway.compose.plan import Plan, make_plan
from headway.compose.reference import constants_reference, settings_reference
from headway.compose.registry import PluginError, Registry, find
from headway.compose.schema import schema
from headway.compose.source import Document, Problem, SettingsError
from headway.compose.texts import hosts
from headway.compose.twins import TWINS, twins
from headway.coordinate.static import AUTO, Entry, unlisted
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.tenant import Tenant, Tier
from headway.observe.detect import detect
from headway.perfmodel import catalogue
from headway.runtime import http


def command(
    file: Annotated[Path | None, typer.Argument(help="Settings file.")] = None,
    probe: Annotated[bool, typer.Option("--probe", help="Ask every replica what it is.")] = False,
    as_schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of settings files.")] = False,
    as_reference: Annotated[bool, typer.Option("--reference", help="Print every setting as Markdown.")] = False,
    constants: Annotated[bool, typer.Option("--constants", help="Print the constants of brain and policies.")] = False,
    plugins: Annotated[bool, typer.Option("--list", help="List policies, engines, and what can be emulated.")] = False,
) -> None:
    """Validate and explain a settings file. Exits 1 when something is wrong with it."""
    try:
        registry = find()
    except PluginError as error:
        fail(str(error), "repair or uninstall that package")
    if as_schema:
        typer.echo(json.dumps(schema(registry), indent=2))
        return
    if as_reference:
        typer.echo(settings_reference(schema(registry)), nl=False)
        return
    if constants:
        typer.echo(constants_reference(schema(registry)), nl=False)
        return
    if plugins:
        out.print(escape("policies: " + ", ".join(sorted(registry.policies))))
        out.print(escape("engines:  " + ", ".join(sorted(registry.engines))))
        out.print("emulated GPUs:   " + ", ".join(catalogue.gpu_names()))
        out.print("emulated models: " + ", ".join(catalogue.model_names()))
        return
    if file is None:
        fail("name a settings file", "headway check headway.yaml", code=2)
    plan, document = _plan(file, registry)
    _explain(plan)
    for doubt in advice(plan.settings):
        located = msgspec.structs.replace(doubt, line=document.line(doubt.path))
        err.print(f"[bold yellow]warning[/] {escape(f'{file}: {located}')}", highlight=False, soft_wrap=True)
    if probe:
        asyncio.run(_probe(plan))


def _plan(file: Path, registry: Registry) -> tuple[Plan, Document]:
    document = Document(str(file), {}, {}, {})
    try:
        document = read(file)
        plan = make_plan(validate(document), registry)
        if plan.settings.journal is not None and (reason := journal_problem(plan.settings.journal)):
            raise SettingsError("settings", [Problem(("journal",), reason)])
        return plan, document
    except SettingsError as error:
        problems = error.located(document).problems
        for problem in problems:
            err.print(f"[bold red]error[/] {escape(f'{file}: {problem}')}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None


def _explain(plan: Plan) -> None:
    settings = plan.settings
    table = _table("understood", show_header=False)
    clients = ", ".join(f"{host}:{settings.listen.port}" for host in hosts(settings.listen.host))
    table.add_row("clients", escape(f"{clients}{' (TLS)' if settings.listen.tls else ''}"))
    token = "token needed" if plan.admin_token else "open on loopback"
    admin = f"{hosts(settings.admin.host)[0]}:{settings.admin.port} ({token})"
    table.add_row("admin", escape(admin) if settings.admin.enabled else "off")
    options = ", ".join(f"{name}={value}" for name, value in settings.policy.options.items())
    table.add_row("policy", escape(f"{settings.policy.name} {options}".strip()))
    for alias, names in settings.models.items():
        table.add_row("alias", escape(f"{alias} -> {', '.join(names)}"))
    for entry in plan.entries:
        table.add_row("replica", escape(f"{entry.url}  {', '.join(_stated(entry, plan))}"))
    if not plan.entries:
        table.add_row("replica", "none: `headway serve` would have nobody to ask until one is added")
    for tenant in plan.tenants:
        table.add_row("tenant", escape(_limits(tenant)))
    if settings.keys_file is not None:
        good = sum(not key.revoked for key in plan.client_keys)
        table.add_row("keys", escape(f"{settings.keys_file}: {good} good, {len(plan.client_keys) - good} revoked"))
    if settings.observe.discover:
        table.add_row("replica", "those found on this machine")
    if settings.journal:
        table.add_row("journal", escape(str(settings.journal)))
    out.print(table)


def _table(title: str, *, show_header: bool = True) -> Table:
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 2, 0, 0),
        show_header=show_header,
    )


def _stated(entry: Entry, plan: Plan) -> list[str]:
    """What the settings say of a replica, and what is left to be found out."""
    engine = "engine detected" if entry.engine == AUTO else entry.engine
    gpu = [f"{entry.gpu_count} x {entry.gpu}" if entry.gpu_count > 1 else entry.gpu] if entry.gpu else []
    key = ["key set"] if entry.url in plan.keys else []
    return [engine, entry.model or "model detected", *gpu, *key]


def _limits(tenant: Tenant) -> str:
    """A tenant, and what of it is not as usual."""
    usual = msgspec.structs.asdict(Tenant(tenant.name))
    stated = {field: value for field, value in msgspec.structs.asdict(tenant).items() if value != usual[field]}
    words = {field: Tier(value).name.lower() if "tier" in field else value for field, value in stated.items()}
    return f"{tenant.name} {', '.join(f'{field}={value}' for field, value in words.items())}".strip()


async def _probe(plan: Plan) -> None:
    table = _table("probed")
    table.add_column("replica", no_wrap=True)
    table.add_column("answer")
    async with http.client(tls=plan.gateway.client_tls) as client:
        for entry in plan.entries:
            key = plan.keys.get(entry.url, "")
            found = await detect(entry.url, plan.dialects.values(), client, replica_id=ReplicaId(entry.url), key=key)
            table.add_row(escape(entry.url), escape(_answer(entry, found)))
    out.print(table)
    for first, second in await twins(entry.url for entry in plan.entries):
        err.print(f"[bold yellow]warning[/] {escape(f'{first}, {second}: {TWINS}')}", highlight=False, soft_wrap=True)


def _answer(entry: Entry, found: object) -> str:
    if not isinstance(found, ReplicaSpec):
        return str(found)
    missed = unlisted(entry, found)
    lacks = [f"but does not list {' or '.join(missed)}, which is stated for it"] if missed else []
    sizes = [f"{found.kv_capacity_tokens:,} KV tokens"] if found.kv_capacity_tokens else []
    return ", ".join([found.engine, *found.serves, *sizes, *lacks])
