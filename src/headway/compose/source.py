"""A YAML document that remembers where everything was written, and environment variables inside it.

Settings are validated as plain data; this is what lets an error name the line. Duplicate keys, which YAML parsers
quietly let win or lose, are refused here.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import yaml

Path = tuple[str | int, ...]

VARIABLE = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


TEXT, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
MAX_VALUES = 1_000_000
"""No file of 1 MB has more, unless aliases multiply them: ten lines of those can stand for as many values as one likes.
"""


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a settings file. `line` counts from 1, 0 when unknown."""

    path: Path
    message: str
    line: int = 0

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        field = dotted(self.path)
        return f"{where}{field}: {self.message}" if field else f"{where}{self.message}"


class Document(msgspec.Struct, frozen=True):
    """Plain data with environment variables expanded, and for each path its line and the text as written."""

    source: str
    data: Any
    lines: dict[Path, int]
    raw: dict[Path, str]

    def line(self, path: Path) -> int:
        """The line of a field, or of the nearest thing around it that was written down."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 0


class SettingsError(Exception):
    """A settings file cannot be used. `problems` are all that were found, in order of lines."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = sorted(problems, key=lambda problem: problem.line)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))

    def located(self, document: Document) -> "SettingsError":
        """The same, with the lines of the document the settings came from."""
        lines = [msgspec.structs.replace(p, line=p.line or document.line(p.path)) for p in self.problems]
        return SettingsError(document.source, lines)


def dotted(path: Path) -> str:
    """`("replicas", 0, "url")` as people write it: `replicas[0].url`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def parse(text: str, source: str, environ: Mapping[str, str]) -> Document:
    """Read a document. Raises SettingsError for bad YAML, duplicate keys and variables that are not set."""
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(source, {}, {}, {})
        if _unfolded(node, {}) > MAX_VALUES:
            raise ValueError(f"its aliases unfold into more than {MAX_VALUES:,} values")
        problems = [Problem(path, "is written twice", line) for path, line in _duplicates(node, ())]
        problems += _odd_keys(node, ())
        data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise SettingsError(
            source, [Problem((), f"not valid YAML: {error.problem}", mark.line + 1 if mark else 0)]
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(source, [Problem((), f"not valid YAML: {error}")]) from None
    finally:
        if loader is not None:
            loader.dispose()
    lines: dict[Path, int] = {}
    raw: dict[Path, str] = {}
    for path, line, value in _walk(node, ()):
        lines[path] = line
        if value is not None:
            raw[path] = value
    expanded = _expand(data, (), environ, lines, problems)
    if problems:
        raise SettingsError(source, problems)
    return Document(source, expanded, lines, raw)


def _unfolded(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes there are if each alias counts as what it stands for. Raises ValueError for one within itself."""
    size = known.get(id(node))
    if size is None:
        known[id(node)] = 0
        pairs = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = [n for pair in pairs for n in pair] if isinstance(node, yaml.MappingNode) else pairs
        size = known[id(node)] = 1 + sum([_unfolded(n, known) for n in inner])
    elif size == 0:
        raise ValueError(f"an alias stands for something it is part of (line {node.start_mark.line + 1})")
    return size


def _walk(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int, str | None]]:
    """Every value with the line of its key, and its text if it is a scalar."""
    yield path, node.start_mark.line + 1, node.value if isinstance(node, yaml.ScalarNode) else None
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            first, *rest = _walk(value, inner)
            yield inner, key.start_mark.line + 1, first[2]
            yield from rest
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*path, index))


def _duplicates(node: yaml.Node, path: Path) -> Iterator[tuple[Path, int]]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            inner = (*path, str(key.value))
            if str(key.value) in seen and key.value != "<<":
                yield inner, key.start_mark.line + 1
            seen.add(str(key.value))
            yield from _duplicates(value, inner)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _duplicates(value, (*path, index))


def _odd_keys(node: yaml.Node, path: Path) -> Iterator[Problem]:
    """Keys that YAML takes for numbers, dates, truths or nothing, for no setting is named so; and variables in keys,
    which stand for values only."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag not in (TEXT, MERGE):
                yield Problem(path, f'the key {key.value} must be text: write "{key.value}"', key.start_mark.line + 1)
            elif isinstance(key, yaml.ScalarNode) and (found := VARIABLE.search(key.value)) and found["name"]:
                text = f"the key {key.value} holds a variable: only values may, write the name itself"
                yield Problem(path, text, key.start_mark.line + 1)
            yield from _odd_keys(value, (*path, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _odd_keys(value, (*path, index))


def _expand(value: Any, path: Path, environ: Mapping[str, str], lines: dict[Path, int], problems: list[Problem]) -> Any:
    if isinstance(value, dict):
        return {key: _expand(inner, (*path, str(key)), environ, lines, problems) for key, inner in value.items()}
    if isinstance(value, list):
        return [_expand(inner, (*path, index), environ, lines, problems) for index, inner in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        name = match["name"]
        if not name:
            return "$"
        default: str | None = match["default"]
        found = environ.get(name, default)
        if found is None:
            problems.append(Problem(path, f"environment variable {name} is not set", lines.get(path, 0)))
        return found or ""

    return VARIABLE.sub(replacement, value)
