"""What every test may use: the recordings beside the project, and a way to run coroutines on uvloop."""

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import uvloop

BOUND_S = 2400 if os.environ.get("HEADWAY_SOAK") == "1" else 60
SHARED = Path(__file__).resolve().parents[2] / "shared"

EXPLORES = "1" in (os.environ.get("HEADWAY_EXPLORE"), os.environ.get("HEADWAY_SOAK"))
"""Whether properties are tried on other examples than last time. Else a failure is the fault of what was changed."""

# how long an example takes depends on who else is at work
hypothesis.settings.register_profile("house", deadline=None, derandomize=not EXPLORES)
hypothesis.settings.load_profile("house")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings and traces; the test is skipped where it is absent, and fails if it was promised."""
    if not SHARED.is_dir():
        if os.environ.get("HEADWAY_REQUIRE_SHARED") == "1":
            pytest.fail("the recordings were promised (HEADWAY_REQUIRE_SHARED=1) but are not beside the project")
        pytest.skip("recordings of real engines are not beside the project")
    return SHARED


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run a coroutine on a fresh uvloop, with a bound in time, and fail if it leaves tasks behind, or an exception that
    nobody asked for (a script of an engine that raises looks like an engine that hangs)."""

    def runner(coroutine: Coroutine[Any, Any, Any], within_s: float = BOUND_S) -> Any:
        unheard: list[dict[str, Any]] = []

        async def bounded() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unheard.append(context))
            async with asyncio.timeout(within_s):
                result = await coroutine
            left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and not t.done()]
            assert not left, f"tasks left behind: {left}"
            return result

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            result = loop.run(bounded())
            gc.collect(0)  # a task that failed says so when it is collected
        assert not unheard, unheard
        return result

    return runner
