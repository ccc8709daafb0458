"""The routes of the admin API. Handlers read a snapshot or ask `Control`; answers are JSON unless a route says so."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from headway import __version__
from headway.admin.answers import Draining, Failed, Fault, Fleet, Health, Moves, Ready, Recent, Registered
from headway.admin.control import Added, Control, NewReplica, Refused, Where
from headway.admin.guard import Guard
from headway.admin.openapi import Operation, document, page
from headway.core.ids import ReplicaId
from headway.core.snapshot import FleetSnapshot, shown
from headway.core.view import Breaker
from headway.telemetry import Telemetry
from headway.telemetry.decisions import Explanation

MAX_BODY_BYTES = 64 * 1024
"""A registration is some hundred bytes."""

PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}

READY = "New clients are welcome; else 503 and why not."
FLEET = "Every replica: load, headroom, sample age, health; the queue."
EXPLAIN = "Why a request went where, and how it turned out."
MIGRATE = "Let another replica go on with it."
TO = '{"to": "10.0.0.7:8000"}'
ADD = "Register a replica."
REGISTER = '{"url": "http://10.0.0.7:8000"}'
REMOVE = "Forget a replica; answers that have begun go on, requests without a first byte go elsewhere."
DRAIN, UNDRAIN = "Send no new requests there.", "Send new requests there again."

Handler = Callable[[Request], Awaitable[Response]]


def make_app(control: Control, telemetry: Telemetry, token: str = "") -> Guard:
    """The admin API as an ASGI app, behind its guard."""
    routes = _Handlers(control, telemetry).routes()
    app = Starlette(
        routes=[Route(o.path, handler, methods=[o.method], name=o.summary) for o, handler in routes],
        exception_handlers={HTTPException: _not_there, Exception: _broken},
    )
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
        o, missing = Operation, {404: Failed}
        moves = {400: Failed, 404: Failed, 409: Moves, 413: Failed}
        adds = {400: Failed, 413: Failed}
        table: list[tuple[Operation, Handler]] = [
            (o("GET", "/healthz", "The process is alive.", gives=Health, token=False), self.healthz),
            (o("GET", "/readyz", READY, gives=Ready, others={503: Ready}, token=False), self.readyz),
            (o("GET", "/metrics", "Prometheus metrics.", media="text/plain"), self.metrics),
            (o("GET", "/fleet", FLEET, gives=Fleet), self.fleet),
            (o("GET", "/requests", "The most recent decisions.", gives=list[Recent]), self.requests),
            (o("GET", "/requests/{id:path}/explain", EXPLAIN, gives=Explanation, others=missing), self.explain),
            (o("POST", "/requests/{id:path}/migrate", MIGRATE, Where, TO, gives=Moves, others=moves), self.migrate),
            (o("GET", "/replicas", "Registered replicas.", gives=list[Registered]), self.replicas),
            (o("POST", "/replicas", ADD, NewReplica, REGISTER, status=201, gives=Added, others=adds), self.add),
            (o("DELETE", "/replicas/{id:path}", REMOVE, media="", status=204, others=missing), self.remove),
            (o("POST", "/replicas/{id:path}/drain", DRAIN, gives=Draining, others=missing), self.drain),
            (o("POST", "/replicas/{id:path}/undrain", UNDRAIN, gives=Draining, others=missing), self.undrain),
            (o("GET", "/openapi.json", "This description."), self.openapi),
            (o("GET", "/", "This description as a page.", media="text/html"), self.page),
        ]
        self._operations = [operation for operation, _ in table]
        return table

    async def healthz(self, _request: Request) -> Response:
        return _json(Health("ok", __version__))

    async def readyz(self, _request: Request) -> Response:
        reason = unready(self._control.snapshot(), self._control.draining)
        return _json(Ready(not reason, reason), 503 if reason else 200)

    async def metrics(self, _request: Request) -> Response:
        page = self._telemetry.render(self._control.snapshot())
        return Response(page, media_type="text/plain; version=0.0.4")

    async def fleet(self, _request: Request) -> Response:
        snapshot = self._control.snapshot()
        accounts = {"started": self._telemetry.requests_started, **self._telemetry.accounts}
        reason = unready(snapshot, self._control.draining)
        return _json(Fleet(__version__, reason, accounts, self._telemetry.forecasts.summary(), snapshot))

    async def requests(self, _request: Request) -> Response:
        latest = self._telemetry.decisions.latest(100)
        return _json([Recent(d.request_id, d.chosen, d.attempt, d.at) for d in latest])

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
        return _json(Moves(request_id, moves), 409 if refused else 200)

    async def replicas(self, _request: Request) -> Response:
        views = self._control.snapshot().views
        return _json([Registered(view.breaker, view.draining, view.spec) for view in views])

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
        return _json(Draining(replica_id, draining, emptying))

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
    return _json(Failed(Fault(message, status)), status)


async def _not_there(_request: Request, error: Exception) -> Response:
    """What the router says of paths and methods that do not exist."""
    assert isinstance(error, HTTPException)
    allow = (error.headers or {}).get("allow", "")
    answer = _error(error.status_code, f"this path takes {allow} only" if allow else "there is nothing at this path")
    answer.headers.update(error.headers or {})
    return answer


async def _broken(_request: Request, _error_of_ours: Exception) -> Response:
    """The server logs it."""
    return _error(500, "the gateway failed at this; its log says why")
