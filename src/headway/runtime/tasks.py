"""The only place that makes asyncio tasks.

asyncio itself keeps weak references to tasks and swallows the failure of a task that nobody awaits. A `TaskSet`, owned
by whoever starts the work, keeps strong references, logs every failure with the task's name, and ends all of them
when its owner stops.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Self

import structlog

log = structlog.get_logger(__name__)


def spawn(coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    """Start a task whose failure is logged. The caller must keep the returned task; prefer a `TaskSet`."""
    task = asyncio.get_running_loop().create_task(coro, name=name)
    task.add_done_callback(_log_failure)
    return task


class TaskSet:
    """Tasks that live and die with their owner. Finished tasks leave the set by themselves."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"<TaskSet {sorted(task.get_name() for task in self._tasks)}>"

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task of this set. Raises RuntimeError after `close`."""
        if self._closed:
            coro.close()
            raise RuntimeError(f"task {name!r} started after its owner stopped")
        task = spawn(coro, name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel these tasks and wait until they have ended. Their failures are logged, not raised."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close(self, grace_s: float = 0.0) -> None:
        """Give the tasks `grace_s` seconds to finish by themselves, then cancel and await them. Idempotent."""
        self._closed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        if tasks and grace_s > 0:
            await asyncio.wait(tasks, timeout=grace_s)
        await self.cancel(*(task for task in tasks if not task.done()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("task failed", task=task.get_name(), exc_info=error)
