"""Small fleets and workloads for tests of the simulator."""

import numpy as np

from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.workload.request import Request, Segment, Workload

SMALL = PoolSpec(
    3, "llama-3.1-8b", "a100-80gb", kv_tokens=12_000, max_num_seqs=16, max_num_batched_tokens=1024, max_model_len=8192
)


def fleet(**changes: object) -> Scenario:
    """Three small replicas, bent by a fifth."""
    return Scenario(pools=(SMALL,), truth=Truth(perturb=0.2), **changes)  # type: ignore[arg-type]


def workload(count: int = 120, rate: float = 12.0, seed: int = 0, shared: int = 200, longest: int = 1500) -> Workload:
    """Poisson arrivals; a third of the prompts begin with one of four shared pieces."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    requests = []
    for number, at in enumerate(arrivals.tolist()):
        own = Segment(1000 + number, int(rng.integers(1, longest)))
        head = (Segment(int(rng.integers(4)), shared),) if rng.random() < 1 / 3 else ()
        requests.append(Request(at, (*head, own), int(rng.integers(1, 250))))
    return Workload("test", requests, float(arrivals[-1]) + 1 / rate)
