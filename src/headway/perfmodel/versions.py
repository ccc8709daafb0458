"""What changed between versions of vLLM as far as device memory goes: defaults, profiling, accounting.

Every threshold was read in the engine's own source (the published packages 0.2.6 to 0.32.0): engine arguments,
`determine_available_memory`, `profile_run`, the samplers, `kv_cache_utils`. Nothing here was fitted.
"""

import re

import msgspec

from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import GIB, Gpu

LATEST = "0.32.0"
"""Newest version whose source was read; later ones are taken to be like it."""

WHOLE_PROMPTS = 32768
"""The first core's batch is as long as max_model_len up to this length, and small above: that takes less memory."""

RUNNER_2_FAMILIES = {22: ("qwen3",), 23: ("qwen3", "llama", "mistral"), 24: ("qwen3", "llama", "mistral")}
"""Families that 0.22 to 0.24 run on the second model runner by default; later all dense ones without linear layers,
then all."""

RUNNER_2_EXPERTS = ("deepseek_v2", "qwen2_moe", "granitemoe")


class BadVersion(ValueError):
    """Not a version of an engine that is modelled."""


class Rules(msgspec.Struct, frozen=True):
    """The rules of version 0.`minor`.`patch`; `first` is the engine core of 2023 to 2025 ("V0")."""

    minor: int
    first: bool = False
    patch: int = 0

    @property
    def utilization(self) -> float:
        """Default share of the card."""
        return 0.92 if self.minor >= 20 else 0.9

    def graphs_counted(self, model: Architecture, quantised: bool) -> bool:
        """CUDA graphs are estimated and taken from the KV pool (before: they were taken on top of what was asked). The
        second model runner estimated none before 0.29."""
        return self.minor >= 29 or (self.minor >= 20 and not self.runner_2(model, quantised))

    def graphs_profiled(self, model: Architecture, quantised: bool) -> bool:
        """Some CUDA graphs are captured for an estimate before memory is measured, whether or not it counts."""
        return self.minor >= 29 or (self.minor >= 18 and not self.runner_2(model, quantised))

    @property
    def context_counted(self) -> bool:
        """Whatever the card holds beside tensors counts, the CUDA context included, instead of what was added since the
        engine began: before 0.5, again in 0.6.4, and in the second core before 0.9.1."""
        if self.first:
            return self.minor < 5 or (self.minor, self.patch) == (6, 4)
        return (self.minor, self.patch) < (9, 1)

    @property
    def tokens_by_length(self) -> bool:
        """The reported pool is concurrency x max_model_len; before: blocks / groups x block size."""
        return (self.minor, self.patch) >= (20, 1)

    @property
    def hybrid(self) -> bool:
        """Layers of different kinds get block tables of their own; before, windows were kept like full attention."""
        return not self.first and self.minor >= 10

    @property
    def workspace_kept(self) -> bool:
        """Experts work in a buffer that stays allocated after the layers have run."""
        return self.minor >= 14

    @property
    def reductions_kept(self) -> bool:
        """Inputs of all-reduces were freed at the end of a step only, until 0.2.6 avoided NCCL's record_stream."""
        return (self.minor, self.patch) < (2, 6)

    @property
    def videos_profiled(self) -> bool:
        """The profiling run makes up its image or video for max_model_len tokens; before, for one batch."""
        return self.minor >= 10

    @property
    def video_rows(self) -> int:
        """Rows of the encoder cache that 0.11 and 0.12 fill for Qwen3-VL: 12,288 tokens of video with their time
        stamps, which the cache does not hold, counted as 12.5 tokens each."""
        return self.video_tokens * 25 // 2

    @property
    def video_tokens(self) -> int:
        """Tokens of the video that these versions look at in place of an image (0: of others)."""
        return 12_288 if self.minor in (11, 12) else 0

    @property
    def tower_widths(self) -> int:
        """Hidden widths alive at once in the attention of Qwen's towers: 0.11 rotated queries and keys in float32,
        beside its copies of them."""
        return 20 if self.minor == 11 else 4

    @property
    def mistral_format(self) -> bool:
        """Repositories with files in Mistral's own format are loaded from these, not from config.json."""
        return self.minor >= 12

    def latent_workspaces(self, gpu: Gpu) -> int:
        """Workspaces of backends for latent attention that importing them allocates, whichever is chosen: 0.12 began
        to import all that a card might use. FlashInfer's is allocated when needed since 0.25; CUTLASS's is imported on
        data-centre Blackwell only."""
        if self.first or self.minor < 12:
            return 0
        cutlass = gpu.generation == "blackwell" and gpu.link == "nvlink"
        return int(self.minor < 25) + int(cutlass)

    @property
    def batches_in_flight(self) -> int:
        """Batches whose tokens a sliding window must hold at once."""
        return 2 if self.minor >= 27 else 1

    def runner_2(self, model: Architecture, quantised: bool) -> bool:
        """Whether the second model runner profiles: it does not sample with top-k and top-p while profiling."""
        if self.minor >= 29:
            return True
        if self.minor >= 24 and model.family in RUNNER_2_EXPERTS and not model.vision:
            return True
        if self.minor >= 25:
            return model.experts is None and not model.linear_layers
        text_only = model.family in RUNNER_2_FAMILIES.get(self.minor, ()) and not model.vision
        return text_only and (self.minor >= 24 or not quantised)

    def sampler(self, model: Architecture, quantised: bool) -> str:
        """How the profiling run samples: "sort", "pivot" (Triton), "flashinfer", "plain" (no top-k) or "none"."""
        if self.runner_2(model, quantised):
            return "plain"
        if self.first or 8 <= self.minor < 17:
            return "sort"
        if self.minor < 8:
            return "none"  # V1 before 0.8 stopped at the logits of all tokens
        return "pivot" if self.minor < 21 else "flashinfer"

    def batch(self, gpu: Gpu, max_model_len: int) -> tuple[int, int]:
        """Default (max_num_seqs, max_num_batched_tokens) of the server; the first core prefilled whole prompts."""
        if self.first:
            return 256, max_model_len if 2048 < max_model_len <= WHOLE_PROMPTS else 2048
        if self.minor < 8:
            return 1024, 8192 if gpu.roomy else 2048
        if self.minor >= 28 and gpu.memory_bytes >= 160 * GIB:
            return 1024, 16384
        return (1024, 8192) if gpu.roomy else (256, 2048)


def rules(version: str) -> Rules:
    """The rules of a version such as "0.19.0", "v0.11", or "V0 0.7.3" to ask for the first core of a version that had
    both. Raises BadVersion."""
    found = re.search(r"(?<![\d.])0\.(\d+)(?:\.(\d+))?", version)
    if found is None or "sglang" in version.lower():
        raise BadVersion(f"{version!r} is not a version of vLLM: write it like 0.19.0")
    minor, patch = int(found.group(1)), int(found.group(2) or 0)
    named = re.search(r"\bV([01])\b", version)
    return Rules(minor, first=named.group(1) == "0" if named else minor < 8, patch=patch)
