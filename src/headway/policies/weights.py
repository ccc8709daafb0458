"""The constants of the default policy: apart from it, because `make fast` compiles the policy, but never a Struct."""

import msgspec


class HeadroomConfig(msgspec.Struct, frozen=True):
    """Weights, and the costs of things (s). The SLOs only set the scale of waiting that a warm prefix may cost."""

    ttft_weight: float = 1.0
    decode_weight: float = 0.3
    stall_weight: float = 1.0  # everybody who decodes sits through a prefill
    wait_weight: float = 3.0  # seconds of pace: they also leave replicas idle that others could use
    tolerance: float = 0.05
    exact: int = 16  # replicas whose `mem` is worked out, at most
    reserve: float = 0.01  # share of the KV pool that engines keep back
    requeue_s: float = 1.0  # a preempted request waits to be scheduled again
    lost_slo_s: float = 20.0  # a preemption stalls the replica for long enough to lose its victims' SLOs
    doubt: float = 0.25  # deviation of the prefill sent since the last sample, as a share of it
    sticky_hit: float = 0.8  # share of the prompt cached from which a request is drawn to its warm replicas
    sticky_tokens: int = 1024  # smaller hits are not worth a queue
    sticky_slos: float = 2.0  # TTFT SLOs that the best warm replica may be behind the best cold one
    sticky_patience: float = 4.0  # prefill times saved that it may cost more in all
    ttft_slo_s: float = 1.0
    ttft_slo_per_token_s: float = 0.00025
