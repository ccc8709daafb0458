"""How long a context a config.json allows, in the way of the versions of the engine that reads it.

The rule is vLLM's `_get_and_verify_max_len`, read in its source from 0.11 to 0.32: the smallest field that names a
length, except that model_max_length wins (Command-R); times the factor of linear and dynamic scaling of rotary
positions, but not of Llama 3's, LongRoPE's, or those without a factor. YaRN was `original x factor` before 0.30 and is
what the file says since; LongRoPE starts with its original length by default since 0.12.
"""

from collections.abc import Mapping
from typing import Any

from headway.perfmodel.architectures import Context
from headway.perfmodel.hf_layers import ConfigError

NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
UNSTATED = 2048
"""Where a file names no length, vLLM takes this by default and any other that is asked for."""

MOST = 10_000
"""Greatest factor that a file may name."""

AS_WRITTEN = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling", "telechat3-yarn")
"""Scalings whose files name the longer context already."""


def context(kind: str, text: Mapping[str, Any]) -> Context:
    """Of a text part with this model_type."""
    named = [int(text[name]) for name in NAMES if text.get(name)]
    longest = int(text.get("model_max_length") or min(named, default=UNSTATED))
    open_ended = not named and not text.get("model_max_length")
    scaling, before, short = scaling_of(text), 0, 0
    sort = str(scaling.get("rope_type") or scaling.get("type") or "default")
    factor, original = _factor(scaling.get("factor")), scaling.get("original_max_position_embeddings")
    if sort == "yarn" and original:
        before = round(int(original) * factor)
    elif sort not in AS_WRITTEN and "gemma3" not in kind:
        longest = round(longest * factor)
    if sort in ("longrope", "su"):
        short = int(text.get("original_max_position_embeddings") or (kind.startswith("phi") and original) or 0)
    return Context(longest, before or longest, short or longest, open_ended)


def _factor(said: Any) -> float:
    if said is None:
        return 1.0
    if isinstance(said, bool) or not isinstance(said, int | float) or not 1 <= said <= MOST:
        raise ConfigError(f"config.json: the factor of rope_scaling is {said!r}, it must be 1 to {MOST:,}")
    return float(said)


def scaling_of(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scaling of rotary positions; of full attention where a file has one per kind of layer."""
    for name in ("rope_scaling", "rope_parameters"):
        found = text.get(name)
        if found and not isinstance(found, Mapping):
            raise ConfigError(f"config.json: {name} is {found!r:.60}, not an object")
        if isinstance(found, Mapping):
            inner = [one for one in found.values() if isinstance(one, Mapping)]
            full = found.get("full_attention")
            return full if isinstance(full, Mapping) else inner[0] if inner else found
    return {}
