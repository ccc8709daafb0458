"""The true engines of a scenario: models from the catalogue, bent away from what the brain is told of them."""

import random

import msgspec

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.perfmodel import catalogue, memory
from headway.perfmodel.engine import EngineConfig
from headway.perfmodel.jump import Stepping
from headway.perfmodel.memory_limits import whole_parts
from headway.perfmodel.steptime import Batch, StepModel
from headway.sim.scenario import MODEL, PoolSpec, Scenario


class Bent:
    """A step model whose decoding and prefilling are slower or faster by a factor each."""

    def __init__(self, model: Stepping, decode: float, prefill: float) -> None:
        self._model = model
        self._decode = decode
        self._prefill = prefill

    def step_s(self, batch: Batch) -> float:
        """Seconds of one step over this batch."""
        whole = self._model.step_s(batch)
        if not batch.prefill_tokens:
            return whole * self._decode
        decoding = 0.0
        if batch.decode_tokens:
            decoding = self._model.step_s(Batch(batch.decode_tokens, batch.context_tokens, 0, 0.0, batch.decode_tokens))
        return decoding * self._decode + (whole - decoding) * self._prefill


class Ground(msgspec.Struct, frozen=True):
    """One replica as it is: how the brain is told of it, its sizes, its speed."""

    spec: ReplicaSpec
    config: EngineConfig
    model: Stepping
    pool: PoolSpec


def precision(pool: PoolSpec) -> str:
    """The weight format of its replicas; of `auto`, what the model is published in. Raises catalogue.UnknownName."""
    return catalogue.precision(pool.dtype, catalogue.model(pool.model))


def step_model(pool: PoolSpec) -> StepModel:
    """The model a pool is believed to follow. Raises catalogue.UnknownName."""
    return StepModel(
        catalogue.model(pool.model),
        catalogue.gpu(pool.gpu),
        precision=precision(pool),
        tp=pool.tensor_parallel_size,
    )


class DoesNotFit(ValueError):
    """The model leaves no KV cache on this GPU; the text says what to change."""


def engine_config(pool: PoolSpec) -> EngineConfig:
    """Sizes of a pool's engines. Raises DoesNotFit, catalogue.UnknownName, ValueError for uneven splits."""
    gpu, model = catalogue.gpu(pool.gpu), catalogue.model(pool.model)
    if uneven := whole_parts(model, pool.tensor_parallel_size):
        raise ValueError(uneven)
    batched = pool.max_num_batched_tokens or (8192 if gpu.roomy else 2048)
    tokens = pool.kv_tokens
    if not tokens:
        plan = memory.plan(
            model,
            gpu,
            precision=precision(pool),
            tp=pool.tensor_parallel_size,
            max_num_seqs=pool.max_num_seqs,
            max_num_batched_tokens=batched,
            max_model_len=pool.max_model_len,
        )
        if not plan.kv_tokens:
            raise DoesNotFit(
                f"{pool.model} in {pool.dtype} leaves no KV cache on {pool.tensor_parallel_size} x {pool.gpu}: "
                "use more GPUs (tensor_parallel_size), a smaller dtype, or state kv_tokens"
            )
        tokens = plan.kv_tokens
    longest = pool.max_model_len or model.max_position
    return EngineConfig(tokens // 16, 16, pool.max_num_seqs, batched, min(longest, tokens), pool.enable_prefix_caching)


def grounds(scenario: Scenario, seed: int) -> list[Ground]:
    """Every replica of a scenario. The same seed bends the same replicas the same way, whatever the policy."""
    found: list[Ground] = []
    chance = random.Random(f"truth {seed}")
    bend = scenario.truth.perturb
    for pool in scenario.pools:
        believed, config = step_model(pool), engine_config(pool)
        for _ in range(pool.count):
            decode, prefill = 1.0 + bend * chance.uniform(-1, 1), 1.0 + bend * chance.uniform(-1, 1)
            model: Stepping = Bent(believed, decode, prefill) if bend else believed
            found.append(Ground(_spec(len(found), pool, config, believed), config, model, pool))
    return found


def _spec(number: int, pool: PoolSpec, config: EngineConfig, believed: StepModel) -> ReplicaSpec:
    """What discovery would say: sizes as the engine reports them, speeds as the roofline has them."""
    return ReplicaSpec(
        ReplicaId(f"r{number:03d}"),
        f"http://r{number:03d}",
        engine="vllm",
        model=pool.model,
        gpu=pool.gpu,
        gpu_count=pool.tensor_parallel_size,
        precision=precision(pool),
        serves={MODEL: pool.model},
        max_model_tokens=config.max_model_len,
        kv_capacity_tokens=config.kv_blocks * config.block_size,
        features=believed.features(),
    )
