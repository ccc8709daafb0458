"""What surrounds the steps of an engine: its HTTP server, the noise of its steps, and how long it takes to sleep, wake
and start. Values for simulations; nothing here waits or draws.

Every figure says where it is from. `steptime` has the steps themselves.
"""

import msgspec


class ApiCost(msgspec.Struct, frozen=True):
    """Seconds between a request's arrival at the server and the scheduler, and from a token to the client, together.

    `base_s`: HTTP, validation, template, the hop to the engine's process and back, detokenisation of the first token.
    `per_token_s`: tokenising a prompt. Both fitted to the TTFT of measured runs (benchmarks/perfmodel_calibrate.py).
    """

    base_s: float = 0.017
    per_token_s: float = 1.6e-6

    def delay_s(self, prompt_tokens: int) -> float:
        """What a request's TTFT has beyond queueing and steps."""
        return self.base_s + self.per_token_s * prompt_tokens


ENGINE_CORE = ApiCost(0.0, 0.0)
"""For runs whose times were taken inside the engine's process: no server in between."""
