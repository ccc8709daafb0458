"""Settings of one emulated engine, named as vLLM's flags are, and what they make of the catalogue.

A value of 0 means what vLLM would choose for the card. Unknown models and GPUs are refused with near matches; a model
that does not fit into its cards is refused with the sum.
"""

import msgspec

from headway.perfmodel import catalogue, memory
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.engine import Engine, EngineConfig
from headway.perfmodel.gpus import GIB, Gpu
from headway.perfmodel.memory import MemoryPlan
from headway.perfmodel.steptime import StepModel

ROOMY = (1024, 8192)
ORDINARY = (256, 2048)
"""(max_num_seqs, max_num_batched_tokens) that vLLM's server chooses for large cards and for others."""


MOST = 2**31 - 1
MOST_BLOCKS = 8_000_000
"""A pool of so many blocks takes about a gigabyte here; 128 million tokens are more than any one engine holds."""

BOUNDS: dict[str, tuple[float, float]] = {
    "tensor_parallel_size": (1, 1024),
    "time_scale": (1e-3, 10_000),
    "port": (0, 65535),
    "control_port": (-1, 65535),
    "kv_tokens": (0, MOST),
    "max_num_seqs": (0, MOST),
    "max_num_batched_tokens": (0, MOST),
    "max_model_len": (0, MOST),
    "max_num_queued_reqs": (0, MOST),
    "gpu_memory_utilization": (0.01, 1),
    "block_size": (1, 1024),
    "step_noise": (0, 1),
}
"""Field -> the least and the most."""


class DoesNotFit(ValueError):
    """The model leaves no room for a KV cache on these cards; the message has the sum."""


class TooLong(ValueError):
    """The context that was asked for is longer than the model's, or than the KV pool holds."""


class EmulatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One emulated engine process. `port` and `control_port` 0: any free one; `control_port` -1: none.

    `time_scale`: virtual seconds per real second. `kv_tokens`: size of the KV pool instead of the computed one.
    `served_model_name`: what clients call the model ("" = `model` as given). `step_noise`: relative deviation of each
    step's time, drawn from `seed`. `dev_mode`: sleep, pause and cache endpoints. `ready_file`: where the ports are
    written as JSON once they listen. `exit_with_parent`: end when the process that started it is gone.
    """

    model: str = "llama-3.1-8b"
    gpu: str = "h100-80gb"
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    quantization: str = ""
    kv_cache_dtype: str = "auto"
    time_scale: float = 1.0
    host: str = "127.0.0.1"
    port: int = 8000
    control_port: int = 0
    kv_tokens: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    max_model_len: int = 0
    enable_prefix_caching: bool = True
    served_model_name: str = ""
    gpu_memory_utilization: float = 0.92
    block_size: int = 16
    max_num_queued_reqs: int = 0
    seed: int = 0
    step_noise: float = 0.0
    api_key: str = ""
    dev_mode: bool = True
    enable_server_load_tracking: bool = False
    enable_prompt_tokens_details: bool = False
    ready_file: str = ""
    exit_with_parent: bool = False

    @property
    def name(self) -> str:
        """The model's name in answers and labels."""
        return self.served_model_name or self.model


class Machine(msgspec.Struct, frozen=True):
    """What the settings amount to."""

    model: Architecture
    gpu: Gpu
    precision: str
    plan: MemoryPlan
    sizes: EngineConfig
    steps: StepModel

    def engine(self) -> Engine:
        """A fresh engine of these sizes."""
        return Engine(self.sizes, self.steps)


def machine(config: EmulatorConfig) -> Machine:
    """Look everything up, do the sums. Raises UnknownName, DoesNotFit, TooLong, or ValueError for impossible sizes."""
    _check(config)
    model, gpu = catalogue.model(config.model), catalogue.gpu(config.gpu)
    precision = catalogue.precision(config.quantization or config.dtype, model)
    seqs, batched = ROOMY if gpu.roomy else ORDINARY
    seqs, batched = config.max_num_seqs or seqs, config.max_num_batched_tokens or batched
    plan = memory.plan(
        model,
        gpu,
        precision=precision,
        tp=config.tensor_parallel_size,
        utilization=config.gpu_memory_utilization,
        kv_dtype=config.kv_cache_dtype,
        block_size=config.block_size,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        max_model_len=config.max_model_len,
    )
    blocks = (config.kv_tokens or plan.kv_tokens) // config.block_size
    if not blocks:
        raise DoesNotFit(_shortage(config, plan))
    if blocks > MOST_BLOCKS:
        raise ValueError(f"{blocks:,} KV blocks are more than {MOST_BLOCKS:,}: lower --kv-tokens or raise --block-size")
    length = _length(config, model, blocks * config.block_size)
    sizes = EngineConfig(blocks, config.block_size, seqs, batched, length, config.enable_prefix_caching)
    steps = StepModel(model, gpu, precision=precision, tp=config.tensor_parallel_size, kv_dtype=config.kv_cache_dtype)
    return Machine(model, gpu, precision, plan, sizes, steps)


def _check(config: EmulatorConfig) -> None:
    for field, (least, most) in BOUNDS.items():
        value = getattr(config, field)
        if not least <= value <= most:  # NaN neither
            raise ValueError(f"--{field.replace('_', '-')} {value} is not between {least:g} and {most:,}")
    if 0 < config.kv_tokens < config.block_size:
        raise ValueError(f"--kv-tokens {config.kv_tokens} is less than one block of {config.block_size} (--block-size)")


def _length(config: EmulatorConfig, model: Architecture, pool: int) -> int:
    """The longest context: what was asked for, which vLLM refuses to cut, else as much of the model's as fits."""
    asked, own = config.max_model_len, model.max_position
    if asked > own:
        raise TooLong(f"--max-model-len {asked} is more than the {own:,} tokens {config.model} was made for")
    if asked > pool:
        raise TooLong(f"--max-model-len {asked} is more than the KV pool of {pool:,} tokens holds of one request")
    return asked or min(own, pool)


def _shortage(config: EmulatorConfig, plan: MemoryPlan) -> str:
    gib = {
        "asked for": plan.requested_bytes,
        "weights": plan.weights_bytes,
        "activations": plan.activation_bytes,
        "outside the allocator": plan.non_torch_bytes,
    }
    parts = ", ".join(f"{what} {size / GIB:.2f} GiB" for what, size in gib.items())
    return f"{config.model} does not fit on {config.tensor_parallel_size} x {config.gpu}: per card {parts}"
