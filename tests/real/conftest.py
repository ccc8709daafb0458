"""The engines of the suite: llama.cpp by default, vLLM with HEADWAY_REAL_ENGINE=vllm (`make test-vllm`)."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.real import vllm
from tests.real.clients import client_of
from tests.real.engines import EnginePair, Launcher
from tests.real.headway_process import Headway


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here drives real engine processes."""
    for item in items:
        if "tests/real/" in item.nodeid:
            item.add_marker(pytest.mark.engines)


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    """How to start the engine under test."""
    folder = tmp_path_factory.mktemp("engine")
    if vllm.ASKED_FOR:
        return vllm.launcher(folder)
    pytest.importorskip("xllamacpp", reason="llama.cpp's server is not installed (extra: engines)")
    pytest.importorskip("gguf", reason="the model writer is not installed (extra: engines)")
    from tests.real import llama

    return llama.launcher(folder)


@pytest.fixture(scope="session")
def _processes(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnginePair]:
    pair = EnginePair.make(launcher, tmp_path_factory.mktemp("logs"))
    try:
        yield pair
    finally:
        pair.end()


@pytest.fixture
def pair(_processes: EnginePair) -> EnginePair:
    """Two healthy engines with nothing to do; what an earlier test killed runs again."""
    _processes.revive()
    _processes.wait_until_idle()
    return _processes


@pytest.fixture(scope="session")
def _gateway(_processes: EnginePair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headway]:
    headway = Headway([engine.url for engine in _processes.engines], tmp_path_factory.mktemp("gateway") / "log")
    headway.start()
    try:
        yield headway
    finally:
        status = headway.stop()
    assert status == 0, headway.log.read_text()[-2000:]


@pytest.fixture
def headway(_gateway: Headway, pair: EnginePair) -> Iterator[Headway]:
    """The gateway in front of both engines; after the test its accounts must balance and the engines be idle."""
    _gateway.wait_until_usable(len(pair.engines))
    yield _gateway
    _gateway.accounts()
    pair.wait_until_idle()


@pytest.fixture
def sdk(headway: Headway) -> Iterator[OpenAI]:
    """A client of the gateway."""
    with client_of(headway.base_url) as client:
        yield client
