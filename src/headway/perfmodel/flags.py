"""How an engine was started, as far as the time of its steps feels it. The names are ours, the switches vLLM's."""

import msgspec


class Flags(msgspec.Struct, frozen=True):
    """What vLLM starts with when told nothing, from 0.14 on.

    `graph_tokens` > 0: largest batch with a CUDA graph (--max-cudagraph-capture-size). `expert_parallel`: cards of a
    tensor-parallel group hold whole experts (--enable-expert-parallel). `asynchronous`: a step is planned while the one
    before runs (--async-scheduling). `tensor_routers`: routers in 32 bits may use the tensor cores
    (VLLM_FLOAT32_MATMUL_PRECISION=high).
    """

    graph_tokens: int = 0
    expert_parallel: bool = False
    asynchronous: bool = True
    tensor_routers: bool = False
