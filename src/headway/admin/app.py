"""The routes of the admin API. Handlers read a snapshot or ask `Control`; answers are JSON unless a route says so."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from headway import __version__
from headway.admin.control import Control, NewReplica, Refused, Where
from headway.admin.guard import Guard
from headway.admin.openapi import Operation, document, page
from headway.core.ids import ReplicaId
from headway.core.snapshot import FleetSnapshot, shown
from headway.core.view import Breaker
from headway.telemetry import Telemetry

MAX_BODY_BYTES = 64 * 1024
"""A registration is some hundred bytes."""

PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

REGISTER = '{"url": "http://10.0.0.7:8000"}'
REMOVE = "Forget a replica; answers that have begun go on, requests without a first byte go elsewhere."
MIGRATE = '{"to": "10.0.0.7:8000"}'

Handler = Callable[[Request], Awaitable[Response]]


def make_app(control: Control, telemetry: Telemetry, token: str = "") -> Guard:
    """The admin API as an ASGI app, behind its guard."""
    routes = _Handlers(control, telemetry).routes()
    app = Starlette(routes=[Route(o.path, handler, methods=[o.method], name=o.summary) for o, handler in routes])
    app.router.redirect_slashes = False
    return Guard(app, token)


def unready(snapshot: FleetSnapshot, draining: bool) -> str:
    """Why new clients should go elsewhere, empty when they are welcome."""
    if draining:
        return "draining"
    if not snapshot.views:
        return "no replica is registered"
    if snapshot.panic:
        return ""
    usable = (v for v in snapshot.views if v.breaker is not Breaker.OPEN and not v.draining and not v.sleeping)
    return "" if any(usable) else "no replica is usable"


class _Handlers:
    """One method per route."""

    def __init__(self, control: Control, telemetry: Telemetry) -> None:
        self._control = control
        self._telemetry = telemetry
        self._operations: list[Operation] = []

    def routes(self) -> list[tuple[Operation, Handler]]:
        """Every route there is: the guard's test and the OpenAPI page walk this table."""
        table: list[tuple[Operation, Handler]] = [
            (Operation("GET", "/healthz", "The process is alive.", token=False), self.healthz),
            (Operation("GET", "/readyz", "New clients are welcome; else 503 and why not.", token=False), self.readyz),
            (Operation("GET", "/metrics", "Prometheus metrics.", media="text/plain"), self.metrics),
            (Operation("GET", "/fleet", "Every replica: load, headroom, sample age, health; the queue."), self.fleet),
            (Operation("GET", "/requests", "The most recent decisions."), self.requests),
            (
                Operation("GET", "/requests/{id:path}/explain", "Why a request went where, and how it turned out."),
                self.explain,
            ),
            (
                Operation("POST", "/requests/{id:path}/migrate", "Let another replica go on with it.", Where, MIGRATE),
                self.migrate,
            ),
            (Operation("GET", "/replicas", "Registered replicas."), self.replicas),
            (Operation("POST", "/replicas", "Register a replica.", NewReplica, REGISTER, status=201), self.add),
            (Operation("DELETE", "/replicas/{id:path}", REMOVE, status=204), self.remove),
            (Operation("POST", "/replicas/{id:path}/drain", "Send no new requests there."), self.drain),
            (Operation("POST", "/replicas/{id:path}/undrain", "Send new requests there again."), self.undrain),
            (Operation("GET", "/openapi.json", "This description."), self.openapi),
            (Operation("GET", "/", "This description as a page.", media="text/html"), self.page),
        ]
        self._operations = [operation for operation, _ in table]
        return table

    async def healthz(self, _request: Request) -> Response:
        return _json({"status": "ok", "version": __version__})

    async def readyz(self, _request: Request) -> Response:
        reason = unready(self._control.snapshot(), self._control.draining)
        return _json({"ready": not reason, "reason": reason}, 503 if reason else 200)

    async def metrics(self, _request: Request) -> Response:
        page = self._telemetry.render(self._control.snapshot())
        return Response(page, media_type="text/plain; version=0.0.4")

    async def fleet(self, _request: Request) -> Response:
        snapshot = self._control.snapshot()
        accounts = {"started": self._telemetry.requests_started, **self._telemetry.accounts}
        reason = unready(snapshot, self._control.draining)
        forecasts = self._telemetry.forecasts.summary()
        known = {"version": __version__, "unready": reason, "requests": accounts, "forecasts": forecasts}
        return _json({**known, "fleet": snapshot})

    async def requests(self, _request: Request) -> Response:
        latest = self._telemetry.decisions.latest(100)
        return _json([{"id": d.request_id, "chosen": d.chosen, "attempt": d.attempt, "at": d.at} for d in latest])

    async def explain(self, request: Request) -> Response:
        name = request.path_params["id"]
        explain = self._telemetry.decisions.explain
        explanation = explain(self._control.running(name) or name) or explain(name)
        if explanation is None:
            return _error(404, "no such request is remembered; only the latest decisions are kept")
        return _json(explanation)

    async def migrate(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return _error(413, f"at most {MAX_BODY_BYTES} bytes")
        try:
            where = msgspec.json.decode(body or b"{}", type=Where)
        except msgspec.DecodeError as error:
            return _error(400, str(error))
        if where.to and where.to not in {view.spec.id for view in self._control.snapshot().views}:
            return _error(404, "no such replica")
        request_id = self._control.migrate(request.path_params["id"], ReplicaId(where.to))
        if not request_id:
            return _error(404, "no such request runs")
        explanation = self._telemetry.decisions.explain(request_id)
        moves = explanation.moves if explanation is not None else ()
        refused = bool(moves) and moves[-1].result == "refused"
        return _json({"id": request_id, "moves": moves}, 409 if refused else 200)

    async def replicas(self, _request: Request) -> Response:
        views = self._control.snapshot().views
        return _json([{"breaker": view.breaker, "draining": view.draining, "replica": view.spec} for view in views])

    async def add(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return _error(413, f"a registration has at most {MAX_BODY_BYTES} bytes")
        try:
            replica = msgspec.json.decode(body, type=NewReplica)
        except msgspec.DecodeError as error:
            return _error(400, str(error))
        added = await self._control.add(replica)
        return _error(400, added.reason) if isinstance(added, Refused) else _json(added, 201)

    async def remove(self, request: Request) -> Response:
        found = await self._control.remove(ReplicaId(request.path_params["id"]))
        return Response(status_code=204) if found else _error(404, "no such replica")

    async def drain(self, request: Request) -> Response:
        return self._drain(request, draining=True)

    async def undrain(self, request: Request) -> Response:
        return self._drain(request, draining=False)

    def _drain(self, request: Request, draining: bool) -> Response:
        replica_id = request.path_params["id"]
        if not self._control.drain(ReplicaId(replica_id), draining):
            return _error(404, "no such replica")
        emptying = next((one for one in self._control.snapshot().emptying if one.replica_id == replica_id), None)
        return _json({"id": replica_id, "draining": draining, "emptying": emptying})

    async def openapi(self, _request: Request) -> Response:
        return _json(document(self._operations))

    async def page(self, request: Request) -> Response:
        return HTMLResponse(page(self._operations, str(request.base_url).rstrip("/")), headers=PAGE_HEADERS)


async def _body(request: Request) -> bytes | None:
    """The request's body, None when it is too long."""
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MAX_BODY_BYTES:
            return None
    return bytes(parts)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value, enc_hook=shown), status, media_type="application/json")


def _error(status: int, message: str) -> Response:
    return _json({"error": {"message": message, "code": status}}, status)
