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

    base_s: float = 0.017
    serial_s: float = 1e-3
    per_token_s: float = 1.6e-6

    def busy_s(self, prompt_tokens: int) -> float:
        """How long a request keeps the server's process."""
        return self.serial_s + self.per_token_s * prompt_tokens

    def delay_s(self, prompt_tokens: int) -> float:
        """What the TTFT of a request that comes alone has beyond queueing and steps in the engine."""
        return self.base_s + self.busy_s(prompt_tokens)


ENGINE_CORE = ApiCost(0.0, 0.0, 0.0)
"""For runs whose times were taken inside the engine's process: no server in between."""
