"""Looking around on this machine, for a first try without any settings."""

from headway.compose.plan import Plan
from headway.coordinate.local import Local, Look
from headway.coordinate.registry import replica_name
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec
from headway.observe.detect import Undetected, detect
from headway.runtime import http

LOOK_S = 2.0
"""Patience with one port; an engine on this machine answers in milliseconds unless it is starting."""


async def look_around(plan: Plan) -> tuple[Look, ...]:
    """What listens at the usual ports of every engine."""
    async with http.client(connect_s=LOOK_S) as client:

        async def ask(url: str) -> ReplicaSpec | Undetected:
            suggestion = ReplicaId(replica_name(url))
            return await detect(url, plan.dialects.values(), client, replica_id=suggestion, timeout_s=LOOK_S)

        return await Local(plan.dialects.values(), ask).look()
