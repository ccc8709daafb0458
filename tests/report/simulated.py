"""Made-up results of a simulation, smooth and repeatable: what reports are tested with."""

import numpy as np

from headway.workload.results import Run, RunDetail, RunResult

SKILL = {"headroom": 1.0, "lmetric": 0.75, "least_load": 0.6, "least_tokens": 0.45, "round_robin": 0.3}
WINDOW_S = 1200.0


def run(policy: str, load: float, seed: int, replicas: int = 8, detail: bool = True) -> Run:
    """One run; better policies lose less as load grows, and a seed shifts all policies alike."""
    chance = np.random.default_rng([seed, round(load * 100)])
    luck = float(chance.normal(0, 0.03))
    own = float(np.random.default_rng([seed, sum(policy.encode())]).normal(0, 0.01))
    skill = SKILL.get(policy, 0.5)
    requests = round(9000 * load)
    pain = max(0.0, load - 0.35 - 0.45 * skill) * 1.3
    share = float(np.clip(0.985 - pain + luck + own, 0.02, 0.99))
    good = round(requests * share)
    late = round((requests - good) * 0.9)
    slow = 1 + 6 * pain
    result = RunResult(
        policy=policy,
        load=load,
        seed=seed,
        requests=requests,
        good=good,
        late=late,
        shed=requests - good - late,
        failed=0,
        window_s=WINDOW_S,
        goodput_rps=good / WINDOW_S,
        ttft_p50_s=0.18 * slow,
        ttft_p99_s=1.1 * slow**2,
        tpot_p50_s=0.021 * slow**0.5,
        tpot_p99_s=0.05 * slow**0.7,
        e2e_p50_s=4.0 * slow,
        e2e_p99_s=21.0 * slow,
        queue_p99_s=0.6 * slow * skill,
        longest_wait_s=4.0 * slow * skill,
        preempted=round(requests * 0.2 * pain * (1.01 - skill)),
        preemptions=round(requests * 0.3 * pain * (1.01 - skill)),
        recomputed_tokens=round(requests * 300 * pain * (1.01 - skill)),
        kv_usage_std=0.04 + 0.1 * (1 - skill),
        prefix_hit_rate=0.3 + 0.2 * skill,
        fairness=0.97 + 0.02 * skill,
        gpu_hours_per_1k_good=8 * WINDOW_S / 3600 / max(1, good) * 1000,
        decision_us=4.0 + 30.0 * skill,
    )
    return Run(result, _detail(result, skill, replicas) if detail else None)


def _detail(result: RunResult, skill: float, replicas: int) -> RunDetail:
    times = np.linspace(0, WINDOW_S, 300)
    chance = np.random.default_rng([result.seed, replicas])
    phases = chance.uniform(0, 6, replicas)
    level = 0.55 + 0.35 * result.load + 0.15 * np.sin(times / 170)
    kv = [
        np.clip(level + (0.35 - 0.3 * skill) * np.sin(times / 60 + p) + chance.normal(0, 0.02, len(times)), 0, 1)
        for p in phases
    ]
    share = np.linspace(0.003, 0.997, 201)
    q = np.log(share / (1 - share)) / 1.7  # nearly normal
    return RunDetail(
        replicas=tuple(f"r{n}" for n in range(replicas)),
        times=tuple(times.tolist()),
        kv_usage=tuple(tuple(np.round(row, 3).tolist()) for row in kv),
        running=tuple(tuple((row * 60).astype(int).tolist()) for row in kv),
        waiting=tuple(tuple((np.maximum(0, row - 0.9) * 90).astype(int).tolist()) for row in kv),
        queued=tuple((skill * 20 * np.maximum(0, level - 0.8)).astype(int).tolist()),
        preemptions=tuple((np.linspace(0, 1, len(times)) ** 2 * result.preemptions).astype(int).tolist()),
        ttft_s=tuple((result.ttft_p50_s * np.exp(q * 0.75)).tolist()),
        tpot_s=tuple((result.tpot_p50_s * np.exp(q * 0.32)).tolist()),
        held_s=0.4 * skill,
        waiting_s=0.9 * (1.1 - skill),
        prefill_s=0.25,
        decode_s=4.1,
    )


def sweep(
    policies: tuple[str, ...] = tuple(SKILL), loads: tuple[float, ...] = (0.5, 0.7, 0.85, 1.0), seeds: int = 5
) -> list[Run]:
    """Many runs; curves for the first seed only."""
    return [run(p, load, seed, detail=seed == 0) for load in loads for p in policies for seed in range(seeds)]
