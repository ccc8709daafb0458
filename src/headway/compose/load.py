"""From a file to settings, or to problems that name field and line and guess what was meant."""

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any, get_args, get_origin

import msgspec
from pydantic import BaseModel, SecretStr, ValidationError

from headway.compose.settings import Settings
from headway.compose.settings_base import LARGEST
from headway.compose.source import Document, Path, Problem, SettingsError, parse
from headway.compose.texts import unfit_for_heads
from headway.telemetry.redact import SENSITIVE

MAX_FILE_BYTES = 1_000_000
"""A fleet of a thousand replicas takes 200 kB; more than this is the wrong file."""


def read(path: FilePath, environ: Mapping[str, str] | None = None) -> Document:
    """Read a settings file. Raises SettingsError if it cannot be read or is no YAML."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)  # not all of a device without end
    except OSError as error:
        raise SettingsError(str(path), [Problem((), f"cannot be read: {error.strerror}")]) from None
    if len(data) > MAX_FILE_BYTES:
        raise SettingsError(str(path), [Problem((), "is larger than 1 MB: not a settings file")])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SettingsError(str(path), [Problem((), f"is not UTF-8 text (byte {error.start})")]) from None
    return parse(text, str(path), os.environ if environ is None else environ)


def validate(document: Document) -> Settings:
    """Settings from a parsed document. Raises SettingsError."""
    if not isinstance(document.data, dict):
        raise SettingsError(document.source, [Problem((), "must be a map of sections (`listen:`, `replicas:` ...)", 1)])
    try:
        return Settings.model_validate(document.data)
    except ValidationError as error:
        problems = [_problem(document, dict(detail)) for detail in error.errors(include_url=False)]
        raise SettingsError(document.source, problems) from None


def overlay(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings with some values replaced, section by section; None replaces nothing. Constants of a policy go with
    it. Raises SettingsError."""
    merged = _merge(settings.model_dump(exclude_unset=True), changes)
    policy = merged.get("policy", {})
    if policy.get("name", settings.policy.name) != settings.policy.name:
        policy.pop("options", None)
    return validate(Document("command line", merged, {}, {}))


def _merge(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for name, value in changes.items():
        if isinstance(value, Mapping):
            merged[name] = _merge(merged.get(name) or {}, value)
        elif value is not None:
            merged[name] = value
    return merged


def near(word: str, known: Iterable[str]) -> str:
    """A hint such as `; did you mean "port"?`, empty when nothing is near."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{match[0]}"?' if match else ""


def read_secret(value: SecretStr | None, file: FilePath | None, field: Path) -> str:
    """A secret given in place or in a file (one trailing newline dropped), empty when neither is set.

    Raises SettingsError when the file cannot be read, is empty, or both are given.
    """
    if value is not None and file is not None:
        raise SettingsError("settings", [Problem(field, f"give {field[-1]} or {field[-1]}_file, not both")])
    if file is None:
        return _fit(value.get_secret_value() if value is not None else "", field)
    try:
        secret = file.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("settings", [Problem((*field[:-1], f"{field[-1]}_file"), f"{file}: {error}")]) from None
    if not secret:
        raise SettingsError("settings", [Problem((*field[:-1], f"{field[-1]}_file"), f"{file} is empty")])
    return _fit(secret, (*field[:-1], f"{field[-1]}_file"))


def _fit(secret: str, field: Path) -> str:
    if problem := unfit_for_heads(secret):
        raise SettingsError("settings", [Problem(field, problem)])
    return secret


def _problem(document: Document, detail: dict[str, Any]) -> Problem:
    path: Path = tuple(detail["loc"])
    kind, message = detail["type"], str(detail["msg"])
    if path[-1:] == ("[key]",):
        path = path[:-1]
        if not path[-1]:
            return Problem(path[:-1], "a name is empty", document.line(path))
    if kind == "extra_forbidden":
        known, word = _fields_at(path[:-1]), str(path[-1])
        inside = _sections_with(word) if len(path) == 1 else ""
        message = "unknown key" + (inside or near(word, known) or f"; known here: {', '.join(sorted(known))}")
    elif kind == "missing":
        message = "is required"
    elif kind == "value_error":
        inner, message = _said_of(message.removeprefix("Value error, "), path)
        path = (*path, *inner)
    else:
        message = message[:1].lower() + message[1:]
        raw = document.raw.get(path)
        if raw is not None and not SENSITIVE.match(str(path[-1])):
            message = f"{message} (found {raw!r})"
    return Problem(path, message, document.line(path))


def _said_of(message: str, path: Path) -> tuple[Path, str]:
    """What looks at several fields names one first (`port: is taken`): that one, below `path`, and the rest."""
    field, colon, rest = message.partition(": ")
    parts = tuple(field.split("."))
    if not colon or path[:1] == ("models",) or parts[0] not in _fields_at(path):
        return (), message
    return parts, rest


def _fields_at(path: Path) -> set[str]:
    """Names a section knows; the path leads there from the root."""
    model: Any = Settings
    for part in path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            model = model.model_fields[str(part)].annotation
        else:
            model = (get_args(model) or (None,))[-1]
        model = _unwrap(model)
    return set(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else set()


def _sections_with(word: str) -> str:
    """A hint for a key that stands at the top and belongs into a section, empty when none has it."""
    inside = [name for name in Settings.model_fields if word in _fields_at((name,))]
    return f"; did you mean {' or '.join(f'{name}.{word}' for name in inside)}?" if inside else ""


def _unwrap(annotation: Any) -> Any:
    """The model inside Optional, Annotated."""
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    if get_origin(annotation) is dict or (isinstance(annotation, type) and not arguments):
        return annotation
    for argument in arguments[:1] if hasattr(annotation, "__metadata__") else arguments:
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return annotation


def convert(data: dict[str, Any], struct: type[msgspec.Struct], path: Path) -> Any:
    """Turn free-form options into a Struct. Raises SettingsError that names the field below `path`."""
    _refuse_unknown(data, struct, path)
    _refuse_endless(data, path)
    try:
        return msgspec.convert(data, struct, strict=False)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        inner = tuple(part for part in where.rstrip("`").split(".") if part)
        raise SettingsError("settings", [Problem((*path, *inner), message[:1].lower() + message[1:])]) from None


def _refuse_endless(data: Mapping[str, Any], path: Path) -> None:
    for name, value in data.items():
        if isinstance(value, Mapping):
            _refuse_endless(value, (*path, str(name)))
        elif isinstance(value, float | int) and not -LARGEST <= value <= LARGEST:
            raise SettingsError("settings", [Problem((*path, str(name)), "must be a finite number of ordinary size")])


def _refuse_unknown(data: Mapping[str, Any], struct: type[msgspec.Struct], path: Path) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for name, value in data.items():
        if name not in fields:
            hint = near(str(name), fields) or (f"; known here: {', '.join(fields)}" if fields else "; it takes none")
            raise SettingsError("settings", [Problem((*path, str(name)), f"unknown key{hint}")])
        inner = fields[name]
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _refuse_unknown(value, inner, (*path, str(name)))
