"""How the engines of NVIDIA AIConfigurator's silicon points were started, as far as that is public.

Most points are of InferenceMAX (today InferenceX, github.com/SemiAnalysisAI/InferenceX, Apache-2.0), whose repository
has one script per model, precision and card under `benchmarks/`, and a log of changes, `perf-changelog.yaml`. What a
script passes to `vllm serve` is an input like the model's name: nothing here is fitted. Pull requests of that
repository in brackets.

Not written anywhere, and told from the points: two campaigns of NVIDIA itself ("wip"). NVFP4 checkpoints of NVIDIA ask
for an 8-bit KV cache, which vLLM's "auto" obeys: Kimi's 64 clients with 8,192 tokens each would not fit otherwise.
Points of other campaigns (Qwen3-32B, Qwen3-235B, Llama-3.1-8B, vLLM 0.12) say nothing: vLLM as it starts by itself.
"""

import msgspec

from headway.perfmodel.flags import Flags

CHUNK = 8192
"""max_num_batched_tokens of vLLM's server on large cards when told nothing."""

TUNED_KIMI = "2026-04-16"  # [1047]
TENSOR_ROUTERS = "2026-04-20"  # [1068, 1069, 1106, 1107]


class Recipe(msgspec.Struct, frozen=True):
    """`batched`: max_num_batched_tokens."""

    kv_dtype: str = "auto"
    batched: int = CHUNK
    flags: Flags = Flags()


def recipe(model: str, system: str, precision: str, version: str, date: str, ranks: int, isl: int) -> Recipe:
    """The recipe of a point. `date`: when it was measured, "" if not said; `ranks`: stated expert-parallel size."""
    blackwell = system.startswith("b")
    if model == "meta-llama/Llama-3.1-70B":  # 70b_fp8_*.sh, 70b_fp4_*.sh
        return Recipe("fp8")
    if model == "openai/gpt-oss-120b":  # gptoss_fp4_*.sh; 8-bit KV since [273]
        return Recipe("fp8" if blackwell and date > "2025-12" else "auto", flags=Flags(2048))
    if model == "MiniMaxAI/MiniMax-M2.5":
        return _minimax(blackwell, precision, version, date, ranks, isl)
    if model == "moonshotai/Kimi-K2.5":  # kimik2.5_*.sh
        if system == "b200_sxm" and precision == "fp4" and date > TUNED_KIMI:
            return Recipe("fp8", 2 * isl, Flags(2048, ranks > 1))
        return Recipe("fp8" if precision == "fp4" else "auto", flags=Flags(0, ranks > 1))
    return Recipe(flags=Flags(asynchronous=False))


def _minimax(blackwell: bool, precision: str, version: str, date: str, ranks: int, isl: int) -> Recipe:
    """minimaxm2.5_*.sh. Those before [947] ask for expert parallelism also where the size says 1."""
    if not blackwell or version == "0.17.0":
        return Recipe(flags=Flags(expert_parallel=True))
    if version.startswith("nightly") and precision == "fp4":
        return Recipe("fp8")
    return Recipe("fp8", 2 * isl, Flags(2048, ranks > 1, tensor_routers=date > TENSOR_ROUTERS))
