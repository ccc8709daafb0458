"""The operator's hook that restarts engines: a program or a URL, called for one replica at a time each, and counted."""

from collections.abc import Callable

import msgspec
import structlog

from headway.compose.settings_pressure import RestartHook
from headway.core.ids import ReplicaId
from headway.runtime import program
from headway.runtime.http import Client, Failure
from headway.runtime.tasks import TaskSet
from headway.telemetry import Telemetry

log = structlog.get_logger(__name__)

UrlOf = Callable[[ReplicaId], str]
"""Where a replica listens, empty if it is not known any more."""


class Restarter:
    """Performs Restart commands. `restarts` and `failures` count what was tried, and what came to nothing."""

    def __init__(self, hook: RestartHook, client: Client, url_of: UrlOf) -> None:
        self.restarts = 0
        self.failures = 0
        self._hook = hook
        self._client = client
        self._url_of = url_of
        self._tasks = TaskSet()
        self._under_way: set[ReplicaId] = set()

    def __call__(self, replica_id: ReplicaId, reason: str) -> None:
        """Have a replica restarted, unless that is under way."""
        url = self._url_of(replica_id)
        if not url or replica_id in self._under_way:
            return
        self.restarts += 1
        self._under_way.add(replica_id)
        self._tasks.spawn(self._restart(replica_id, url, reason), f"restart {replica_id}")

    async def close(self, grace_s: float = 0.0) -> None:
        """End what is under way, after so many seconds."""
        await self._tasks.close(grace_s)

    async def _restart(self, replica_id: ReplicaId, url: str, reason: str) -> None:
        log.warning("restarting a replica", replica=replica_id, reason=reason)
        try:
            problem = await self._call(replica_id, url, reason)
        finally:
            self._under_way.discard(replica_id)
        if problem:
            self.failures += 1
            log.error("the restart hook failed", replica=replica_id, problem=problem)
        else:
            log.info("the restart hook is done", replica=replica_id)

    async def _call(self, replica_id: ReplicaId, url: str, reason: str) -> str:
        hook = self._hook
        if hook.command:
            return await program.run(filled(hook.command, replica_id, url, reason), hook.timeout_s)
        body = msgspec.json.encode({"replica": replica_id, "url": url, "reason": reason})
        headers = {"content-type": "application/json"}
        answer = await self._client.fetch(hook.url, method="POST", headers=headers, body=body, timeout_s=hook.timeout_s)
        if isinstance(answer, Failure):
            return str(answer)
        return "" if 200 <= answer.status < 300 else f"answered {answer.status}"


def filled(command: list[str], replica_id: ReplicaId, url: str, reason: str) -> list[str]:
    """The arguments with what they ask for in its place. What is filled in is not looked at again."""
    places = {"replica": str(replica_id), "url": url, "reason": reason}
    return [_filled(each, places) for each in command]


def _filled(text: str, places: dict[str, str]) -> str:
    parts = text.split("{")
    made = parts[0]
    for part in parts[1:]:
        name, closed, rest = part.partition("}")
        made += places[name] + rest if closed and name in places else "{" + part
    return made


def watch_restarts(telemetry: Telemetry, restarter: Restarter) -> None:
    """Counts of restarts."""
    telemetry.watch(
        "headway_restarts_total", "Engines that the restart hook was called for.", lambda: restarter.restarts
    )
    failed = "Calls of the restart hook that failed."
    telemetry.watch("headway_restart_failures_total", failed, lambda: restarter.failures)
