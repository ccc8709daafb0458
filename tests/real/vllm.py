"""How to start vLLM on the CPU with the tiny model. Needs `.venv-vllm`, made by install_vllm.sh (2.5 GB; opt-in)."""

from pathlib import Path

import pytest

from headway.engines.vllm import PLUGIN
from tests.real.engines import Launcher
from tests.real.tiny_hf import make

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


def launcher(folder: Path) -> Launcher:
    """The launcher; makes the model in `folder`. Two servers take 25 to 45 s to start and 3 GB of memory."""
    if not PYTHON.exists():
        pytest.fail("vLLM is not installed: run tests/real/install_vllm.sh, or make test-vllm")
    model = make(folder / "tiny")
    serve = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", "{port}"]
    names = ["--model", str(model), "--served-model-name", "tiny", "--max-model-len", str(CONTEXT_TOKENS)]
    return Launcher(
        dialect=PLUGIN.factory(None),
        model="tiny",
        command=[*serve, *names, *FLAGS],
        environment=ENVIRONMENT,
        slots=4,
        context_tokens=CONTEXT_TOKENS,
        start_s=180.0,
        long_tokens=400,
        go_on={"ignore_eos": True},
    )
