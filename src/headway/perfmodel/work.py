"""What one GPU has to read and to multiply for a model, counted, not timed: bytes, FLOP, kernels.

Counts follow from the shapes in `architectures`, the formats in `quantisation` and the layout of tensor parallelism.
How fast a card does it is in `steptime`.
"""

import msgspec

from headway.perfmodel.architectures import Architecture, Part
from headway.perfmodel.quantisation import Scheme

WINDOW_LIMIT = 1024
"""Tokens. Smaller windows are read in full at every step; larger ones (Gemma 2, Mistral 7B: 4096) are taken as no
window, since most sequences are shorter, and a step must stay affine in the context."""

SPARSE_TOKENS = 2048
"""Tokens that sparse attention (DeepSeek-V3.2) chooses per query."""

FLOAT_ROUTERS = ("minimax_m2", "glm4_moe")
"""Families whose routers vLLM multiplies in 32 bits, on every card of a group, and not on the tensor cores."""


class Work(msgspec.Struct, frozen=True):
    """Per GPU. `narrow_*`: matrices in the quantised format, `wide_*`: those in 16 bits; flops per token.

    `kernels`: matrix multiplications of a step, experts and head aside. `expert_bytes`: of one expert of one layer,
    `expert_flops`: per token and layer. `moved_bytes`: activations read and written by what is no multiplication, per
    token. `kv_bytes`: per token of context that is decoded over; `sequence_bytes`: per decoding sequence (windows,
    states). `pair_flops`: per query and key in prefill; `window_flops`: per prefilled token, for layers with a window.
    `router_flops`: of routers in 32 bits, per token.
    """

    layers: int
    hidden: int
    narrow_bytes: float
    narrow_flops: float
    wide_bytes: float
    wide_flops: float
    kernels: int
    expert_layers: int
    experts: int
    chosen: int
    expert_bytes: float
    expert_flops: float
    moved_bytes: float
    kv_bytes: float
    sequence_bytes: float
    pair_flops: float
    window_flops: float
    head_bytes: float
    head_flops: float
    router_flops: float = 0.0

    @property
    def weights_bytes(self) -> float:
        """All weights that can be read in a step."""
        return self.narrow_bytes + self.wide_bytes + self.expert_layers * self.experts * self.expert_bytes


def count(model: Architecture, scheme: Scheme, tp: int, kv_width: float) -> Work:
    """Count for one of `tp` GPUs; `kv_width`: bytes per element of the KV cache."""
    narrow = wide = 0.0
    kernels = 0
    for part, layers in model.layer_parts():
        if part.expert:
            continue
        kernels += layers
        size = layers * _held(part, model, tp)
        if part.wide or scheme.experts:
            wide += size
        else:
            narrow += size
    moe = model.experts
    matrices = 3 if model.gated else 2
    one = matrices * moe.hidden_of(model.hidden) * moe.intermediate / tp if moe else 0.0
    full, windowed = _attention(model, tp)
    head = model.vocab * model.hidden / tp
    expert_layers = model.mlp_letters.count("m")
    routed = moe.count * expert_layers if moe and model.family in FLOAT_ROUTERS else 0
    return Work(
        layers=model.layers,
        hidden=model.hidden,
        narrow_bytes=narrow * scheme.bytes_per_parameter,
        narrow_flops=2 * narrow,
        wide_bytes=2 * wide,
        wide_flops=2 * wide,
        kernels=kernels,
        expert_layers=expert_layers,
        experts=moe.count if moe else 0,
        chosen=moe.chosen if moe else 0,
        expert_bytes=one * scheme.bytes_per_parameter,
        expert_flops=2 * one * moe.chosen if moe else 0.0,
        moved_bytes=_moved(model, tp),
        kv_bytes=full * kv_width,
        sequence_bytes=windowed * kv_width + _state_bytes(model, tp),
        pair_flops=_pair_flops(model, tp, "f"),
        window_flops=_pair_flops(model, tp, "w") * model.window,
        head_bytes=2 * head,
        head_flops=2 * head,
        router_flops=2.0 * routed * model.hidden,
    )


def _held(part: Part, model: Architecture, tp: int) -> float:
    return part.split / tp + part.kv / min(tp, model.kv_heads) + part.copied


def _far(model: Architecture, letter: str) -> bool:
    """Whether a layer's attention reaches back as far as sequences do."""
    return letter == "f" or (letter == "w" and model.window > WINDOW_LIMIT)


def _attention(model: Architecture, tp: int) -> tuple[float, float]:
    """Cache elements read per token of context, and per sequence whatever its context."""
    full = windowed = 0.0
    for letter in model.mixer_letters:
        if letter not in "fw":
            continue
        heads = model.heads_of(letter)[0]
        row = model.latent.width if model.latent else max(1.0, heads / tp) * model.row_of(letter)
        if model.latent and model.latent.index_dim:
            full += model.latent.index_dim / 2  # one byte an element
            windowed += SPARSE_TOKENS * row
        elif _far(model, letter):
            full += row
        else:
            windowed += model.window * row
    return full, windowed


def _state_bytes(model: Architecture, tp: int) -> float:
    """A fixed state is read and written at every step."""
    if not model.linear:
        return 0.0
    one = 2 * model.linear.conv + (model.linear.state_bytes or 2) * model.linear.state
    return 2 * model.linear_layers * one / tp


def _pair_flops(model: Architecture, tp: int, kind: str) -> float:
    """FLOP per query and key over the layers of a kind: "f" those without an effective window, "w" those with one."""
    total = 0.0
    for letter in model.mixer_letters:
        if letter in "fw" and _far(model, letter) == (kind == "f"):
            latent = model.latent
            row = latent.nope + latent.rope + latent.value if latent else model.row_of(letter)
            total += 2 * model.queries_of(letter) * row / tp
    return total


def _moved(model: Architecture, tp: int) -> float:
    """Norms with their residuals (8 rows of the hidden size a layer), rotary embedding, gating of dense MLPs."""
    queries = (model.heads + 2 * model.kv_heads) * model.head_dim / tp
    dense = 3 * model.intermediate / tp * model.mlp_letters.count("d")
    return 2 * (model.layers * (8 * model.hidden + 2 * queries) + dense)
