"""Device memory is known while the exporter answers."""

import asyncio
from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from headway.observe.config import ObserveConfig
from headway.observe.devices import DeviceReader
from headway.runtime.http import client
from tests.runtime.servers import Reply, serving

Run = Callable[[Any], Any]
PAGE = b'DCGM_FI_DEV_FB_FREE{UUID="GPU-a"} 10\nDCGM_FI_DEV_FB_USED{UUID="GPU-a"} 90\n'


def test_devices_come_and_go_with_the_exporter(run: Run) -> None:
    async def story() -> list[int]:
        counts = []
        async with serving({}) as served, client() as http:
            reader = DeviceReader(served.url + "/metrics", http, ObserveConfig())
            for reply in (Reply(PAGE), Reply(status=500), Reply(status=500), Reply(b"x"), Reply(PAGE), Reply(raw=b"")):
                served.replies["/metrics"] = reply
                await reader.read()
                counts.append(len(reader.devices))
        return counts

    with capture_logs() as logs:
        assert run(story()) == [1, 0, 0, 0, 1, 0]
    assert [entry["reason"].partition(":")[0] for entry in logs] == ["status 500", "no usable device", "broken"]


def test_it_reads_again_and_again(run: Run) -> None:
    async def story() -> None:
        async with serving({"/metrics": Reply(PAGE)}) as served, client() as http:
            reader = DeviceReader(served.url + "/metrics", http, ObserveConfig(devices_interval_s=0.01))
            running = asyncio.ensure_future(reader.run())
            await served.asked_for("/metrics", 3)
            running.cancel()
            await asyncio.wait([running])

    run(story())
