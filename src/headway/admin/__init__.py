"""The operator's side: health, metrics, the fleet, explanations, registration of replicas. On a port of its own.

It reads snapshots and asks through `control.Control`; it holds neither the brain nor the data plane, and no engine can
be reached through it. Everything is denied unless a route says otherwise (`guard`).
"""

from headway.admin.app import make_app
from headway.admin.control import Added, Control, Refused
from headway.admin.guard import Guard, binding_problem
from headway.admin.server import AdminServer

__all__ = ["Added", "AdminServer", "Control", "Guard", "Refused", "binding_problem", "make_app"]
