"""The demo's scenario, and one policy's run of it: fresh engines, fresh gateway, the same requests as every policy."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from headway.bench.local_fleet import EmulatedReplica, FleetPlan, LocalFleet, start
from headway.bench.plan import BenchPlan, BenchResult, Progress
from headway.bench.processes import Children
from headway.bench.runner import run
from headway.bench.watch import Glance, Watcher
from headway.runtime.http import client
from headway.runtime.tasks import TaskSet
from headway.workload.accounts import KINDS, Accounts
from headway.workload.chat import CHAT, DOCUMENTS, ChatSpec, generate
from headway.workload.request import Request

FLEET = FleetPlan(
    model="qwen2.5-14b",
    replicas=(
        EmulatedReplica("h100-a", "h100-80gb"),
        EmulatedReplica("h100-b", "h100-80gb"),
        EmulatedReplica("a100-a", "a100-40gb"),
        EmulatedReplica("a100-b", "a100-40gb"),
    ),
)
SCENARIO = (
    "Qwen2.5-14B on two H100 (80 GB) and two A100 (40 GB): after the weights the small cards keep a sixth of the KV "
    "memory and run at half the speed, so an even split overfills them while the large ones idle."
)
"""Nothing is staged: the KV pools are what the memory model of perfmodel leaves on these cards."""

RATE = 15.0
"""Requests/s: more than an even split can carry, well within what the fleet can."""

MAX_TOKENS = 256
"""What every client states. Real lengths are the engine's own choice: a policy is told no more than in production."""

PATIENCE_S = 14.0
"""Seconds after the last request until open answers are given up; they end sooner unless this machine is too busy."""


class DemoPlan(msgspec.Struct, frozen=True):
    """`seconds` of load per policy, in real time."""

    seconds: float = 25.0
    policies: tuple[str, ...] = ("round_robin", "headroom")
    rate: float = RATE
    seed: int = 1
    fleet: FleetPlan = FLEET


class PolicyRun(msgspec.Struct, frozen=True):
    """What came of one policy. `gateway` is how the gateway booked the requests that the client booked in `result`."""

    policy: str
    result: BenchResult
    gateway: Accounts
    worst_lag: float

    @property
    def accounted(self) -> bool:
        """Whether both books balance and agree."""
        return self.result.accounts.balanced and self.result.accounts == self.gateway


class Display:
    """What is told while a run goes on; every method may be called often. This one says nothing."""

    def stage(self, policy: str, text: str) -> None:
        """A run begins another part of its work."""

    def progress(self, progress: Progress) -> None:
        """The client's side."""

    def glance(self, glance: Glance) -> None:
        """The fleet's side."""


def workload(plan: DemoPlan) -> list[Request]:
    """Conversations and single documents, half of the sessions each; the same for every policy."""
    spec = ChatSpec(
        rate=plan.rate,
        duration_s=plan.seconds * plan.fleet.time_scale,
        shapes=(CHAT, DOCUMENTS),
        max_tokens=plan.fleet.longest - MAX_TOKENS,
    )
    return generate(spec, np.random.default_rng(plan.seed))


async def run_policy(plan: DemoPlan, policy: str, requests: Sequence[Request], display: Display) -> PolicyRun:
    """Start the fleet, put the load on it, compare the books, end every process."""
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as name:
        folder = Path(name)
        async with client() as http, Children(folder) as children:
            display.stage(policy, "starting four engines and the gateway")
            fleet = await start(plan.fleet, policy, children, folder, http)
            display.stage(policy, "load")
            watcher = Watcher(fleet, http)
            async with TaskSet() as tasks:
                tasks.spawn(watcher.run(display.glance), "demo-watch")
                result = await run(_bench_plan(plan, fleet, requests), display.progress)
            display.stage(policy, "comparing the books")
            gateway = await _settled_accounts(watcher)
            children.check()
    return PolicyRun(policy, result, gateway, watcher.worst_lag)


def _bench_plan(plan: DemoPlan, fleet: LocalFleet, requests: Sequence[Request]) -> BenchPlan:
    return BenchPlan(
        url=fleet.gateway,
        requests=requests,
        model=plan.fleet.model,
        exact_output=False,
        max_tokens=MAX_TOKENS,
        seed=plan.seed,
        duration_s=plan.seconds * plan.fleet.time_scale,
        patience_s=PATIENCE_S * plan.fleet.time_scale,
        time_scale=plan.fleet.time_scale,
    )


async def _settled_accounts(watcher: Watcher, tries: int = 40) -> Accounts:
    """The gateway's accounts once nothing is in flight (streams that the client cut may take a moment)."""
    accounts = Accounts()
    for _ in range(tries):
        glance = await watcher.glance()
        if glance is not None:
            accounts = Accounts(**{name: glance.accounts[name] for name in ("started", *KINDS)})
            if accounts.balanced:
                break
        await asyncio.sleep(0.1)
    return accounts
