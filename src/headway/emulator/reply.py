"""One answer on its way to the client: streamed or whole, given up as soon as the client is gone."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headway.emulator import respond
from headway.emulator.job import Job
from headway.emulator.shapes import DONE, Shape, Usage
from headway.runtime import tasks

if TYPE_CHECKING:
    from headway.emulator.api import Api

STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"vary", b"Origin")]


class Reply(Response):
    """Sends what the job says. The engine's part of the job ends when this does, however it does."""

    def __init__(self, api: "Api", job: Job, shape: Shape, load_report: Callable[[], dict[str, str]]) -> None:
        super().__init__()
        self._api = api
        self._job = job
        self._shape = shape
        self._load_report = load_report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI side of an answer."""
        self._api.open()
        gone = tasks.spawn(self._watch(receive), f"watch {self._shape.id}")
        try:
            if self._job.ask.stream:
                await self._stream(send)
            else:
                await self._whole(scope, receive, send)
        finally:
            gone.cancel()
            self._api.close(self._job)

    async def _watch(self, receive: Receive) -> None:
        """A client that leaves frees the engine at once."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._api.service.cancel(self._job)
        self._job.end("abort")

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        job = self._job
        while job.left and job.failure is None:
            self._drop_stopped(await job.take())
        if job.failure is not None:
            await respond.error(job.failure)(scope, receive, send)
            return
        usage = Usage(job.prompt_tokens, job.completion_tokens, self._api.cached(job))
        answer = respond.body(self._shape.whole(job.said, usage), headers=self._load_report())
        await answer(scope, receive, send)

    async def _stream(self, send: Send) -> None:
        job, shape = self._job, self._shape
        await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        opening = shape.roles(job.prompts)
        started: set[int] = set()
        while job.left:
            fresh = await job.take()
            if job.failure is not None:
                await send({"type": "http.response.body", "body": job.failure.event() + DONE})
                return
            data = opening + b"".join([self._chunk(choice, started) for choice in sorted(fresh)])
            opening = b""
            self._drop_stopped(fresh)
            if not job.left:
                data += shape.tail(Usage(job.prompt_tokens, job.completion_tokens, self._api.cached(job)))
            await send({"type": "http.response.body", "body": data, "more_body": bool(job.left)})

    def _drop_stopped(self, fresh: set[int]) -> None:
        if self._job.ask.stop:
            for choice in fresh:
                if self._job.said[choice].finish:
                    self._api.service.stopped(self._job, choice)

    def _chunk(self, choice: int, started: set[int]) -> bytes:
        job, ask = self._job, self._job.ask
        said = job.said[choice]
        prompt = job.prompts[choice] if ask.return_token_ids and choice not in started else None
        started.add(choice)
        usage = Usage(len(job.prompts[choice]), len(said.ids)) if ask.continuous_usage else None
        return self._shape.chunk(choice, said, prompt, usage)
