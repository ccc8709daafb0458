"""How to start llama.cpp's server on the tiny model: its own C++ HTTP server, from the package xllamacpp."""

import sys
from pathlib import Path
from types import ModuleType

from headway.engines.llamacpp import PLUGIN
from tests.real import tiny_model
from tests.real.engines import Launcher

SLOTS = 2
CONTEXT_TOKENS = 8192


def launcher(folder: Path, tiny: ModuleType = tiny_model) -> Launcher:
    """The launcher; makes the model file in `folder`, and a folder beside it where slots are saved."""
    from tests.real.tiny_gguf import make  # needs the extra `engines`

    model = make(folder / "tiny.gguf", tiny)
    slots = folder / "slots"
    slots.mkdir(exist_ok=True)
    script = Path(__file__).with_name("llama_server.py")
    return Launcher(
        dialect=PLUGIN.factory(None),
        model="tiny",
        command=[sys.executable, str(script), str(model), "{port}", str(SLOTS), str(CONTEXT_TOKENS), str(slots)],
        environment={},
        slots=SLOTS,
        context_tokens=CONTEXT_TOKENS,
        start_s=30.0,
        hears_plain_leave=False,  # measured: it goes on to the limit, without Headway too
    )
