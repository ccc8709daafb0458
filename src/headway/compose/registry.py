"""Every plugin there is: our own rooms by looking into them, other people's through entry points.

A plugin of somebody else that cannot be loaded is named together with its package and stops the start: running
without it would route by rules nobody asked for.
"""

import importlib
import pkgutil
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

import headway.engines
import headway.policies
from headway.core.plugin import Plugin

GROUP = "headway.plugins"
"""Entry points are named `policy.<name>` or `engine.<name>` and point to a `PLUGIN`."""

KINDS = ("policy", "engine")


class PluginError(Exception):
    """A third party's plugin cannot be used; says whose."""


class Registry:
    """Plugins by kind and name. Third parties may not take a name that is taken."""

    def __init__(self, policies: dict[str, Plugin], engines: dict[str, Plugin]) -> None:
        self.policies = policies
        self.engines = engines


def find(others: list[EntryPoint] | None = None) -> Registry:
    """Load everything. `others` replaces the installed entry points in tests. Raises PluginError."""
    tables = {"policy": _of(headway.policies), "engine": _of(headway.engines)}
    for entry in entry_points(group=GROUP) if others is None else others:
        kind, _, name = entry.name.partition(".")
        plugin = _load(entry, kind)
        if name in tables[kind] or plugin.name in tables[kind]:
            raise PluginError(f"{_owner(entry)}: there is already a {kind} named {plugin.name}")
        tables[kind][plugin.name] = plugin
    return Registry(tables["policy"], tables["engine"])


def _of(room: ModuleType) -> dict[str, Plugin]:
    plugins: dict[str, Plugin] = {}
    for info in sorted(pkgutil.iter_modules(room.__path__), key=lambda info: info.name):
        plugin = getattr(importlib.import_module(f"{room.__name__}.{info.name}"), "PLUGIN", None)
        if isinstance(plugin, Plugin):
            plugins[plugin.name] = plugin
    return plugins


def _load(entry: EntryPoint, kind: str) -> Plugin:
    if kind not in KINDS:
        raise PluginError(f"{_owner(entry)}: entry points are named policy.<name> or engine.<name>, not {entry.name}")
    try:
        plugin = entry.load()
    except Exception as error:
        raise PluginError(f"{_owner(entry)} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(plugin, Plugin):
        raise PluginError(f"{_owner(entry)}: {entry.value} is a {type(plugin).__name__}, not a headway Plugin")
    return plugin


def _owner(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else "unknown package"
    return f"plugin {entry.name} of {package}"
