"""What a client asks for, read from a body and checked: `Ask`, or the refusal vLLM would give.

The order of the checks is vLLM's: types, model, then what the fields mean. Types are in `fields`, prompts in `prompts`.
"""

from typing import Any

import msgspec

from headway.emulator import fields as kinds
from headway.emulator.errors import Refusal, bad, unknown_model
from headway.emulator.prompts import Renderer

COMPLETION_TOKENS = 16  # OpenAI's default for completions
MOST_CHOICES = 128
MOST_STOPS = 16


class Ask(msgspec.Struct, frozen=True):
    """One request for tokens. `prompts` x `n` choices, in this order. `head`: the text to echo in front, if any."""

    chat: bool
    prompts: list[list[int]]
    n: int
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stop: tuple[str, ...]
    stop_token_ids: frozenset[int]
    include_stop: bool
    skip_special: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    echo: bool
    salt: str


def read(body: bytes, chat: bool, model: str, renderer: Renderer) -> Ask | Refusal:
    """Everything about one body, or the first thing that is wrong with it."""
    fields = kinds.decode(body)
    if isinstance(fields, Refusal):
        return fields
    required = ("messages",) if chat else ()
    refusal = (
        kinds.check(fields, kinds.CHAT if chat else kinds.COMPLETION, required)
        or check_model(fields, model)
        or _check_ranges(fields)
        or _check_tools(fields)
    )
    if refusal is not None:
        return refusal
    prompts = renderer.completions(fields.get("prompt")) if not chat else _only(renderer.chat(fields))
    if isinstance(prompts, Refusal):
        return prompts
    longest = max(map(len, prompts))
    limit = _limit(fields, chat, longest, renderer.max_model_len)
    if isinstance(limit, Refusal):
        return limit
    return _too_short(fields, limit) or _ask(fields, chat, prompts, limit)


def check_model(fields: dict[str, Any], model: str) -> Refusal | None:
    """A missing or empty name means the only model there is."""
    asked = fields.get("model")
    return unknown_model(asked, model) if asked and asked != model else None


def _only(ids: list[int] | Refusal) -> list[list[int]] | Refusal:
    return ids if isinstance(ids, Refusal) else [ids]


def _ask(fields: dict[str, Any], chat: bool, prompts: list[list[int]], limit: int) -> Ask:
    options = fields.get("stream_options") or {}
    streams = bool(fields.get("stream"))
    return Ask(
        chat=chat,
        prompts=prompts,
        n=_number(fields, "n", 1),
        max_tokens=limit,
        min_tokens=_number(fields, "min_tokens", 0),
        ignore_eos=bool(fields.get("ignore_eos")),
        stop=_stops(fields),
        stop_token_ids=frozenset(fields.get("stop_token_ids") or ()),
        include_stop=bool(fields.get("include_stop_str_in_output")),
        skip_special=fields.get("skip_special_tokens", True) is not False,
        stream=streams,
        include_usage=streams and bool(options.get("include_usage")),
        continuous_usage=streams and bool(options.get("continuous_usage_stats")),
        return_token_ids=bool(fields.get("return_token_ids")),
        echo=bool(fields.get("echo")),
        salt=fields.get("cache_salt") or "",
    )


def _number(fields: dict[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    return default if value is None else int(value)


def _stops(fields: dict[str, Any]) -> tuple[str, ...]:
    stop = fields.get("stop") or ()
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _check_ranges(fields: dict[str, Any]) -> Refusal | None:
    for name in ("max_tokens", "max_completion_tokens"):
        value = fields.get(name)
        if value is not None and value < 1:
            return bad(f"max_tokens must be at least 1, got {value}.", "max_tokens", value)
    for name in ("temperature", "min_tokens"):
        value = fields.get(name)
        if value is not None and value < 0:
            shown = float(value) if name == "temperature" else value
            rule = "must be non-negative" if name == "temperature" else "must be greater than or equal to 0"
            return bad(f"{name} {rule}, got {shown}.", name, shown)
    choices = _number(fields, "n", 1)
    if not 1 <= choices <= MOST_CHOICES:
        return bad(f"n must be between 1 and {MOST_CHOICES}, got {choices}.", "n", choices)
    stops = fields.get("stop")
    if isinstance(stops, list) and (len(stops) > MOST_STOPS or not all(isinstance(one, str) for one in stops)):
        return bad(f"stop must be a string or a list of up to {MOST_STOPS} strings.", "stop")
    if isinstance(stops, str | list) and "" in (stops if isinstance(stops, list) else [stops]):
        return bad("stop cannot contain an empty string.", "stop") if stops else None
    return None


def _check_tools(fields: dict[str, Any]) -> Refusal | None:
    """Tools are accepted and ignored with tool_choice none; otherwise refused: nobody here can call them."""
    if not fields.get("tools") or fields.get("tool_choice") == "none":
        return None
    if fields.get("tool_choice", "auto") == "auto":
        return bad('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set')
    return bad("The emulator does not call tools.", "tool_choice")


def _limit(fields: dict[str, Any], chat: bool, prompt: int, longest: int) -> int | Refusal:
    """How many tokens may be generated at most; refused if prompt and output cannot fit together."""
    asked = fields.get("max_completion_tokens") or fields.get("max_tokens")
    if asked is not None and asked > longest:
        message = (
            f"max_tokens={asked} cannot be greater than max_model_len={longest}. Please request fewer output tokens."
        )
        return bad(message, "max_tokens", asked)
    room = longest - prompt
    wanted = asked or (room if chat else min(COMPLETION_TOKENS, room))
    if room < 1 or wanted > room:
        message = (
            f"This model's maximum context length is {longest} tokens. However, you requested {max(wanted, 0)} output "
            f"tokens and your prompt contains {prompt} input tokens, for a total of {prompt + max(wanted, 0)} tokens. "
            "Please reduce the length of the input prompt or the number of requested output tokens."
        )
        return bad(message, "input_tokens", prompt)
    return int(wanted)


def _too_short(fields: dict[str, Any], limit: int) -> Refusal | None:
    least = _number(fields, "min_tokens", 0)
    if least <= limit:
        return None
    return bad(f"min_tokens must be less than or equal to max_tokens={limit}, got {least}.")
