"""The peak of an engine's profiling run: what it must keep free beside weights and cache.

The run has two peaks, and the higher one counts: the layers, in the widest MLP; and the sampler, which handles one row
of logits per sequence. Experts' buffers and a vision tower's results stay allocated through both. Counts of tensors
are read from the engine's code; the two constants below come from its logs and say so.
"""

import msgspec

from headway.perfmodel.architectures import Architecture, Vision
from headway.perfmodel.gpus import Gpu
from headway.perfmodel.quantisation import Scheme
from headway.perfmodel.versions import Rules

SORTED_ROWS = 9.5
"""float32 tensors of (sequences x vocabulary) alive at once in a sampler that sorts: logits in 16 bits (0.5) and in 32,
sorted values, 64-bit indices, the sort's own copies of both, probabilities. The sum is what logs of 0.6 to 0.16 show,
0.98 to 1.02 of it on eight models."""

PIVOT_ROWS = 3.5
"""Without a sort: 16-bit logits (0.5), 32-bit logits, probabilities, and the exponential noise that picks a token."""

PLAIN_ROWS = 0.5
"""The second runner's dummy requests ask for no filter: only 16-bit logits."""

BESIDE, BESIDE_EAGER = 3.5, 3.0
"""Tensors of (tokens x hidden) beside the widest MLP tensors: its input, residual and output, and in compiled graphs
about half of one for attention's leftovers. From logs: 3.42, 3.46, 3.5 compiled; 3.00 and 3.00 of the first core, which
did not compile."""

CUBLAS_BYTES = {True: 32 << 20, False: 8 << 20}
"""PyTorch's workspace for cuBLAS, on Hopper and Blackwell or on older cards."""

SEQUENCE_BYTES = 18 << 10
"""Small buffers of the sampler: logs leave 13 to 28 MiB unexplained at 1,024 sequences, 0 to 5 at 256."""


SHUFFLED = 3
"""Tensors with a row per token and chosen expert that NVFP4 experts make beside their workspaces: inputs in the order
of experts, outputs in the order of tokens, and these weighted (run_cutlass_moe_fp4)."""

FUSED_MXFP4 = ("hopper", "blackwell")
"""Cards on which MXFP4 experts run in one fused call that keeps no workspace (vLLM's oracle for mxfp4)."""


class Run(msgspec.Struct, frozen=True):
    """What the profiling run works on. `length`: max_model_len, which bounds the videos it makes up. `eager`: without
    compiling. `pp`: pipeline stages, which hand two tensors (hidden state and residual) from one to the next."""

    seqs: int
    tokens: int
    tp: int = 1
    first: bool = True
    last: bool = True
    length: int = 0
    eager: bool = False
    pp: int = 1


def activation_bytes(model: Architecture, gpu: Gpu, rules: Rules, scheme: Scheme, run: Run) -> int:
    """Peak in bytes on one GPU of a pipeline stage."""
    keeps = rules.workspace_kept and not (scheme.name == "mxfp4" and gpu.generation in FUSED_MXFP4)
    kept = _experts(model, run, rules) if keeps else 0.0
    seen = (
        _kept_images(model.vision, model.hidden, rules, run) if model.vision and run.first and not rules.first else 0.0
    )
    layers = _layers(model, rules, scheme, run) + (0.0 if keeps else _experts(model, run, rules))
    if scheme.name == "nvfp4" and model.experts:
        layers += SHUFFLED * 2.0 * run.tokens * model.experts.chosen * model.experts.hidden_of(model.hidden)
    if rules.reductions_kept and run.tp > 1:
        layers += 2 * model.layers * 2.0 * run.tokens * model.hidden
    sampling = _sampler(model, gpu, rules, scheme, run) if run.last else 0.0
    peak = max(layers, sampling) + kept + seen
    images = _tower(model.vision, rules, run) if model.vision and run.first and not rules.first else 0.0
    handed = 2 * _element(scheme) * run.tokens * model.hidden if run.pp > 1 and not rules.first else 0.0
    return int(max(peak, images + seen) + handed) + fixed_bytes(gpu, run)


def warm_up_bytes(model: Architecture, gpu: Gpu, rules: Rules, scheme: Scheme, run: Run) -> int:
    """What the sampler takes when it is tried for the largest batch after the pool is taken and graphs are captured.
    0 for the first core, versions that do not try it, and stages that do not sample."""
    if rules.first or rules.minor < 8 or not run.last:
        return 0
    return int(_sampler(model, gpu, rules, scheme, msgspec.structs.replace(run, tokens=min(run.seqs, run.tokens))))


