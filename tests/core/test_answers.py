"""The mean answer of a window, and a new window."""

import math

from headway.core.answers import Answers
from headway.core.entries import Answered


def numbers(a: Answered) -> tuple[float, ...]:
    return a.prefilled, a.steps, a.running, a.context, a.seconds


def test_one_observation_stands_for_many_answers() -> None:
    answers = Answers(5.0)
    assert (answers.since, answers.step_told_at, answers.prefill_told_at) == (5.0, -math.inf, -math.inf)
    answers.add(Answered(100.0, 10.0, 1.0, 200.0, 0.5))
    answers.add(Answered(300.0, 30.0, 3.0, 400.0, 1.5))
    assert numbers(answers.take(7.0)) == (200.0, 20.0, 2.0, 300.0, 1.0)
    assert answers.since == 7.0
    answers.add(Answered(1.0, 2.0, 3.0, 4.0, 5.0))
    assert numbers(answers.take(8.0)) == (1.0, 2.0, 3.0, 4.0, 5.0), "nothing is left of the first"
