"""How to start vLLM on the CPU with the tiny model. Needs `.venv-vllm`, made by install_vllm.sh (2.5 GB; opt-in)."""

import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from headway.engines.vllm import PLUGIN
from tests.real import tiny_model
from tests.real.engines import Engine, EnginePair, Launcher, free_port
from tests.real.tiny_hf import make

ASKED_FOR = os.environ.get("HEADWAY_REAL_ENGINE") == "vllm"
PYTHON = Path(__file__).parents[2] / ".venv-vllm/bin/python"
CONTEXT_TOKENS = 8192
FLAGS = (
    "--dtype",
    "float32",
    "--enforce-eager",
    "--max-num-seqs",
    "4",
    "--enable-prefix-caching",
    "--block-size",
    "32",
)
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",  # the wheel's version does not say so, and no other device is found
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def launcher(folder: Path, *flags: str, tiny: ModuleType = tiny_model, **environment: str) -> Launcher:
    """The launcher; makes the model in `folder`. Two servers take 25 to 90 s to start and 3 GB of memory.

    Of a flag that is given twice vLLM takes the last, so `flags` win.
    """
    if not PYTHON.exists():
        pytest.fail("vLLM is not installed: run tests/real/install_vllm.sh, or make test-vllm")
    model = make(folder / "tiny", tiny)
    serve = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", "{port}"]
    names = ["--model", str(model), "--served-model-name", "tiny", "--max-model-len", str(CONTEXT_TOKENS)]
    return Launcher(
        dialect=PLUGIN.factory(None),
        model="tiny",
        command=[*serve, *names, *FLAGS, *flags],
        environment={**ENVIRONMENT, **environment},
        slots=4,
        context_tokens=CONTEXT_TOKENS,
        start_s=180.0,
        long_tokens=3000,
        go_on={"ignore_eos": True},
        leave_s=4.0,
    )


def pair(folder: Path, *flags: list[str]) -> EnginePair:
    """One engine per list of flags, with the endpoints for developers (/sleep, /pause and their like) open."""
    engines = []
    for number, own in enumerate(flags):
        one = launcher(folder, *own, VLLM_SERVER_DEV_MODE="1")
        engines.append(Engine(one, free_port(), folder / f"engine-{number}.log"))
    return EnginePair(engines[0].launcher, engines)


def connected(folder: Path, tiny: ModuleType) -> EnginePair:
    """Two engines that can fetch each other's KV (NIXL's connector; on the CPU it copies through shared memory)."""
    wanted = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    words = json.dumps(wanted).replace("{", "{{").replace("}", "}}")  # the launcher fills in names in braces
    engines = []
    for number in range(2):
        side = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        one = launcher(folder, "--kv-transfer-config", words, tiny=tiny, **side)
        engines.append(Engine(one, free_port(), folder / f"engine-{number}.log"))
    return EnginePair(engines[0].launcher, engines)
