"""How precise a replica computes, and how precise a client wants it: names of weight formats and their order.

    rank   formats                  why here
    4      fp32, bf16, fp16         what models are published in; 32 bits add nothing to weights trained in 16
    3      fp8, int8                eight bits; evaluations find next to no loss for fp8 and a point or so for int8
                                    (Kurtic et al., "Give Me BF16 or Give Me Death?", arXiv 2411.02355)
    2      fp4, int4 (to 7 bits)    good on average, but single tasks lose: long reasoning, rare languages, code
    1      int3, int2, ternary      loses everywhere
    0      unknown                  the engine does not say

Formats of one rank count as equal: neither fp8 nor int8 can be promised to be the better one. A name that may mean two
(bitsandbytes) counts as the lower. Only names and their order live here; who may be used is the scheduler's business.
"""

import re
from functools import lru_cache

FULL, EIGHT, FOUR, LESS, UNKNOWN = 4, 3, 2, 1, 0

FLOORS: dict[int, str] = {FULL: "bf16", EIGHT: "fp8", FOUR: "int4", LESS: "int2"}
"""What a floor of each rank is called."""

_BY_NAME = {name: rank for rank, name in FLOORS.items()}

FORMATS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("fp32", "f32", "float32", "float"), ("fp32", FULL)),
    **dict.fromkeys(("bf16", "bfloat16"), ("bf16", FULL)),
    **dict.fromkeys(("fp16", "f16", "float16", "half"), ("fp16", FULL)),
    **dict.fromkeys(("fp8", "f8", "float8", "mxfp8", "e4m3", "e5m2", "fp8e4m3", "fp8e5m2", "modelopt"), ("fp8", EIGHT)),
    **dict.fromkeys(("int8", "w8a8", "w8a16", "8bit"), ("int8", EIGHT)),
    **dict.fromkeys(("fp6", "mxfp6"), ("fp6", FOUR)),
    **dict.fromkeys(("int6", "6bit"), ("int6", FOUR)),
    **dict.fromkeys(("int5", "5bit"), ("int5", FOUR)),
    **dict.fromkeys(("fp4", "mxfp4", "nvfp4", "nf4"), ("fp4", FOUR)),
    **dict.fromkeys(("int4", "w4a16", "w4a8", "w4a4", "wna16", "4bit"), ("int4", FOUR)),
    **dict.fromkeys(("awq", "gptq", "bitsandbytes", "bnb"), ("int4", FOUR)),  # mostly so; eight bits say it besides
    **dict.fromkeys(("int3", "3bit"), ("int3", LESS)),
    **dict.fromkeys(("int2", "2bit", "ternary"), ("int2", LESS)),
}
"""Words in the names of formats, as engines and files have them: what we call it, and its rank."""

_WORDS = re.compile(r"[a-z0-9]+")
_GGUF = re.compile(r"[it]?q([1-8])")  # llama.cpp: Q8_0, Q4_K, IQ3_XS, TQ1_0; the digit is bits per weight
_PLAIN = frozenset(("float", "half", "ternary"))  # words of English: in the name of a model they mean something else
_MOST = 256  # characters looked at: names come from outside


@lru_cache(maxsize=1024)
def known(text: str) -> tuple[str, int]:
    """What a format is called here and its rank; ("", 0) if it says nothing. Of several words the last counts:
    `gptq_int8`, `modelopt_fp4`."""
    found = ("", UNKNOWN)
    for word in _WORDS.findall(text[:_MOST].lower()):
        found = FORMATS.get(word) or _gguf(word) or found
    return found


def rank(text: str) -> int:
    """How precise it is; 0 if that is not known."""
    return known(text)[1]


def of_model(name: str) -> str:
    """The format that the name of a model ends in, or names on its way ("Qwen2.5-7B-Instruct-FP8-dynamic"); empty if
    none."""
    said = [word for word in _WORDS.findall(name[:_MOST].lower()) if word not in _PLAIN]
    return known(" ".join(said))[0]


def floor(text: str) -> str:
    """The name of the lowest precision that somebody takes who says this. Empty if it is no precision."""
    folded = text.strip().lower()
    if folded == "any":
        return FLOORS[LESS]
    known_as = FORMATS.get(folded) or _gguf(folded)
    return FLOORS[known_as[1]] if known_as is not None else ""


def stricter(one: str, other: str) -> str:
    """The floor that satisfies both (empty: none is stated). What is no precision is returned, to be refused."""
    least = ""
    for text in filter(None, (one, other)):
        named = floor(text)
        if not named:
            return text
        if not least or _BY_NAME[named] > _BY_NAME[least]:
            least = named
    return least


def _gguf(word: str) -> tuple[str, int] | None:
    match = _GGUF.fullmatch(word)
    if match is None:
        return None
    bits = int(match[1])
    return f"int{max(2, bits)}", EIGHT if bits == 8 else FOUR if bits >= 4 else LESS
