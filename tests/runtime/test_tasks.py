"""Tasks are kept, their failures are logged, and they end with their owner."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headway.runtime.tasks import TaskSet, spawn

Run = Callable[[Any], Any]


async def fail() -> None:
    raise ValueError("on purpose")


def test_a_failure_is_logged_with_the_name_of_the_task(run: Run) -> None:
    async def story() -> None:
        task = spawn(fail(), "doomed")
        await asyncio.wait([task])

    with capture_logs() as logs:
        run(story())
    assert [(entry["event"], entry["task"], str(entry["exc_info"])) for entry in logs] == [
        ("task failed", "doomed", "on purpose")
    ]


def test_a_task_survives_garbage_collection_while_its_set_lives(run: Run) -> None:
    async def story() -> str:
        tasks, done = TaskSet(), asyncio.Event()
        result: list[str] = []

        async def work() -> None:
            await asyncio.sleep(0)
            gc.collect()
            await asyncio.sleep(0)
            result.append("finished")
            done.set()

        tasks.spawn(work(), "kept")
        gc.collect()
        await done.wait()
        await tasks.close()
        return result[0]

    assert run(story()) == "finished"


def test_finished_tasks_leave_the_set(run: Run) -> None:
    async def story() -> tuple[int, int]:
        async with TaskSet() as tasks:
            task = tasks.spawn(asyncio.sleep(0), "short")
            before = len(tasks)
            await task
            await asyncio.sleep(0)
            return before, len(tasks)

    assert run(story()) == (1, 0)


def test_close_cancels_what_still_runs_and_waits_for_its_cleanup(run: Run) -> None:
    async def story() -> list[str]:
        seen: list[str] = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                seen.append("cleaned up")

        tasks = TaskSet()
        tasks.spawn(work(), "endless")
        await asyncio.sleep(0)
        await tasks.close()
        await tasks.close()
        return seen

    assert run(story()) == ["cleaned up"]


def test_close_lets_tasks_finish_within_its_grace(run: Run) -> None:
    async def story() -> bool:
        tasks = TaskSet()
        task = tasks.spawn(asyncio.sleep(0.01), "nearly done")
        await tasks.close(grace_s=5.0)
        return task.done() and not task.cancelled()

    assert run(story())


def test_cancel_ends_only_the_tasks_named(run: Run) -> None:
    async def story() -> tuple[bool, bool]:
        async with TaskSet() as tasks:
            one = tasks.spawn(asyncio.Event().wait(), "one")
            two = tasks.spawn(asyncio.Event().wait(), "two")
            await tasks.cancel(one)
            await tasks.cancel()
            return one.cancelled(), two.cancelled()

    assert run(story()) == (True, False)


def test_a_task_that_closes_its_own_set_is_not_cancelled_by_it(run: Run) -> None:
    async def story() -> str:
        tasks = TaskSet()

        async def stopper() -> str:
            await tasks.close()
            return "done"

        return await tasks.spawn(stopper(), "stopper")

    assert run(story()) == "done"


def test_nothing_starts_after_close(run: Run) -> None:
    async def story() -> None:
        tasks = TaskSet()
        await tasks.close()
        with pytest.raises(RuntimeError, match="late"):
            tasks.spawn(asyncio.sleep(0), "late")

    run(story())


def test_the_set_names_its_tasks(run: Run) -> None:
    async def story() -> str:
        async with TaskSet() as tasks:
            tasks.spawn(asyncio.Event().wait(), "b")
            tasks.spawn(asyncio.Event().wait(), "a")
            return repr(tasks)

    assert run(story()) == "<TaskSet ['a', 'b']>"
