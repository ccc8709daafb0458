"""What in a request's body forbids continuing it on another replica, and why, in one word each.

A continued run gets what was generated so far as part of its prompt. Whatever looks at the output alone, or carries
state that no prompt can rebuild, would then say something else. Measured on real engines (docs/migration.md); what was
measured to be exact is not here: greedy and seedless sampling, `logit_bias`, `repetition_penalty` (it counts the
prompt, too), `min_tokens` (shrinks with `max_tokens`), `stop` (matched across the joint).
"""

from typing import Final

API: Final = "api"
"""The API has no way to go on from a prefix."""

UNSTREAMED: Final = "whole"
"""The client wants its answer in one piece, and such requests do not move."""

CHOICES: Final = "choices"
"""More than one sequence is generated: several prompts, n, best_of."""

PINNED: Final[dict[str, str]] = {
    "tools": "tools",
    "functions": "tools",
    "echo": "echo",
    "suffix": "suffix",
    "seed": "seed",
    "logprobs": "logprobs",
    "prompt_logprobs": "logprobs",
    "response_format": "grammar",
    "structured_outputs": "grammar",
    "guided_json": "grammar",
    "guided_regex": "grammar",
    "guided_choice": "grammar",
    "guided_grammar": "grammar",
    "json_schema": "grammar",
    "grammar": "grammar",
    "regex": "grammar",
    "ebnf": "grammar",
    "use_beam_search": "beam",
    "presence_penalty": "penalty",
    "frequency_penalty": "penalty",
    "bad_words": "bad_words",
    "stop_regex": "stop_regex",
    "mirostat": "sampler_state",
    "custom_logit_processor": "sampler_state",
    "truncate_prompt_tokens": "truncation",
    "kv_transfer_params": "kv_transfer",
}
"""Field of a chat or completion: the reason. A field that is null, false or empty forbids nothing."""

ZERO_MEANS_OFF: Final = frozenset({"presence_penalty", "frequency_penalty", "mirostat"})
"""Fields for which zero is no value. It is one for a seed, and for logprobs of no rivals."""
