"""The engine's loop: it works while there is work, forgets who leaves, and dies only once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from headway.emulator.config import EmulatorConfig, machine
from headway.emulator.errors import DEAD, QUEUE_FULL
from headway.emulator.faults import Fault, FaultKind
from headway.emulator.job import Job
from headway.emulator.service import Service
from headway.perfmodel.tokens import TokenStream
from tests.emulator.test_transcript import PLAIN

Run = Callable[[Any], Any]
FAST = EmulatorConfig(time_scale=1000.0, max_num_seqs=2, kv_tokens=1600)
ASK = msgspec.structs.replace(PLAIN, prompts=[[5, 6, 7]], max_tokens=20, ignore_eos=True)


@contextlib.asynccontextmanager
async def working(config: EmulatorConfig = FAST) -> AsyncIterator[Service]:
    service = Service(config, machine(config))
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(service.run())
        try:
            yield service
        finally:
            loop.cancel()


def submitted(service: Service, **options: Any) -> Job:
    job = service.submit("a", msgspec.structs.replace(ASK, **options))
    assert isinstance(job, Job)
    return job


async def finished(job: Job) -> list[list[int]]:
    while job.left and job.failure is None:
        await job.take()
    return [one.ids for one in job.said]


def test_a_job_gets_the_tokens_that_follow_its_prompt(run: Run) -> None:
    async def body() -> None:
        async with working() as service:
            (ids,) = await finished(submitted(service))
            stream = TokenStream(ASK.prompts[0])
            for token in ids:
                assert token == stream.next()
                stream.push(token)
            assert len(ids) == 20
            assert service.engine.stats().kv_blocks_used == 0

    run(body())


def test_equal_ids_do_not_collide(run: Run) -> None:
    async def body() -> None:
        async with working() as service:
            one, two = submitted(service), submitted(service, n=2)
            assert await finished(one) * 2 == await finished(two)

    run(body())


def test_who_leaves_is_forgotten(run: Run) -> None:
    async def body() -> None:
        async with working() as service:
            job = submitted(service, max_tokens=1000)
            await job.take()
            service.cancel(job)
            service.cancel(job)
            assert not service.engine.busy
            assert service.engine.stats().kv_blocks_used == 0
            await finished(submitted(service))

    run(body())


def test_everybody_can_be_aborted(run: Run) -> None:
    async def body() -> None:
        async with working() as service:
            jobs = [submitted(service, max_tokens=1000) for _ in range(3)]
            assert service.abort_all() == 3
            for job in jobs:
                await finished(job)
                assert job.said[0].finish == "abort"
            assert service.abort_all() == 0

    run(body())


def test_death_fails_what_runs_and_refuses_the_rest(run: Run) -> None:
    async def body() -> None:
        async with working() as service:
            job = submitted(service, max_tokens=1000)
            await job.take()
            service.set_fault(Fault(FaultKind.OOM))
            await finished(job)
            assert job.failure is DEAD
            assert service.submit("b", ASK) is DEAD
            assert (await service.struck.get()).kind is FaultKind.OOM

    run(body())


def test_the_queue_can_be_full(run: Run) -> None:
    async def body() -> None:
        config = msgspec.structs.replace(FAST, max_num_queued_reqs=1)
        service = Service(config, machine(config))  # its loop does not run: everybody waits
        submitted(service)
        assert service.submit("b", ASK) is QUEUE_FULL
        assert service.meters.rejections == 1

    run(body())


def test_faults_can_be_armed_and_disarmed(run: Run) -> None:
    async def body() -> None:
        async with working() as service:
            service.set_fault(Fault(FaultKind.SLOW, factor=2.0, after_tokens=5))
            await finished(submitted(service))
            assert FaultKind.SLOW in service.active
            service.set_fault(Fault(FaultKind.HANG, after_tokens=10**6))
            service.heal(FaultKind.SLOW)
            assert not service.active
            service.heal()
            await finished(submitted(service))

    run(body())


def test_noise_is_the_same_for_the_same_seed() -> None:
    def slowdowns(seed: int) -> list[float]:
        config = msgspec.structs.replace(FAST, step_noise=0.2, seed=seed)
        service = Service(config, machine(config))
        return [service._slowdown() for _ in range(20)]

    assert slowdowns(1) == slowdowns(1) != slowdowns(2)
    assert min(slowdowns(1)) > 0


@pytest.mark.slow
def test_asleep_and_paused_it_keeps_what_waits(run: Run) -> None:
    async def body() -> None:
        async with working() as service:
            service.sleep(1)
            job = submitted(service)
            await asyncio.sleep(0.02)
            assert not job.said[0].ids
            service.wake()
            await finished(job)
            service.pause(True)
            job = submitted(service)
            await asyncio.sleep(0.02)
            assert not job.said[0].ids
            service.pause(False)
            await finished(job)

    run(body())
