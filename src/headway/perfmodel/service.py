"""What surrounds the steps of an engine: its HTTP server, the noise of its steps, and how long it takes to sleep, wake
and start. Values for simulations; nothing here waits or draws.

Every figure says where it is from. `steptime` has the steps themselves.
"""

import msgspec


class ApiCost(msgspec.Struct, frozen=True):
    """Seconds around the scheduler: from a request's arrival at the server to it, and from its token to the client.

    `base_s`: HTTP, the hop to the engine's process and back, detokenisation. `serial_s` and `per_token_s`: validating
    and tokenising, which the server's one process does for one request after another: a burst of requests queues there.
    All fitted to the TTFT of measured runs (benchmarks/perfmodel_calibrate.py).
    """

    base_s: float = 7.5e-3
    serial_s: float = 4.7e-3
    per_token_s: float = 1.6e-6

    def busy_s(self, prompt_tokens: int) -> float:
        """How long a request keeps the server's process."""
        return self.serial_s + self.per_token_s * prompt_tokens

    def delay_s(self, prompt_tokens: int) -> float:
        """What the TTFT of a request that comes alone has beyond queueing and steps in the engine."""
        return self.base_s + self.busy_s(prompt_tokens)


ENGINE_CORE = ApiCost(0.0, 0.0, 0.0)
"""For runs whose times were taken inside the engine's process: no server in between."""


class Jitter(msgspec.Struct, frozen=True):
    """Noise of step times, as a factor with mean 1.

    `relative`: standard deviation from step to step. Kernels repeat within 0.5 to 0.8 % (median over the shapes of
    Vidur's H100, A100 and A30 tables), 2 to 7 % at the ninetieth percentile; whole decode steps within 0.4 %, 1.3 % at
    the ninetieth (Splitwise's repeats). Pauses of the host (garbage collection, other tenants) are in none of them.
    """

    relative: float = 0.01


class Lifecycle(msgspec.Struct, frozen=True):
    """Seconds to sleep, wake and start, from the bytes of weights per GPU. Straight lines through few measurements.

    Sleep and wake: Qwen3-0.6B and Qwen3-8B on an A100 (vllm-project/vllm pull request 48337, 2026-07-15). Level 1
    copies weights into host memory that is pinned on the way (slow) and back (PCIe 4); level 2 drops them and reads
    files again.
    Start: logs of vLLM 0.9 to 0.22 (issues 20264 and 44881, run-ai/runai-model-streamer issue 67): process and imports,
    loading from a local disk, compiling (or finding the compiled graphs in a cache), capturing graphs and profiling.
    """

    sleep_base_s: float = 0.1
    pin_bytes_per_s: float = 1.5e9
    wake_base_s: float = 1.1
    host_bytes_per_s: float = 15.7e9
    reload_base_s: float = 1.4
    disk_bytes_per_s: float = 3.2e9
    start_base_s: float = 25.0
    load_bytes_per_s: float = 1.3e9
    compile_s: float = 45.0
    cached_compile_s: float = 8.0
    capture_s: float = 20.0

    def sleep_s(self, level: int, weights_bytes: float) -> float:
        """From /sleep until the memory is free."""
        return self.sleep_base_s + (weights_bytes / self.pin_bytes_per_s if level == 1 else 0.0)

    def wake_s(self, level: int, weights_bytes: float) -> float:
        """From /wake_up until the next step can begin; after level 2 with the weights read again."""
        if level == 1:
            return self.wake_base_s + weights_bytes / self.host_bytes_per_s
        return self.reload_base_s + weights_bytes / self.disk_bytes_per_s

    def start_s(self, weights_bytes: float, compiled: bool = True) -> float:
        """From the start of the process until /health says 200; `compiled`: the compilation cache is warm."""
        compiling = self.cached_compile_s if compiled else self.compile_s
        return self.start_base_s + weights_bytes / self.load_bytes_per_s + compiling + self.capture_s
