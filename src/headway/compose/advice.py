"""What is doubtful in settings that can be used: told by `headway check` and, as warnings, at the start of `serve`.

Whatever cannot work is an error elsewhere (`settings`, `plan`). Nothing is asked of the network here.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from headway.compose.settings import Settings
from headway.compose.source import Problem
from headway.core.precision import rank
from headway.perfmodel import catalogue


def advice(settings: Settings) -> tuple[Problem, ...]:
    """Everything that works, but perhaps not as it was meant."""
    return (*_replicas(settings), *_aliases(settings))


def journal_problem(path: Path) -> str:
    """Why no journal can be written there, empty if it can. Looks, and writes nothing."""
    if path.is_dir():
        return f"{path} is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "" if os.access(path if path.exists() else path.parent, os.W_OK) else f"{path} may not be written"


def _replicas(settings: Settings) -> Iterator[Problem]:
    for index, replica in enumerate(settings.replicas):
        path = ("replicas", index)
        if replica.url.rstrip("/").endswith("/v1"):
            yield Problem((*path, "url"), "the /v1 at its end is left out: clients' paths bring their own")
        if replica.precision and not rank(replica.precision):
            yield Problem((*path, "precision"), f"{replica.precision!r} is no precision that requests can ask for")
        try:
            if replica.gpu:
                catalogue.gpu(replica.gpu)
        except catalogue.UnknownName as error:
            yield Problem((*path, "gpu"), f"{error}; its speed is learned from the defaults")


def _aliases(settings: Settings) -> Iterator[Problem]:
    for alias, names in settings.models.items():
        if set(names) <= settings.models.keys() - {alias}:
            words = f"leads to {' and '.join(names)}, which is an alias, too: only names that engines know are found"
            yield Problem(("models", alias), words)
