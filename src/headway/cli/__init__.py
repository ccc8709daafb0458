"""The commands. Each lives in a module that offers a typer function `command`, or a `group` of several; it is imported
when it is called, so that `headway --help` answers at once. Commands read arguments and print; what they do lives in
other rooms.
"""

import importlib
import os
import shutil
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from headway import __version__

COMMANDS = {
    "serve": "Balance load over a fleet of inference engines.",
    "demo": "See it work: four emulated replicas, two policies, one workload.",
    "emulate": "Run an inference engine without a GPU.",
    "bench": "Put open-loop load on any OpenAI endpoint and measure it.",
    "simulate": "Compare policies on a fleet that does not exist yet.",
    "plan": "Find the smallest fleet that serves a workload well, under each policy.",
    "memory": "Show where a GPU's memory goes when an engine serves a model.",
    "study": "Study what cannot be seen from outside: fragmentation of KV memory.",
    "keys": "Give clients API keys, list and revoke them.",
    "check": "Validate and explain a settings file.",
    "migrate": "Move a running request to another replica.",
    "drain": "Empty a replica: no new requests, and running ones move away.",
    "explain": "Show why a request went where it went.",
    "verify": "Replay a journal and reproduce every decision.",
}


LONG_FLAG, WIDE = 20, 120
"""Letters of a flag, and columns of a terminal that has room for a box with longer ones in it."""


class LazyCommand(TyperCommand):
    """A name and one line of help; the real command is loaded when it is invoked."""

    def __init__(self, name: str) -> None:
        super().__init__(name, help=COMMANDS[name])

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Hand over to the real command."""
        assert self.name is not None
        return load(self.name).make_context(info_name, args, parent, **extra)


def load(name: str) -> TyperCommand | TyperGroup:
    """Import a command's module and make the command from its function, or the group of its functions."""
    module = importlib.import_module(f"headway.cli.{name}")
    if hasattr(module, "group"):
        group = typer.main.get_command(module.group())
        assert isinstance(group, TyperGroup)
        group.name, group.help = name, COMMANDS[name]
        return group
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    settings = getattr(module, "SETTINGS", None)
    app.command(name, help=COMMANDS[name], context_settings=settings)(module.command)
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    if _cut(command):
        command.rich_markup_mode = None
    return command


def _cut(command: TyperCommand) -> bool:
    """Whether the box of its help would cut flags on this terminal ("--tensor-parallel-s…"); plain help never does."""
    options = [param for param in command.params if isinstance(param, TyperOption) and not param.rich_help_panel]
    longest = max((len(flag) for option in options for flag in (*option.opts, *option.secondary_opts)), default=0)
    return longest > LONG_FLAG and shutil.get_terminal_size().columns < WIDE


def make_group() -> TyperGroup:
    """`headway` with all its commands."""
    app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")
    app.callback()(_root)
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    group.commands.update({name: LazyCommand(name) for name in COMMANDS})
    return group


def main() -> None:
    """Entry point of the `headway` program."""
    hold_standard_descriptors()
    make_group()(prog_name="headway")


def hold_standard_descriptors() -> None:
    """Put /dev/null where a standard stream was closed: otherwise the next socket gets its number, log lines go to a
    client, and libuv aborts when it closes a file numbered 0 to 2."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _show_version(wanted: bool) -> None:
    if wanted:
        from headway.core import memory

        form = "pure Python" if memory.__file__.endswith(".py") else "compiled"
        typer.echo(f"headway {__version__} ({form})")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """A load balancer for LLM inference fleets that routes on real KV-cache headroom."""
