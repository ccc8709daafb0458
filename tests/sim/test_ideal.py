"""No step is faster than the lines say, and no request needs less than its work."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.perfmodel.calibration import Coefficients
from headway.perfmodel.jump import Stepping
from headway.perfmodel.steptime import Batch
from headway.sim.ideal import Line, ReplicaKind, kind_of, work
from headway.sim.scenario import PoolSpec, Scenario, Truth
from headway.sim.truth import grounds
from tests.sim.fleet import FAST, SLOW, Ask, demands

BENT = [ground.model for ground in grounds(Scenario((PoolSpec(2),), Truth(perturb=0.2)), 3)]
MODELS: list[Stepping] = [FAST, SLOW, *BENT]
KINDS = [kind_of(model, 1, 256, 8192) for model in MODELS]
GRAPH = Coefficients().graph_tokens
FLAT = ReplicaKind(1, (Line(0.0, 0.0, 0.01),), (Line(0.0, 0.0, 0.01),), 0.0)


def seconds(lines: tuple[Line, ...], decoding: int, tokens: int) -> float:
    return max(line.per_request_s * decoding + line.per_prompt_token_s * tokens + line.per_step_s for line in lines)


@pytest.mark.slow
@given(
    st.sampled_from(range(len(MODELS))),
    st.integers(0, 256),
    st.integers(0, 7936),
    st.integers(0, 400_000),
    st.floats(0, 1),
)
@settings(deadline=None, max_examples=300)
def test_no_step_is_below_the_lines_nor_far_above(which: int, r: int, t: int, context: int, inside: float) -> None:
    kind, pairs = KINDS[which], inside * t * 20_000
    if not r:
        t, context = max(1, t), 0
    lines = kind.mixed if r else kind.alone
    least = seconds(lines, r, t) + kind.per_token_s * context + kind.pair_s * pairs
    true = MODELS[which].step_s(Batch(r, context, t, pairs, r + (t > 0)))
    assert least <= true
    # A plane that is below the largest step that a CUDA graph can take cannot be near the next one, which launches its
    # kernels one by one and takes up to twice as long: no convex function of tokens can jump.
    jumped = GRAPH < r + t <= 1.5 * GRAPH
    assert least >= (0.45 if jumped else 0.5) * true


@pytest.mark.parametrize("which", range(len(MODELS)))
@pytest.mark.parametrize("decoding", [0, 1, 100, 256])
def test_lines_touch_the_steps_before_a_jump_and_are_above_none(which: int, decoding: int) -> None:
    """Such a step is the cheapest for what it does, and not on any grid of a few points."""
    kind, step_s = KINDS[which], MODELS[which].step_s
    lines = kind.mixed if decoding else kind.alone
    ratios = [
        seconds(lines, decoding, t) / step_s(Batch(decoding, 0, t, 0.0, decoding + 1))
        for t in range(GRAPH - decoding - 2, GRAPH - decoding + 3)
    ]
    assert max(ratios) < 1.0
    if not decoding:
        assert ratios[2] == pytest.approx(0.999)
        whole = kind.max_num_batched_tokens
        assert seconds(lines, 0, whole) / step_s(Batch(0, 0, whole, 0.0, 1)) == pytest.approx(0.999)


class Leap:
    """A microsecond per token, and so much for the first beyond 512."""

    def __init__(self, leap_s: float) -> None:
        self.leap_s = leap_s

    def step_s(self, batch: Batch) -> float:
        tokens = batch.decode_tokens + batch.prefill_tokens
        return 1e-3 + 1e-6 * tokens + (self.leap_s if tokens > GRAPH else 0.0)


@pytest.mark.slow
@given(st.floats(0.0, 0.05), st.integers(0, 64), st.integers(1, 2048))
@settings(deadline=None, max_examples=30)
def test_no_jump_is_overlooked(leap_s: float, decoding: int, tokens: int) -> None:
    model = Leap(leap_s)
    kind = kind_of(model, 1, 64, 2048)
    least = seconds(kind.mixed if decoding else kind.alone, decoding, tokens)
    assert least <= model.step_s(Batch(decoding, 0, tokens, 0.0, decoding + 1))


def test_work_counts_tokens_contexts_and_attention() -> None:
    kind = msgspec.structs.replace(FLAT, per_token_s=1e-6, pair_s=1e-9, delay_s=0.1, delay_s_per_token=1e-5)
    asks = [Ask(3.0, 5, rest=84, pieces=((1, 1),)), Ask(3.0, 1, rest=100, pieces=((1, 1),))]
    done = work(demands(asks), kind)
    assert done.able.tolist() == [True, True]
    assert done.begins_s[0] == pytest.approx(3.0 + 0.1 + 1e-3)
    assert done.first_s[0] == pytest.approx(3.101 + 0.01 + 1e-9 * 84 * (16 + 42))
    assert done.decoded.tolist() == [4.0, 0.0]
    assert done.read[0] == 100 + 101 + 102 + 103
    assert done.held[0] == 84 + 85 + 86 + 87
    assert done.computed.tolist() == [84.0, 100.0]


def test_a_prompt_cached_in_whole_still_computes_a_token() -> None:
    asks = [Ask(0.0, 5, rest=0, pieces=((1, 4),))] * 2
    assert work(demands(asks), FLAT).computed.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "ask"),
    [
        (msgspec.structs.replace(FLAT, kv_tokens=50), Ask(0.0, 5, rest=50)),
        (msgspec.structs.replace(FLAT, longest=50), Ask(0.0, 5, rest=50)),
        (msgspec.structs.replace(FLAT, delay_s=1.0), Ask(0.0, 5, rest=50)),
        (FLAT, Ask(0.0, 5, rest=50, tpot_s=0.009)),
        (FLAT, Ask(0.0, 5, rest=50, ttft_s=0.009)),
        (msgspec.structs.replace(FLAT, per_token_s=1e-3), Ask(0.0, 5, rest=50)),
    ],
)
def test_who_could_not_be_served_well_even_alone(kind: ReplicaKind, ask: Ask) -> None:
    assert work(demands([Ask(0.0, 5, rest=40), ask]), FLAT).able[0]
    assert work(demands([ask]), kind).able.tolist() == [False]


def test_who_does_not_count_is_not_able() -> None:
    wanted = demands([Ask(0.0, 5)] * 2)
    some = type(wanted)(
        *(getattr(wanted, name) for name in wanted.__dataclass_fields__ if name != "counted"), np.array([True, False])
    )
    assert work(some, FLAT).able.tolist() == [True, False]
