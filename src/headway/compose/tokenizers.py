"""Tokenizer files of models: loaded once, before anything is served, by a package that few installations need."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from headway.compose.source import Problem, SettingsError
from headway.gateway.counting import Counter, Tokenizing

ADVICE = "counting tokens needs the package `tokenizers`: pip install 'headway[tokenizers]'"


def load(files: Mapping[str, Path], aliases: Mapping[str, Sequence[str]]) -> dict[str, Counter]:
    """A counter per model, and per alias that leads to one first. Raises SettingsError."""
    counters = {model: Counter(_open(path, ("tokenizers", model))) for model, path in files.items()}
    shared = {alias: counters[names[0]] for alias, names in aliases.items() if names[0] in counters}
    return {**shared, **counters}


def _open(path: Path, field: tuple[str, ...]) -> Tokenizing:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise SettingsError("settings", [Problem(field, ADVICE)]) from None
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError("settings", [Problem(field, f"{path}: {error.strerror}")]) from None
    except Exception as error:  # noqa: BLE001 the package raises bare ones
        raise SettingsError("settings", [Problem(field, f"{path} is no tokenizer.json: {error}")]) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def tokens(text: str, special: bool) -> int:
        return len(tokenizer.encode(text, add_special_tokens=special))

    return tokens
