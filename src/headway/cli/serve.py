"""`headway serve`: the gateway in front of engines that are named, configured, or found on this machine."""

import asyncio
import errno
import gc
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import structlog
import typer
import uvloop
from rich.markup import escape
from rich.table import Table

from headway import __version__
from headway.cli.console import err, fail
from headway.compose.advice import advice
from headway.compose.build import App
from headway.compose.discovery import look_around
from headway.compose.files import raise_file_limit, within_file_limit
from headway.compose.load import overlay, read, validate
from headway.compose.plan import Plan, make_plan
from headway.compose.registry import PluginError, Registry, find
from headway.compose.settings import Settings
from headway.compose.source import Document, SettingsError
from headway.compose.texts import hosts
from headway.telemetry.logs import configure

log = structlog.get_logger(__name__)

GC_ALLOCATIONS = 20_000
"""Python looks for cycles once so many objects outlive those that died. Requests make no cycles, and what outlives them
(explanations, prefixes) would have it look every few hundred requests, at up to 2 % of the CPU."""

JSON = {"auto": None, "json": True, "text": False}


def command(
    replica: Annotated[list[str] | None, typer.Option(help="URL of an engine; repeat it for more.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file, see docs/configuration.md.")] = None,
    policy: Annotated[str | None, typer.Option(help="How replicas are ranked.", show_default="headroom")] = None,
    host: Annotated[str | None, typer.Option(help="Address clients connect to.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port clients connect to.", show_default="8800")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port of the admin API.", show_default="8801")] = None,
    journal: Annotated[Path | None, typer.Option(help="Write events and commands for headway verify.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning, error.", show_default="info")] = None,
    access_log: Annotated[
        bool | None, typer.Option("--access-log/--no-access-log", help="One line per request.", show_default="on")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the brain's chance.", show_default="random")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Write ports and pid here, as JSON, once they listen.")
    ] = None,
    exit_with_parent: Annotated[
        bool, typer.Option("--exit-with-parent", help="End when the process that started this one is gone.")
    ] = False,
) -> None:
    """Balance load over a fleet of inference engines.

    Name engines with --replica or --config; without either, engines are looked for on this machine.
    """
    for url in replica or ():
        if "://" not in url:
            fail(f"--replica {url}: an address of an engine is a URL", f"--replica http://{url}", code=2)
    changes = {
        "replicas": replica,
        "policy": {"name": policy},
        "listen": {"host": host, "port": port},
        "admin": {"port": admin_port},
        "journal": journal,
        "logging": {"level": log_level, "access": access_log},
        "seed": seed,
    }
    registry = _registry()
    plan = _plan(config, changes, registry)
    if not replica and config is None:
        plan = make_plan(overlay(plan.settings, {"replicas": _found(plan)}), registry)
    _serve(plan, registry, ready_file, exit_with_parent)


def _serve(plan: Plan, registry: Registry, ready_file: Path | None, exit_with_parent: bool) -> None:
    logging = plan.settings.logging
    logs = configure(logging.level, JSON[logging.format], plan.secrets)
    for doubt in advice(plan.settings):
        log.warning(str(doubt))
    plan = within_file_limit(plan, raise_file_limit())
    app = App(plan, registry, logs.access if logging.access else None)
    app.telemetry.watch("headway_log_lines_dropped_total", "Log lines not written.", lambda: logs.sink.dropped)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(app.run(lambda app: _welcome(app, ready_file), exit_with_parent=exit_with_parent))
    except OSError as error:
        _explain(error, plan.settings)
    finally:
        logs.close()


def _registry() -> Registry:
    try:
        return find()
    except PluginError as error:
        fail(str(error), "repair or uninstall that package")


def _plan(config: Path | None, changes: Mapping[str, object], registry: Registry) -> Plan:
    document = Document("settings" if config is None else str(config), {}, {}, {})
    try:
        if config is not None:
            document = read(config)
        return make_plan(overlay(validate(document), changes), registry)
    except SettingsError as error:
        located = error if error.source == "command line" else error.located(document)
        fail(str(located), "`headway check FILE` explains a settings file; docs/configuration.md lists every setting")


def _found(plan: Plan) -> list[str]:
    """URLs of the engines on this machine; says where it looked. Ends the command when there is none."""
    looks = asyncio.run(look_around(plan))
    found = [look.spec.url for look in looks if look.spec is not None]
    for look in looks:
        if look.spec is not None:
            err.print(escape(f"found on {look}"), highlight=False, soft_wrap=True)
    if not found:
        ports = ", ".join(f"{look.port} ({', '.join(look.usual)})" for look in looks)
        fail(
            f"no inference engine found on this machine; looked at ports {ports}",
            "name one: headway serve --replica http://HOST:PORT",
            "or try without a GPU: headway emulate, then headway serve in a second terminal",
        )
    return found


def _opened(app: App) -> Table:
    """What was opened, for people."""
    settings = app.plan.settings
    scheme = "https" if settings.listen.tls else "http"
    table = Table(
        title=f"headway {__version__}", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0)
    )
    urls = "\n".join(f"{scheme}://{host}:{app.port}/v1" for host in hosts(settings.listen.host))
    table.add_row("clients", f"[bold]{escape(urls)}[/]")
    if settings.admin.enabled:
        table.add_row("admin", escape(f"http://{hosts(settings.admin.host)[0]}:{app.admin_port}"))
    table.add_row("policy", escape(settings.policy.name))
    table.add_row(
        "replicas", "\n".join(escape(entry.url) for entry in app.plan.entries) or "looking on this machine ..."
    )
    if settings.journal:
        table.add_row("journal", escape(str(settings.journal)))
    return table


def _welcome(app: App, ready_file: Path | None) -> None:
    """Say what was opened. What lives as long as the process leaves the garbage collector's care."""
    if err.is_terminal:
        err.print(_opened(app))
    if ready_file is not None:
        partial = ready_file.with_suffix(".partial")
        partial.write_text(json.dumps({"port": app.port, "admin_port": app.admin_port, "pid": os.getpid()}))
        partial.rename(ready_file)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 10, 100)


def _explain(error: OSError, settings: Settings) -> NoReturn:
    listen, admin = settings.listen, settings.admin
    if isinstance(error, socket.gaierror):
        fail(
            f"cannot listen on {listen.host} (--host) or {admin.host} (admin.host): {error.strerror}",
            "name addresses of this machine: 127.0.0.1, or 0.0.0.0 for all of them",
        )
    if error.filename is not None and error.filename == str(settings.journal):
        fail(f"cannot write the journal {error.filename}: {error.strerror}", "name another file with --journal")
    if error.filename is not None:
        fail(f"cannot write {error.filename}: {error.strerror}", "name another file with --ready-file")
    if error.errno == errno.EADDRINUSE:
        fail(
            f"a port is taken: {error.strerror or error} (clients {listen.port}, admin {admin.port})",
            "stop the other process, or choose others with --port and --admin-port",
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES):
        fail(
            f"cannot listen on {', '.join(hosts(listen.host))} (port {listen.port}) or {hosts(admin.host)[0]} "
            f"(port {admin.port}): {error.strerror}",
            "the address must belong to this machine; ports below 1024 need privileges",
        )
    fail(str(error))