def fixed_bytes(gpu: Gpu, run: Run) -> int:
    """Workspaces and small buffers."""
    return CUBLAS_BYTES[gpu.generation in ("hopper", "blackwell")] + SEQUENCE_BYTES * run.seqs


def _sampler(model: Architecture, gpu: Gpu, rules: Rules, scheme: Scheme, run: Run) -> float:
    """Rows of logits, and the hidden states that they come from."""
    rows, vocab = min(run.seqs, run.tokens), 4.0 * model.vocab
    element = _element(scheme)
    hidden = element * run.tokens * model.hidden
    kind = rules.sampler(model, scheme.bits < 16)
    if kind == "none":
        return element * run.tokens * model.vocab + hidden
    tensors = {"sort": SORTED_ROWS, "plain": PLAIN_ROWS}.get(kind, PIVOT_ROWS)
    scratch = min(gpu.multiprocessors, rows) * vocab if kind == "pivot" else 0.0  # a row per running program
    return (tensors + element / 4 - 0.5) * rows * vocab + scratch + hidden


def _layers(model: Architecture, rules: Rules, scheme: Scheme, run: Run) -> float:
    """The widest MLP: its input projections and their product, beside what is as wide as the hidden state."""
    widest = 0.0
    if "d" in model.mlp_letters:
        widest = model.intermediate / run.tp
    if model.experts and model.experts.shared:
        widest = max(widest, model.experts.shared / run.tp)
    inside = (3 if model.gated else 2) * widest
    if model.latent:  # keys and values of a prompt are unpacked for all heads
        heads = model.heads / run.tp
        inside = max(inside, heads * (2 * (model.latent.nope + model.latent.rope) + model.latent.value))
    beside = BESIDE_EAGER if rules.first or run.eager else BESIDE
    return _element(scheme) * run.tokens * (inside + beside * model.hidden)


def _element(scheme: Scheme) -> float:
    """Bytes of an element of activations: 16 bits, but for models run in float32."""
    return 4.0 if scheme.name == "float32" else 2.0


def _experts(model: Architecture, run: Run, rules: Rules) -> float:
    """Two buffers with a row per token and chosen expert: one for the up- and down-projection, one for what is between
    (fused_moe's intermediate caches, later its workspaces, where either is wide enough for the hidden state)."""
    if not model.experts:
        return 0.0
    inside = -(-model.experts.intermediate // run.tp)
    hidden = model.experts.hidden_of(model.hidden)
    up = (2 if model.gated else 1) * inside
    between = max(inside, hidden) if rules.workspace_kept else inside
    return 2.0 * run.tokens * model.experts.chosen * (between + max(up, hidden))


def _kept_images(vision: Vision, hidden: int, rules: Rules, run: Run) -> float:
    """Results for as many image tokens as one batch may have, and the pixels (16 bits, 3 colours) they came from."""
    tokens = _seen_tokens(vision, rules, run)
    rows = max(tokens, rules.video_rows) if vision.stacks > 1 else tokens
    return 2.0 * rows * hidden * vision.stacks + 6.0 * tokens * vision.token_pixels


def _tower(vision: Vision, rules: Rules, run: Run) -> float:
    """The tower's own peak: as many patches, in attention (4 widths) and its MLP (2 inner widths). All but its input
    and output are split over GPUs, unless every one has the whole tower."""
    patches = _seen_tokens(vision, rules, run) * vision.token_patches
    shared = 1 if vision.copied and rules.mistral_format else run.tp
    inside = 2 * vision.width + 2 * vision.inner
    if vision.stacks > 1:
        inside = max(inside, (rules.tower_widths - 2) * vision.width)
    return 2.0 * patches * (2 * vision.width + inside / shared)


def _seen_tokens(vision: Vision, rules: Rules, run: Run) -> int:
    """Tokens of the images, or of the one video where that is larger, that are looked at while profiling."""
    if vision.stacks > 1 and rules.video_tokens:
        return max(run.tokens, rules.video_tokens)
    longest = vision.tokens
    if rules.videos_profiled and vision.tokens:
        longest *= max(1, min(vision.videos, run.length // vision.tokens))
    return max(run.tokens, longest)
