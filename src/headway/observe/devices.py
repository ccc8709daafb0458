"""Device memory from DCGM exporters, kept for the scrapers to join to their replicas by label."""

import asyncio

import structlog

from headway.engines import dcgm
from headway.observe.config import ObserveConfig
from headway.runtime.http import Answer, Client

log = structlog.get_logger(__name__)


class DeviceReader:
    """Reads one exporter until cancelled. While it does not answer, its devices are unknown, not as they were."""

    def __init__(self, url: str, client: Client, config: ObserveConfig) -> None:
        self.devices: tuple[dcgm.Device, ...] = ()
        self.error = ""
        self._url = url
        self._client = client
        self._config = config

    async def run(self) -> None:
        """Read for ever."""
        while True:
            await self.read()
            await asyncio.sleep(self._config.devices_interval_s)

    async def read(self) -> None:
        """Ask once."""
        answer = await self._client.fetch(
            self._url, timeout_s=self._config.timeout_s, cap_bytes=self._config.page_cap_bytes
        )
        good = isinstance(answer, Answer) and answer.status == 200
        self.devices = dcgm.read(answer.body) if isinstance(answer, Answer) and good else ()
        said = f"status {answer.status}" if isinstance(answer, Answer) else str(answer)
        error = "" if self.devices else ("no usable device" if good else said)
        if error and error != self.error:
            log.warning("device memory is unknown", exporter=self._url, reason=error)
        self.error = error
