"""The state diagrams of docs/migration.md are what the tables in the code say. `python -m tests.diagrams_test` writes
them anew."""

from pathlib import Path

from headway.core.migration import LIVES_ON, NEXT, Phase
from headway.gateway import mover

PAGE = Path(__file__).parents[1] / "docs" / "migration.md"


def brain() -> str:
    """A move, as the brain follows it."""
    begins = sorted({phase for phase, _ in NEXT})
    ends = sorted({phase for phase in NEXT.values() if phase not in begins})
    lines = [f"[*] --> {phase}" for phase in begins]
    lines += [f"{phase} --> {after}: {signal}" for (phase, signal), after in NEXT.items()]
    lines += [f"{phase} --> [*]: {_then(phase)}" for phase in ends]
    return _drawn(lines)


def _then(phase: Phase) -> str:
    if phase is Phase.EVICTED:
        return "it waits for a replica"
    return "the target has it" if phase in LIVES_ON else "all is as before"


def body() -> str:
    """One request in the gateway, whoever answers it."""
    names = [name.lower() for name in mover.STATES]
    lines = [f"[*] --> {names[mover.PLAIN]}"]
    lines += [f"{names[state]} --> {names[after]}" for state, afters in mover.MOVES.items() for after in sorted(afters)]
    return _drawn([*lines, f"{names[mover.OVER]} --> [*]"])


def _drawn(lines: list[str]) -> str:
    return "\n".join(["stateDiagram-v2", *(f"    {line}" for line in lines)])


def told(page: str) -> str:
    """The page with both diagrams as they are."""
    for name, text in (("core.migration.NEXT", brain()), ("gateway.mover.MOVES", body())):
        before, begin, rest = page.partition(f"<!-- {name} -->\n```mermaid\n")
        _, end, behind = rest.partition("\n```\n")
        assert all((begin, end)), f"the page has no place for {name}"
        page = "".join((before, begin, text, end, behind))
    return page


def test_the_diagrams_are_those_of_the_tables() -> None:
    page = PAGE.read_text()
    assert told(page) == page, "python -m tests.diagrams_test writes them anew"


def test_every_row_is_drawn() -> None:
    assert brain().count(" --> ") == len(NEXT) + 2 + len(set(NEXT.values()))
    assert body().count(" --> ") == sum(map(len, mover.MOVES.values())) + 2


if __name__ == "__main__":
    PAGE.write_text(told(PAGE.read_text()))
