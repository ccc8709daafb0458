"""One request over HTTP, from its due moment to its Record. Whatever happens, exactly one Record comes of it."""

import asyncio
from collections.abc import Callable

import aiohttp

from headway.bench import answer, body
from headway.bench.plan import BenchPlan
from headway.runtime.http import Client
from headway.workload.accounts import Kind
from headway.workload.request import Request
from headway.workload.stats import Record

ERROR_BODY_BYTES = 64 * 1024


class Exchange:
    """Sends one request and watches its answer. `clock` gives seconds since the run's start on the server's clock."""

    def __init__(
        self, plan: BenchPlan, model: str, request: Request, client: Client, clock: Callable[[], float]
    ) -> None:
        self._plan, self._model, self._request = plan, model, request
        self._client, self._clock = client, clock
        self._sent_s = request.arrival_s
        self._status = 0
        self._usage = answer.Usage()
        self._stream = answer.Stream()

    async def run(self, capped: bool = False) -> Record:
        """Send it and wait for the end. A cancellation is the run's own end: it is booked and not passed on."""
        limit_s = self._plan.request_timeout_s / self._plan.time_scale or None
        try:
            async with asyncio.timeout(limit_s):
                kind, error = await self._send()
        except (TimeoutError, asyncio.CancelledError) as reason:
            kind, error = "client_closed", "stopped" if isinstance(reason, asyncio.CancelledError) else "timeout"
        except aiohttp.ClientConnectorError:
            kind, error = "server_error", "connect_failed"
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            kind, error = "server_error", self._broken(failure)
        return self._record(kind, error, capped)

    def never_sent(self) -> Record:
        """The Record of a request that the concurrency cap kept back until the run ended."""
        self._sent_s = self._clock()
        return self._record("client_closed", "never_sent", capped=True)

    async def _send(self) -> tuple[Kind, str]:
        payload = body.encode(self._plan, self._model, self._request)
        headers = {"content-type": "application/json"}
        if self._plan.api_key:
            headers["authorization"] = f"Bearer {self._plan.api_key}"
        url = self._plan.base + body.path(self._plan)
        self._sent_s = self._clock()
        async with self._client.stream(url, method="POST", headers=headers, body=payload) as response:
            self._status = response.status
            if response.status != 200:
                return answer.refused(response.status, await response.content.read(ERROR_BODY_BYTES))
            if not self._plan.stream:
                error, self._usage = answer.whole(await response.read())
            else:
                async for data in response.content.iter_any():
                    self._stream.feed(data, self._clock())
                error, self._usage = self._stream.error, self._stream.usage
        return ("server_error", error) if error else ("ok", "")

    def _broken(self, failure: Exception) -> str:
        if self._stream.error not in ("", "truncated"):
            return self._stream.error
        return "truncated" if self._status else f"broken_{type(failure).__name__}"

    def _record(self, kind: Kind, error: str, capped: bool) -> Record:
        pieces = tuple(self._stream.piece_times)
        return Record(
            due_s=self._request.arrival_s,
            sent_s=self._sent_s,
            end_s=self._clock(),
            kind=kind,
            piece_times=pieces,
            status=self._status,
            prompt_tokens=self._usage.prompt_tokens or self._request.prompt_tokens,
            output_tokens=self._usage.completion_tokens or len(pieces),
            cached_tokens=self._usage.cached_tokens,
            error=error,
            stream=self._plan.stream,
            capped=capped,
            shape=self._request.shape,
        )
