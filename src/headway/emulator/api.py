"""vLLM's HTTP API in front of the service: routes, errors, load reports. The tokens' way out is `reply`.

Routes under /v1 need the API key, if one is set. Sleep, pause and cache endpoints exist in dev mode only, as in vLLM.
"""

import hmac
import json
from collections.abc import Callable
from typing import Any

import xxhash
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.emulator import asks, fields
from headway.emulator.errors import BAD_CONTENT_TYPE, Refusal
from headway.emulator.faults import FaultKind
from headway.emulator.ids import request_id
from headway.emulator.job import Job
from headway.emulator.prompts import Renderer, check_ids
from headway.emulator.reply import Reply
from headway.emulator.respond import MISSING, empty, error, ok, varying
from headway.emulator.service import Service
from headway.emulator.shapes import Shape
from headway.emulator.spell import spelled
from headway.perfmodel.text import decode

VERSION = "0.32.0"
"""The version whose answers were recorded, and which is claimed."""

LOAD_FORMAT = "endpoint-load-metrics-format"


class Api:
    """The routes of one engine. `in_flight`: requests for tokens that are not answered yet."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.config = service.config
        self.renderer = Renderer(service.machine.sizes.max_model_len)
        self.in_flight = 0
        self._fingerprint = f"vllm-{VERSION}-{xxhash.xxh32_hexdigest(self.config.name.encode())}"
        self._frozen: bytes | None = None
        self._created = int(service.meters.started)

    def app(self) -> ASGIApp:
        """The ASGI application."""
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/detokenize", self._detokenize, methods=["POST"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/ping", self._health, methods=["GET", "POST"]),
            Route("/version", self._version, methods=["GET"]),
            Route("/load", self._load, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
        ]
        if self.config.dev_mode:
            routes += self._dev_routes()
        inner = Starlette(routes=routes, exception_handlers={HTTPException: _plain})
        return _Door(inner, self)

    def _dev_routes(self) -> list[Route]:
        return [
            Route("/sleep", self._sleep, methods=["POST"]),
            Route("/wake_up", self._wake, methods=["POST"]),
            Route("/is_sleeping", self._is_sleeping, methods=["GET"]),
            Route("/pause", self._pause, methods=["POST"]),
            Route("/resume", self._resume, methods=["POST"]),
            Route("/is_paused", self._is_paused, methods=["GET"]),
            Route("/reset_prefix_cache", self._reset, methods=["POST"]),
        ]

    async def _chat(self, request: Request) -> Response:
        return await self._generate(request, chat=True)

    async def _completions(self, request: Request) -> Response:
        return await self._generate(request, chat=False)

    async def _generate(self, request: Request, chat: bool) -> Response:
        if not _is_json(request):
            return error(BAD_CONTENT_TYPE)
        ask = asks.read(await request.body(), chat, self.config.name, self.renderer)
        if isinstance(ask, Refusal):
            return error(ask)
        name = request.headers.get("x-request-id") or request_id()
        shape = Shape(ask, name, self.config.name, self._fingerprint)
        job = self.service.submit(shape.id, ask)
        if isinstance(job, Refusal):
            return error(job)
        return Reply(self, job, shape, self._load_report(request))

    def open(self) -> None:
        """A request for tokens begins."""
        self.in_flight += 1

    def close(self, job: Job) -> None:
        """It is over, one way or another."""
        self.in_flight -= 1
        self.service.cancel(job)

    def cached(self, job: Job) -> int | None:
        """Cached prompt tokens of a job, if this engine tells them."""
        return job.cached_tokens if self.config.enable_prompt_tokens_details else None

    def _load_report(self, request: Request) -> Callable[[], dict[str, str]]:
        """Writes the load report that a request asks for with its header; as in vLLM only plain answers carry it."""
        wanted = request.headers.get(LOAD_FORMAT, "").upper()

        def report() -> dict[str, str]:
            stats = self.service.engine.stats()
            load = {"kv_cache_usage_perc": stats.kv_usage, "num_requests_waiting": stats.waiting}
            if wanted == "TEXT":
                pairs = ", ".join(f"named_metrics.{name}={float(value)}" for name, value in load.items())
                return {"endpoint-load-metrics": f"TEXT {pairs}"}
            if wanted == "JSON":
                return {"endpoint-load-metrics": f"JSON {json.dumps({'named_metrics': load})}"}
            return {}

        return report

    async def _models(self, _request: Request) -> Response:
        permission = {
            "id": f"modelperm-{request_id()}",
            "object": "model_permission",
            "created": self._created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {"id": self.config.name, "object": "model", "created": self._created, "owned_by": "vllm"}
        card |= {"root": self.service.machine.model.id, "parent": None}
        card |= {"max_model_len": self.service.machine.sizes.max_model_len, "permission": [permission]}
        return ok({"object": "list", "data": [card]})

    async def _tokenize(self, request: Request) -> Response:
        asked = await self._small(request, fields.TOKENIZE)
        if isinstance(asked, Refusal):
            return error(asked)
        if "messages" in asked:
            ids = self.renderer.chat(asked)
        else:
            ids = self.renderer.tokenizer.encode(asked.get("prompt") or "")
        if isinstance(ids, Refusal):
            return error(ids)
        words = spelled(ids) if asked.get("return_token_strs") else None
        longest = self.service.machine.sizes.max_model_len
        return ok({"count": len(ids), "max_model_len": longest, "tokens": ids, "token_strs": words})

    async def _detokenize(self, request: Request) -> Response:
        asked = await self._small(request, fields.DETOKENIZE, "tokens")
        if isinstance(asked, Refusal):
            return error(asked)
        refusal = check_ids(asked["tokens"])
        return error(refusal) if refusal else ok({"prompt": decode(asked["tokens"])})

    async def _small(self, request: Request, kinds: dict[str, str], *required: str) -> dict[str, Any] | Refusal:
        if not _is_json(request):
            return BAD_CONTENT_TYPE
        asked = fields.decode(await request.body())
        if isinstance(asked, Refusal):
            return asked
        return fields.check(asked, kinds, required) or asks.check_model(asked, self.config.name) or asked

    async def _health(self, _request: Request) -> Response:
        return empty(503 if self.service.dead else 200)

    async def _version(self, _request: Request) -> Response:
        return ok({"version": VERSION})

    async def _load(self, _request: Request) -> Response:
        return ok({"server_load": self.in_flight if self.config.enable_server_load_tracking else 0})

    async def _metrics(self, _request: Request) -> Response:
        service = self.service
        page = self._frozen
        if page is None or FaultKind.FREEZE_METRICS not in service.active:
            page = self._frozen = service.meters.page(service.engine.stats(), service.pace)
        return varying(Response(page, media_type="text/plain; version=1.0.0; charset=utf-8"))

    async def _sleep(self, request: Request) -> Response:
        level = request.query_params.get("level", "1")
        if level not in {"1", "2"}:
            return error(Refusal(400, f"level must be 1 or 2, got {level}."))
        if request.query_params.get("mode", "abort") == "abort":
            self.service.abort_all()
        self.service.sleep(int(level))
        return ok({"status": "sleeping", "level": int(level)})

    async def _wake(self, _request: Request) -> Response:
        self.service.wake()
        return ok({"status": "awake", "tags": None})

    async def _is_sleeping(self, _request: Request) -> Response:
        return ok({"is_sleeping": self.service.engine.sleep_level > 0})

    async def _pause(self, request: Request) -> Response:
        if request.query_params.get("mode", "abort") == "abort":
            self.service.abort_all()
        self.service.pause(True)
        return ok({"status": "paused"})

    async def _resume(self, _request: Request) -> Response:
        self.service.pause(False)
        return ok({"status": "resumed"})

    async def _is_paused(self, _request: Request) -> Response:
        return ok({"is_paused": self.service.engine.paused})

    async def _reset(self, _request: Request) -> Response:
        self.service.engine.pool.forget_all()
        return ok({"success": True})


class _Door:
    """In front of every route: hangs when everything hangs, and asks for the key."""

    def __init__(self, app: ASGIApp, api: Api) -> None:
        self._app = app
        self._service = api.service
        self._key = f"Bearer {api.config.api_key}".encode() if api.config.api_key else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._service.healthy()
        if self._key and scope["path"].startswith("/v1") and scope["method"] != "OPTIONS":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._key):
                await ok({"error": "Unauthorized"}, 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _plain(_request: Request, problem: Exception) -> Response:
    """Unknown paths and methods, in the framework's own words."""
    if not isinstance(problem, HTTPException):
        raise problem
    detail = MISSING if problem.status_code == 404 else problem.detail
    return ok({"detail": detail}, problem.status_code, dict(problem.headers or {}))


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    return kind == "application/json"
