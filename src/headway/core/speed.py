"""How fast each replica runs: decode step time and prefill rate, learned on line."""

import msgspec

from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.core.view import Speed


class SpeedConfig(msgspec.Struct, frozen=True):
    """Priors and constants of the speed model."""

    step_base_s: float = 0.010
    step_per_request_s: float = 0.0001
    step_per_token_s: float = 2e-8
    prefill_tokens_per_s: float = 8000.0


class SpeedModel:
    """Speeds of all replicas, shrunk towards the mean of their kind."""

    def __init__(self, config: SpeedConfig | None = None) -> None:
        self._config = config or SpeedConfig()

    def speed(self, spec: ReplicaSpec) -> Speed:
        """What is believed of a replica now. The same object until something changes."""
        c = self._config
        return Speed(c.step_base_s, c.step_per_request_s, c.step_per_token_s, c.prefill_tokens_per_s)

    def observe_step(self, spec: ReplicaSpec, running: float, context_tokens: float, seconds: float) -> None:
        """One decode step (or the mean of several) took `seconds` with this batch."""

    def observe_prefill(self, spec: ReplicaSpec, tokens: float, seconds: float) -> None:
        """`tokens` uncached prompt tokens were prefilled in `seconds`."""

    def forget(self, replica: ReplicaId) -> None:
        """The replica is gone."""
