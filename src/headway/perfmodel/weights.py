"""Bytes of weights on each GPU: tensors of the architecture, shared over tensor- and pipeline-parallel ranks.

Tensors are counted as an engine holds them: fused, split evenly (KV heads copied where they cannot be split), the
vocabulary padded to 64, in the width of the quantisation or 16 bits, and each rounded as PyTorch's allocator rounds.
"""

from collections.abc import Iterator

import msgspec

from headway.perfmodel.architectures import LATENT_UP, Architecture, Part
from headway.perfmodel.quantisation import Scheme
from headway.perfmodel.versions import LATEST, Rules, rules

MIB = 1 << 20
NEWEST = rules(LATEST)
VOCABULARY_PADDING = 64
"""vLLM pads embeddings and head to a multiple of this (DEFAULT_VOCAB_PADDING_SIZE)."""

EXPERT_TILE, EXPERT_SLICE = 256, 64
"""MXFP4 kernels lay experts out in tiles of 256 along the hidden size (gpt-oss's 2880 become 3072), and pad a GPU's
part of their inner width to 64."""


class Stage(msgspec.Struct, frozen=True):
    """One pipeline stage: layers `start` (included) to `end` (excluded) of `of` stages, `rank` among them."""

    start: int
    end: int
    rank: int = 0
    of: int = 1

    @property
    def first(self) -> bool:
        """Whether it holds the input embedding."""
        return self.rank == 0

    @property
    def last(self) -> bool:
        """Whether it holds the head and samples."""
        return self.rank == self.of - 1


def stages(layers: int, pp: int) -> list[Stage]:
    """Even cuts; what is left over goes to the stages before the last one, from the back (vLLM's get_pp_indices)."""
    counts = [layers // pp] * pp
    for extra in range(layers % pp):
        counts[-2 - extra] += 1
    starts = [sum(counts[:rank]) for rank in range(pp)]
    return [
        Stage(start, start + count, rank, pp) for rank, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]


def weights_bytes(
    model: Architecture, scheme: Scheme, tp: int = 1, stage: Stage | None = None, version: Rules = NEWEST
) -> int:
    """Bytes on one GPU of a stage (default: the only one)."""
    stage = stage or Stage(0, model.layers)
    copied = tp - 1 if version.mistral_format and stage.first and model.vision and model.vision.copied else 0
    tower = int(copied / tp * model.vision_parameters * _wide(scheme))
    return tower + sum(allocated(size) * count for size, count in _tensors(model, scheme, tp, stage))


def allocated(size: float) -> int:
    """What PyTorch's caching allocator books for a tensor: tensors of 10 MiB and more get a segment of whole 2 MiB
    units, and a rest of up to 1 MiB is not split off (CUDACachingAllocator, kMinLargeAlloc, kRoundLarge, kSmallSize).
    """
    whole = -(-int(size) // 512) * 512
    if whole < 10 * MIB:
        return whole
    segment = -(-whole // (2 * MIB)) * 2 * MIB
    return segment if segment - whole <= MIB else whole


def _tensors(model: Architecture, scheme: Scheme, tp: int, stage: Stage) -> Iterator[tuple[float, int]]:
    """(bytes on one GPU, how many of them) of every kind of tensor of a stage."""
    for part, layers in model.layer_parts(stage.start, stage.end):
        yield _held(part, tp, model.kv_heads) * _width(part, scheme, model, tp), layers
        if part.name == LATENT_UP and _width(part, scheme, model, tp) < 2:
            yield _held(part, tp, model.kv_heads) * 2.0, layers  # unpacked once for the absorbed products
    yield 4.0 * model.hidden, stage.end - stage.start  # two norms a layer
    table = -(-model.vocab // VOCABULARY_PADDING) * VOCABULARY_PADDING / tp * model.hidden * _wide(scheme)
    yield table, int(stage.first) + int(stage.last and not (model.tied and stage.first))
    yield model.rope_elements * 2.0, 1
    if stage.first:
        yield (model.vision_parameters + model.other_parameters) * _wide(scheme) / tp, 1


def _held(part: Part, tp: int, kv_heads: int) -> float:
    return part.split / tp + part.kv * (1 + part.twice) / min(tp, kv_heads) + part.copied


def _wide(scheme: Scheme) -> float:
    """Bytes of what no quantisation touches."""
    return max(2.0, scheme.bits / 8)


def _width(part: Part, scheme: Scheme, model: Architecture, tp: int) -> float:
    """Bytes per parameter, padding included."""
    if part.wide or (scheme.experts and not part.expert) or part.name.startswith(model.kept):
        return _wide(scheme)
    if scheme.name != "mxfp4" or not model.experts:
        return scheme.bytes_per_parameter
    inner = model.experts.intermediate / tp
    return scheme.bytes_per_parameter * _padding(model.hidden, EXPERT_TILE) * _padding(inner, EXPERT_SLICE)


def _padding(size: float, unit: int) -> float:
    return -(-size // unit) * unit / size
