"""The fields of a request body and their types, checked as vLLM's validation layer does, in its words.

Only types are checked here; ranges, and what fields mean together, are `asks`' business. Fields that are not listed
are accepted and ignored, as vLLM does.
"""

import json
from typing import Any

import msgspec

from headway.emulator.errors import Refusal, invalid

_COMMON = {
    "model": "string",
    "max_tokens": "int",
    "min_tokens": "int",
    "temperature": "float",
    "top_p": "float",
    "top_k": "int",
    "presence_penalty": "float",
    "frequency_penalty": "float",
    "repetition_penalty": "float",
    "seed": "int",
    "n": "int",
    "stream": "bool",
    "stream_options": "dict",
    "ignore_eos": "bool",
    "include_stop_str_in_output": "bool",
    "skip_special_tokens": "bool",
    "stop_token_ids": "list",
    "return_token_ids": "bool",
    "cache_salt": "string",
    "priority": "int",
    "user": "string",
}
CHAT = _COMMON | {
    "messages": "list",
    "max_completion_tokens": "int",
    "add_generation_prompt": "bool",
    "continue_final_message": "bool",
    "tools": "list",
    "logprobs": "bool",
    "top_logprobs": "int",
}
COMPLETION = _COMMON | {"echo": "bool", "logprobs": "int", "suffix": "string"}
TOKENIZE = {
    "model": "string",
    "prompt": "string",
    "messages": "list",
    "add_generation_prompt": "bool",
    "continue_final_message": "bool",
    "return_token_strs": "bool",
}
DETOKENIZE = {"model": "string", "tokens": "list"}

_WORDS = {
    "float": ("float", "Input should be a valid number", "unable to parse string as a number"),
    "int": ("int", "Input should be a valid integer", "unable to parse string as an integer"),
    "bool": ("bool", "Input should be a valid boolean", "unable to interpret input"),
    "string": ("string", "Input should be a valid string", ""),
    "list": ("list", "Input should be a valid list", ""),
    "dict": ("dict", "Input should be a valid dictionary", ""),
}
_CLASSES: dict[str, tuple[type, ...]] = {
    "float": (int, float),
    "int": (int,),
    "bool": (bool,),
    "string": (str,),
    "list": (list,),
    "dict": (dict,),
}

_OF_INTS = frozenset({"stop_token_ids"})


def decode(body: bytes) -> dict[str, Any] | Refusal:
    """The body as an object, or why it is none."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return _bad_json(body)
    if not isinstance(value, dict):
        return invalid("model_attributes_type", "body", "Input should be a valid dictionary or object", value)
    return value


def _bad_json(body: bytes) -> Refusal:
    """The standard library says where and why, in the words that vLLM passes on."""
    try:
        json.loads(body.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        detail = f", 'ctx': {{'error': '{error.msg}'}}"
        return invalid("json_invalid", f"body.{error.pos}", "JSON decode error", {}, detail)
    except (ValueError, RecursionError):
        pass  # too many digits or brackets for the standard library, too: vLLM names no place then
    return Refusal(400, "There was an error parsing the body", kind="Bad Request")


def check(fields: dict[str, Any], kinds: dict[str, str], required: tuple[str, ...] = ()) -> Refusal | None:
    """Complain about the first field that is missing or of the wrong type; numbers in strings become numbers."""
    for name in required:
        if name not in fields:
            return invalid("missing", f"body.{name}", "Field required", fields)
    for name, value in fields.items():
        kind = kinds.get(name)
        if kind is None or value is None:
            continue
        if isinstance(value, _CLASSES[kind]) and (kind == "bool" or not isinstance(value, bool)):
            wrong = _first_no_int(name, value) if name in _OF_INTS else None
            if wrong is not None:
                return wrong
            continue
        parsed = _parse(kind, value)
        if parsed is None:
            return _complain(name, kind, value)
        fields[name] = parsed
    return None


def _first_no_int(name: str, items: Any) -> Refusal | None:
    for place, item in enumerate(items):
        if type(item) is not int:
            return _complain(f"{name}.{place}", "int", item)
    return None


def _parse(kind: str, value: Any) -> Any:
    """What a lenient reader makes of a value of another type; None if nothing."""
    if isinstance(value, bool) and kind in {"int", "float"}:
        return int(value)
    if kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind in {"int", "float"} and isinstance(value, str):
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            return None
    if kind == "bool" and value in (0, 1, "true", "false"):
        return value in (1, "true")
    return None


def _complain(name: str, kind: str, value: Any) -> Refusal:
    word, text, parsing = _WORDS[kind]
    place = f"body.{name}"
    if kind == "int" and isinstance(value, float):
        return invalid("int_from_float", place, f"{text}, got a number with a fractional part", value)
    if kind == "bool" and isinstance(value, str):
        return invalid("bool_parsing", place, f"{text}, {parsing}", value)
    if parsing and isinstance(value, str):
        return invalid(f"{word}_parsing", place, f"{text}, {parsing}", value)
    return invalid(f"{word}_type", place, text, value)
