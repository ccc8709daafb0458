"""Body one, the data plane: HTTP/1.1 from clients, the brain's decisions carried out, bytes passed to engines and back.

A request's way through the files: `protocol` reads it (`head`, `framing`), `intake` tells what it says, `exchange` sees
it through, `driver` asks the brain, `upstream` talks to the engine, `relay` decides when bytes pass, `outlet` writes
them. Everything is synchronous callbacks: no coroutine, no task and no brain call per chunk.
"""

from headway.gateway.config import GatewayConfig
from headway.gateway.gateway import Gateway

__all__ = ["Gateway", "GatewayConfig"]
