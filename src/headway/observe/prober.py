"""The health of one replica: asked every few seconds and whenever the brain wants to know, one probe in flight.

An engine is alive if it answers its health path with anything but a 5xx; 401 is an answer. A refused connection is
told apart from silence: it means that the process is gone, and streams still open there are lost. A probe that could
not be sent for lack of descriptors tells nothing, and is not posted. A warm-up is a probe that has the engine generate
a token; a probe that succeeds while one is wanted tells less, and is not posted either.
"""

import asyncio
from collections.abc import Callable

from headway.core.events import ProbeFailed, ProbeSucceeded
from headway.core.plugin import Chance
from headway.core.replica import ReplicaSpec
from headway.observe.config import ObserveConfig
from headway.observe.warmup import warm_up
from headway.runtime import clock
from headway.runtime.http import Answer, Client, Failure, FailureKind

BODY_CAP_BYTES = 64 * 1024
REASON_CHARS = 200


class Prober:
    """Probes one registration of a replica until cancelled: what a probe of an older one finds out is never posted.

    `on_return()` is called when a replica is well again that was worse than silent: it may be another process.
    """

    def __init__(
        self,
        spec: ReplicaSpec,
        url: str,
        headers: dict[str, str],
        client: Client,
        config: ObserveConfig,
        chance: Chance,
        post: Callable[[ProbeSucceeded | ProbeFailed], None],
    ) -> None:
        self.health = "unknown"
        self.probes = self.failures = self.warm_ups = 0
        self.spec = spec
        self._url = url
        self._headers = headers
        self._client = client
        self._config = config
        self._chance = chance
        self._post = post
        self._asked = asyncio.Event()
        self._cold = False
        self._away = False
        self.on_return: Callable[[], None] = lambda: None

    def ask(self) -> None:
        """Probe as soon as the probe in flight, if any, has ended."""
        self._asked.set()

    def ask_warm_up(self) -> None:
        """The same with a token to be generated."""
        self._cold = True
        self._asked.set()

    async def run(self) -> None:
        """Probe for ever."""
        while True:
            self._asked.clear()
            if self._cold:
                await self.warm_up()
            else:
                await self.probe()
            wait_s = self._config.probe_interval_s * (0.9 + 0.2 * self._chance.random())
            try:
                async with asyncio.timeout(wait_s):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def probe(self) -> None:
        """One probe, posted."""
        answer = await self._client.fetch(
            self._url, timeout_s=self._config.probe_timeout_s, cap_bytes=BODY_CAP_BYTES, headers=self._headers
        )
        self.probes += 1
        if isinstance(answer, Answer) and answer.status < 500:
            if not self._cold:
                self._well()
        elif isinstance(answer, Answer):
            text = answer.body[:REASON_CHARS].decode("utf-8", "replace").strip()
            self._unwell(f"status {answer.status}: {text}" if text else f"status {answer.status}")
        else:
            self._unwell(answer)

    async def warm_up(self) -> None:
        """One warm-up, posted."""
        self._cold = False
        problem = await warm_up(self.spec, self._client, self._headers, self._config.warm_up_timeout_s)
        self.warm_ups += 1
        if problem:
            self._unwell(problem)
        else:
            self._well()

    def _well(self) -> None:
        self.health = "ok"
        self._post(ProbeSucceeded(clock.now(), self.spec.id))
        if self._away:
            self._away = False
            self.on_return()

    def _unwell(self, problem: str | Failure) -> None:
        self.failures += 1
        if isinstance(problem, Failure) and problem.kind is FailureKind.OURS:
            return
        self._away |= not (isinstance(problem, Failure) and problem.kind is FailureKind.TIMEOUT)
        self.health = str(problem)[:REASON_CHARS]
        refused = isinstance(problem, Failure) and problem.kind is FailureKind.REFUSED
        self._post(ProbeFailed(clock.now(), self.spec.id, self.health, refused))
