"""The mailbox between the engine's loop and a request: nothing lost, nothing after the end."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from headway.emulator.errors import DEAD
from headway.emulator.job import Job
from headway.perfmodel.vocabulary import IDS
from tests.emulator.test_transcript import PLAIN

THE, OF = IDS[b" the"], IDS[b" of"]
Run = Callable[[Any], Any]


def test_tokens_that_came_together_are_taken_together(run: Run) -> None:
    async def body() -> None:
        job = Job("a", PLAIN)
        job.post(0, THE, "", None)
        job.post(0, OF, "length", None)
        assert await job.take() == {0}
        assert (job.said[0].text, job.left, job.completion_tokens) == (" the of", 0, 2)

    run(body())


def test_waiting_ends_with_the_first_token(run: Run) -> None:
    async def body() -> None:
        job = Job("a", PLAIN)
        asyncio.get_running_loop().call_later(0.001, job.post, 0, THE, "", None)
        assert await job.take() == {0}
        assert job.left == 1

    run(body())


def test_choices_are_kept_apart_and_end_once(run: Run) -> None:
    async def body() -> None:
        job = Job("a", msgspec.structs.replace(PLAIN, n=2, stop=("the",)))
        job.post(0, THE, "", None)
        job.post(0, OF, "", None)  # the engine had not heard of the stop string yet
        job.post(1, OF, "", None)
        assert await job.take() == {0, 1}
        assert [one.ids for one in job.said] == [[THE], [OF]]
        assert job.left == 1
        job.end("abort")
        assert await job.take() == {1}
        assert [one.finish for one in job.said] == ["stop", "abort"]
        assert job.left == 0

    run(body())


def test_a_failure_wakes_too(run: Run) -> None:
    async def body() -> None:
        job = Job("a", PLAIN)
        asyncio.get_running_loop().call_later(0.001, job.fail, DEAD)
        assert await job.take() == set()
        assert job.failure is DEAD

    run(body())


def test_usage_counts_a_prompt_once_and_every_choice() -> None:
    job = Job("a", msgspec.structs.replace(PLAIN, prompts=[[5, 6], [7]], n=3))
    assert (job.prompt_tokens, len(job.said), job.cached_tokens) == (3, 6, 0)
    assert list(job.prompts) == [[5, 6]] * 3 + [[7]] * 3
