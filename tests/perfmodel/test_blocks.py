"""Blocks are conserved, shared by count, found by key, and evicted least recently released first."""

from hypothesis import given
from hypothesis import strategies as st

from headway.perfmodel.blocks import BlockPool


def test_a_released_block_is_found_until_it_is_handed_out_again() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.name(block, 77)
    pool.release([block])
    assert pool.free == 2
    assert pool.find([77, 78]) == [block]
    pool.allocate(2)
    assert pool.find([77]) == []


def test_sharing_takes_a_free_block_off_the_list_once() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(2)
    pool.name(blocks[0], 1)
    pool.release(blocks)
    assert pool.idle(pool.find([1])) == 1
    pool.share(pool.find([1]))
    pool.share(pool.find([1]))
    assert pool.used == 1
    assert pool.idle(pool.find([1])) == 0
    pool.release([blocks[0]])
    assert pool.used == 1
    pool.release([blocks[0]])
    assert pool.used == 0


def test_the_tail_of_a_prefix_is_evicted_before_its_head() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(3)
    for key, block in enumerate(blocks):
        pool.name(block, key)
    pool.release(blocks)
    pool.allocate(1)
    assert pool.find([0, 1, 2]) == blocks[:2]


def test_equal_content_is_kept_once() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.name(first, 5)
    pool.name(second, 5)
    assert pool.find([5]) == [first]
    pool.release([first, second])
    assert pool.cached == 1


def test_everything_can_be_forgotten() -> None:
    pool = BlockPool(2)
    blocks = pool.allocate(2)
    pool.name(blocks[0], 5)
    pool.forget_all()
    assert (pool.cached, pool.used) == (0, 2)


@given(st.lists(st.tuples(st.sampled_from(["take", "give", "name", "share"]), st.integers(0, 5)), max_size=60))
def test_no_block_is_lost_or_doubled(moves: list[tuple[str, int]]) -> None:
    pool = BlockPool(6)
    held: list[list[int]] = []
    for move, number in moves:
        if move == "take" and pool.free >= number:
            held.append(pool.allocate(number))
        elif move == "give" and held:
            pool.release(held.pop(number % len(held)))
        elif move == "name" and held and held[-1]:
            pool.name(held[-1][0], number)
        elif move == "share":
            pool.share(found := pool.find([number]))
            held.append(found)
        distinct = {block for blocks in held for block in blocks}
        assert pool.used == len(distinct)
        assert pool.free + pool.used == 6
    for blocks in held:
        pool.release(blocks)
    assert pool.free == 6
