"""The engine at work: one loop that steps it on the clock, and the jobs that wait for its tokens.

Everything that HTTP may ask of the engine is a method here; nothing here knows HTTP.
"""

import asyncio
import random

from headway.emulator.asks import Ask
from headway.emulator.config import EmulatorConfig, Machine
from headway.emulator.errors import DEAD, QUEUE_FULL, Refusal
from headway.emulator.faults import ONCE, Fault, FaultKind
from headway.emulator.job import Job
from headway.emulator.metrics import Meters
from headway.emulator.pace import Pace
from headway.perfmodel.engine import StepResult
from headway.perfmodel.sequence import Request


class Service:
    """One engine, its clock and its faults. `strike` is what the process does about faults that happen once."""

    def __init__(self, config: EmulatorConfig, machine: Machine) -> None:
        self.config = config
        self.machine = machine
        self.engine = machine.engine()
        self.pace = Pace(config.time_scale)
        self.meters = Meters(config, machine)
        self.dead = False
        self.active: dict[FaultKind, Fault] = {}
        self.struck: asyncio.Queue[Fault] = asyncio.Queue()
        self._armed: list[tuple[int, Fault]] = []
        self._submitted = 0
        self._owners: dict[str, tuple[Job, int]] = {}
        self._chance = random.Random(config.seed)
        self._work = asyncio.Event()
        self._healthy = asyncio.Event()
        self._healthy.set()

    async def run(self) -> None:
        """Step until the engine dies. Never returns otherwise."""
        while not self.dead:
            await self._healthy.wait()
            if not self.engine.busy:
                self._work.clear()
                await self._work.wait()
                self.pace.rejoin()
                continue
            self.engine.slowdown = self._slowdown()
            step = self.engine.step(self.pace.virtual())
            await self.pace.spend(step.duration_s)
            await self._healthy.wait()
            self._deliver(step)

    def submit(self, request_id: str, ask: Ask) -> Job | Refusal:
        """Queue every choice of a request, or say why not."""
        if self.dead:
            return DEAD
        limit = self.config.max_num_queued_reqs
        if FaultKind.QUEUE_FULL in self.active or (limit and len(self.engine.waiting) >= limit):
            self.meters.rejections += 1
            return QUEUE_FULL
        job = Job(request_id, ask)
        self._submitted += 1
        for choice, prompt in enumerate(job.prompts):
            name = f"{request_id}-{self._submitted}-{choice}"  # unique, even if the client's id is not
            self._owners[name] = (job, choice)
            job.sequences.append(self.engine.add(self._request(name, prompt, ask), self.pace.now()))
        self._work.set()
        return job

    def cancel(self, job: Job) -> None:
        """The client left, or has all it wants: whatever of the job is still here is aborted."""
        for sequence in job.sequences:
            if self._owners.pop(sequence.id, None) is not None:
                self.engine.abort(sequence.id)

    def stopped(self, job: Job, choice: int) -> None:
        """A stop string ended a choice: the engine need not go on with it."""
        sequence = job.sequences[choice]
        if self._owners.pop(sequence.id, None) is not None:
            self.engine.abort(sequence.id)
            sequence.finish = "stop"
            self.meters.ended(sequence, self.pace)

    def abort_all(self) -> int:
        """End every request with finish_reason "abort", as pausing and sleeping do."""
        jobs = {id(job): job for job, _choice in self._owners.values()}
        for job in jobs.values():
            self.cancel(job)
            job.end("abort")
        return len(jobs)

    def sleep(self, level: int) -> None:
        """Give the memory away; requests hang until `wake`."""
        self.engine.sleep(level)

    def wake(self) -> None:
        """Work again."""
        self.engine.wake()
        self._work.set()

    def pause(self, paused: bool) -> None:
        """Stand still, or go on; requests hang meanwhile."""
        self.engine.paused = paused
        self._work.set()

    def set_fault(self, fault: Fault) -> None:
        """Make something go wrong, at once or after some tokens."""
        if fault.after_tokens > 0:
            self._armed.append((self.engine.stats().generation_tokens_total + fault.after_tokens, fault))
        else:
            self._begin(fault)

    def heal(self, kind: FaultKind | None = None) -> None:
        """Undo the faults that last (of one kind); what died stays dead."""
        for one in [kind] if kind else list(self.active):
            self.active.pop(one, None)
            self._armed = [armed for armed in self._armed if armed[1].kind != one]
            if one is FaultKind.HANG:
                self._healthy.set()
            if one is FaultKind.PAUSE:
                self.pause(False)
        if kind is None:
            self._armed = []

    async def healthy(self) -> None:
        """Returns at once, except while everything hangs."""
        await self._healthy.wait()

    def die(self) -> None:
        """The engine core is gone: every job fails, later ones are refused."""
        self.dead = True
        jobs = {id(job): job for job, _choice in self._owners.values()}
        self._owners.clear()
        for job in jobs.values():
            job.fail(DEAD)
        self._work.set()

    def _begin(self, fault: Fault) -> None:
        if fault.kind in ONCE:
            if fault.kind is FaultKind.OOM:
                self.die()
            self.struck.put_nowait(fault)
            return
        self.active[fault.kind] = fault
        if fault.kind is FaultKind.HANG:
            self._healthy.clear()
        if fault.kind is FaultKind.PAUSE:
            self.pause(True)
        if fault.for_s > 0:
            asyncio.get_running_loop().call_later(fault.for_s, self.heal, fault.kind)

    def _slowdown(self) -> float:
        slow = self.active.get(FaultKind.SLOW)
        noise = self._chance.gauss(0.0, self.config.step_noise) if self.config.step_noise else 0.0
        return (slow.factor if slow else 1.0) * max(0.1, 1.0 + noise)

    def _request(self, name: str, prompt: list[int], ask: Ask) -> Request:
        return Request(
            name,
            prompt,
            max_tokens=ask.max_tokens,
            min_tokens=ask.min_tokens,
            ignore_eos=ask.ignore_eos,
            stop_token_ids=ask.stop_token_ids,
            salt=ask.salt,
        )

    def _deliver(self, step: StepResult) -> None:
        owners = self._owners
        for sequence, token in step.outputs:
            owner = owners.get(sequence.id)
            if owner is None:
                continue  # aborted while the step ran
            job, choice = owner
            if sequence.finish:
                del owners[sequence.id]
            job.post(choice, token, sequence.finish, sequence.stop_reason)
        self.meters.step(step, self.pace)
        if self._armed:
            self._strike()

    def _strike(self) -> None:
        said = self.engine.stats().generation_tokens_total
        due = [fault for when, fault in self._armed if said >= when]
        self._armed = [armed for armed in self._armed if said < armed[0]]
        for fault in due:
            self._begin(fault)
