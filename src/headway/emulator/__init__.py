"""An engine without a GPU: the model of `perfmodel` behind vLLM's HTTP API, load reports and manners.

`serve(EmulatorConfig(...))` is one engine process. It runs in real or scaled time, says how far it lags behind its own
clock, and fails on request (`control`). The scheduler, the speed and the words are perfmodel's; none is decided here.
One loop steps the engine (`service`); each HTTP request is a coroutine that waits for its tokens (`job`).
"""

from headway.emulator.config import EmulatorConfig
from headway.emulator.serve import serve

__all__ = ["EmulatorConfig", "serve"]
