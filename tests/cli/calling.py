"""Calling commands in this process."""

from headway.cli import make_group


def call(*arguments: str) -> int:
    """Run `headway ARGUMENTS`; returns the exit code."""
    try:
        make_group().main(list(arguments), prog_name="headway")
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
