"""The health of one replica: asked every few seconds and whenever the brain wants to know, one probe in flight.

An engine is alive if it answers its health path with anything but a 5xx; 401 is an answer. A refused connection is
told apart from silence: it means that the process is gone, and streams still open there are lost. A probe that could
not be sent for lack of descriptors tells nothing, and is not posted.
"""

import asyncio
from collections.abc import Callable

from headway.core.events import ProbeFailed, ProbeSucceeded
from headway.core.plugin import Chance
from headway.core.replica import ReplicaSpec
from headway.observe.config import ObserveConfig
from headway.runtime import clock
from headway.runtime.http import Answer, Client, FailureKind

BODY_CAP_BYTES = 64 * 1024
REASON_CHARS = 200


class Prober:
    """Probes one registration of a replica until cancelled: what a probe of an older one finds out is never posted."""

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
        self.probes = self.failures = 0
        self._spec = spec
        self._url = url
        self._headers = headers
        self._client = client
        self._config = config
        self._chance = chance
        self._post = post
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Probe as soon as the probe in flight, if any, has ended."""
        self._asked.set()

    async def run(self) -> None:
        """Probe for ever."""
        while True:
            self._asked.clear()
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
            self.health = "ok"
            self._post(ProbeSucceeded(clock.now(), self._spec.id))
            return
        self.failures += 1
        if not isinstance(answer, Answer) and answer.kind is FailureKind.OURS:
            return
        if isinstance(answer, Answer):
            text = answer.body[:REASON_CHARS].decode("utf-8", "replace").strip()
            self.health, refused = f"status {answer.status}: {text}" if text else f"status {answer.status}", False
        else:
            self.health, refused = str(answer)[:REASON_CHARS], answer.kind is FailureKind.REFUSED
        self._post(ProbeFailed(clock.now(), self._spec.id, self.health, refused))
