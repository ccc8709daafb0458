"""What a gateway and an engine see of one workload."""

from hypothesis import given
from hypothesis import strategies as st

from headway.core.constants import PrefixConfig
from headway.sim.prompt import prompts
from headway.workload.request import Request, Segment

PARTS = st.lists(st.builds(Segment, st.integers(0, 5), st.integers(1, 900)), min_size=1, max_size=6).map(tuple)


def shared(a: tuple[object, ...], b: tuple[object, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(one=PARTS, two=PARTS)
def test_both_sides_share_exactly_the_common_segments(one: tuple[Segment, ...], two: tuple[Segment, ...]) -> None:
    first, second = prompts([Request(0.0, one, 5), Request(1.0, two, 5)])
    same = shared(one, two)
    tokens = sum(segment.tokens for segment in one[:same])
    pieces = first.pieces[: shared(first.pieces, second.pieces)]
    assert sum(blocks for _, blocks in pieces) == tokens // 16
    assert sum(blocks for _, blocks in first.pieces) == first.tokens // 16
    common = prompts([Request(0.0, one[:same], 5)])[0].bytes if same else 0
    blocks = shared(first.hashes, second.hashes)
    assert blocks >= common // PrefixConfig().block_bytes
    if same == min(len(one), len(two)) or one[same].key != two[same].key:
        assert blocks == common // PrefixConfig().block_bytes or same == len(one) == len(two)


def test_bytes_are_no_multiple_of_tokens_and_average_at_the_ratio() -> None:
    found = prompts([Request(0.0, (Segment(key, 1000),), 1) for key in range(400)], bytes_per_token=4.0, noise=0.15)
    ratios = [prompt.bytes / prompt.tokens for prompt in found]
    assert len(set(ratios)) > 300
    assert 3.9 < sum(ratios) / len(ratios) < 4.2
    assert min(ratios) < 3.2 < 5.0 < max(ratios)
