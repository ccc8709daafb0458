"""Sums over those who decode are what a walk over all of them, step by step, would find."""

from hypothesis import given
from hypothesis import strategies as st

from headway.perfmodel.decoding import Decoding, Job

SIZE = 4
jobs = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 40), st.integers(0, 6)), min_size=1, max_size=6)


def batch(asked: list[tuple[int, int, int]]) -> tuple[Decoding, list[Job]]:
    """Each (prompt, output, steps done before it began)."""
    decoding, running = Decoding(SIZE), []
    for number, (prompt, output, before) in enumerate(asked):
        for done in decoding.advance(before) if decoding.count else ():
            running.remove(done)
        job = Job(str(number), prompt, output, (), 0.0)
        job.computed = prompt - 1
        decoding.start(job)
        running.append(job)
    return decoding, running


def needed(running: list[Job], step: int, steps: int) -> int:
    """Blocks that these steps need, counted one by one."""
    return sum((job.length - 1 + step + ahead - job.since) % SIZE == 0 for job in running for ahead in range(steps))


@given(jobs, st.integers(0, 23))
def test_blocks_for_steps_are_those_of_each_step(asked: list[tuple[int, int, int]], steps: int) -> None:
    decoding, running = batch(asked)
    assert decoding.blocks_for(steps) == needed(running, decoding.step, steps)
    assert decoding.blocks_now() == needed(running, decoding.step, 1)


@given(jobs, st.integers(0, 30))
def test_free_blocks_last_for_as_many_steps_as_they_say(asked: list[tuple[int, int, int]], free: int) -> None:
    decoding, running = batch(asked)
    steps = decoding.steps_within(free)
    assert steps == 1 or needed(running, decoding.step, steps) <= free
    assert needed(running, decoding.step, steps + 1) > free


@given(jobs)
def test_whoever_stops_is_as_far_as_it_decoded_and_leaves_nothing_behind(asked: list[tuple[int, int, int]]) -> None:
    decoding, running = batch(asked)
    assert decoding.context == sum(job.length + decoding.step - job.since for job in running)
    for job in running:
        tokens = job.tokens(decoding.step)
        decoding.stop(job)
        assert (job.generated, job.length) == (tokens, job.prompt + tokens)
        assert job.own == -(-job.computed // SIZE)
    assert (decoding.count, decoding.context, decoding.blocks_for(SIZE)) == (0, 0, 0)
