"""A simulated scenario in sentences, for the terminal and the report."""

from collections.abc import Iterator

from headway.compose.simulation import Simulation, misfits
from headway.report.figures import count, rate, seconds, share
from headway.report.tables import outline_line
from headway.sim.scenario import Fault, PoolSpec
from headway.sim.sweep import Sweep, arrivals
from headway.sim.truth import engine_config
from headway.workload.outline import outline


def fleet_words(asked: Simulation) -> str:
    """4 × llama-3.1-8b on h100-80gb + 4 × ..."""
    return " + ".join(_pool(pool) for pool in asked.pools)


def scenario_words(asked: Simulation, made: Sweep) -> Iterator[tuple[str, str]]:
    """(word, sentence) pairs: fleet, workload, how load came about, truth, faults. No rich markup in them."""
    sizes = {f"{count(engine_config(pool).kv_blocks * 16)} KV tokens" for pool in asked.pools}
    yield "fleet", f"{fleet_words(asked)}; {', '.join(sorted(sizes))} per replica"
    yield "workload", workload_words(made)
    if lost := misfits(made):
        yield "lost", f"{share(lost)} of the requests have prompts that no replica has room for: they fail everywhere"
    yield "load", f"1.0 is {rate(made.capacity_rps)}, what the replicas work off with a backlog of this workload"
    for index, load in enumerate(made.loads):
        yield f"load {load:g}", f"{arrivals(made, index, 0).how[-1]} (seed 0)"
    yield "truth", _truth(asked)
    for fault in asked.faults:
        yield "fault", _fault(fault)


def workload_words(made: Sweep) -> str:
    """Name and shape of the workload."""
    return f"{made.workload.name}: {outline_line(outline(made.workload.requests))}"


def _pool(pool: PoolSpec) -> str:
    gpus = f"{pool.tensor_parallel_size} × " if pool.tensor_parallel_size > 1 else ""
    return f"{pool.count} × {pool.model} on {gpus}{pool.gpu}"


def _truth(asked: Simulation) -> str:
    truth = asked.truth
    bent = f"speeds up to ±{share(truth.perturb)} off what is believed" if truth.perturb else "speeds as believed"
    return f"{bent}, steps jitter by {share(truth.step_jitter)}, load reports every {seconds(truth.scrape_interval_s)}"


def _fault(fault: Fault) -> str:
    words = {"crash": "crashes", "slow": f"is {fault.factor:g} times slower", "silent": "reports nothing"}
    return f"replica {fault.replica} {words[fault.kind]} at {seconds(fault.at_s)} for {seconds(fault.duration_s)}"
