"""The emulator's own port: set faults, heal them, look inside. Not part of any engine's API; keep it on loopback.

POST   /faults   {"kind": "slow", "factor": 5, "after_tokens": 0, "for_s": 0}
DELETE /faults   everything that lasts is healed (?kind=slow: only that)
GET    /state    blocks, queues, totals, lag, active faults
"""

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headway.emulator.faults import Fault, FaultKind
from headway.emulator.respond import ok
from headway.emulator.service import Service


class Control:
    """The control routes of one engine."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def app(self) -> Starlette:
        """The ASGI application."""
        routes = [
            Route("/faults", self._set, methods=["POST"]),
            Route("/faults", self._heal, methods=["DELETE"]),
            Route("/state", self._state, methods=["GET"]),
        ]
        return Starlette(routes=routes)

    async def _set(self, request: Request) -> Response:
        try:
            fault = msgspec.json.decode(await request.body(), type=Fault)
        except msgspec.DecodeError as error:
            return ok({"error": str(error), "kinds": list(FaultKind)}, 400)
        self._service.set_fault(fault)
        return ok({"set": fault})

    async def _heal(self, request: Request) -> Response:
        kind = request.query_params.get("kind")
        if kind is not None and kind not in list(FaultKind):
            return ok({"error": f"unknown fault {kind!r}", "kinds": list(FaultKind)}, 400)
        self._service.heal(FaultKind(kind) if kind else None)
        return ok({"active": list(self._service.active)})

    async def _state(self, _request: Request) -> Response:
        return ok(state(self._service))


def state(service: Service) -> dict[str, object]:
    """What a test or a demo wants to know, without scraping."""
    stats = service.engine.stats()
    pool = service.engine.pool
    return {
        **msgspec.structs.asdict(stats),
        "kv_tokens": stats.kv_blocks * service.machine.sizes.block_size,
        "free_blocks": pool.free,
        "max_num_seqs": service.machine.sizes.max_num_seqs,
        "max_model_len": service.machine.sizes.max_model_len,
        "time_scale": service.pace.scale,
        "clock_lag_ratio": service.pace.lag_ratio,
        "clock_lost_s": service.pace.lost_total_s,
        "dead": service.dead,
        "faults": list(service.active),
    }
