"""The prefix index: never more than was inserted, never more than its bounds, and the first block never decides."""

import os
import random
from sys import getsizeof
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.constants import PrefixConfig
from headway.core.ids import ReplicaId
from headway.core.prefix import PrefixIndex

SOAK = os.environ.get("HEADWAY_SOAK") == "1"
A, B, C = ReplicaId("a"), ReplicaId("b"), ReplicaId("c")


def chain(*texts: int) -> tuple[int, ...]:
    """Chained hashes as the wire makes them: equal only if everything before is equal too."""
    return tuple(hash(texts[: k + 1]) & (2**64 - 1) for k in range(len(texts)))


prompts = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(lambda texts: chain(*texts))
inserts = st.lists(st.tuples(st.sampled_from((A, B, C)), prompts), max_size=40)


def common(one: tuple[int, ...], two: tuple[int, ...]) -> int:
    return next((k for k, (x, y) in enumerate(zip(one, two, strict=False)) if x != y), min(len(one), len(two)))


@pytest.mark.slow
@given(seen=inserts, asked=prompts)
@settings(max_examples=150, deadline=None)
def test_finds_exactly_the_longest_prefix_inserted(
    seen: list[tuple[ReplicaId, tuple[int, ...]]], asked: tuple[int, ...]
) -> None:
    index = PrefixIndex()
    for replica, hashes in seen:
        index.insert(replica, hashes)
    enough = 2 if len(asked) > 1 else 1
    best = {r: max((common(h, asked) for s, h in seen if s == r), default=0) for r in (A, B, C)}
    assert index.match(asked) == {r: depth for r, depth in best.items() if depth >= enough}


@pytest.mark.slow
@given(seen=inserts, asked=prompts, limit=st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_bounds_hold_and_never_more_than_inserted(
    seen: list[tuple[ReplicaId, tuple[int, ...]]], asked: tuple[int, ...], limit: int
) -> None:
    index = PrefixIndex(PrefixConfig(max_blocks=limit))
    for replica, hashes in seen:
        index.insert(replica, hashes)
        assert index.blocks(replica) <= limit
    for replica, depth in index.match(asked).items():
        assert depth <= max(common(h, asked) for s, h in seen if s == replica)
    assert index._copies == sum(index.blocks(r) for r in (A, B, C))
    assert all(index._masks.values())


def test_nothing_matches_nothing() -> None:
    index = PrefixIndex()
    assert index.match(()) == index.match(chain(1, 2)) == {}
    index.insert(A, ())
    assert index.match(chain(1, 2)) == {}


def test_first_block_alone_decides_only_for_prompts_of_one_block() -> None:
    index = PrefixIndex()
    index.insert(A, chain(1, 2, 3))
    assert index.match(chain(1, 9, 9)) == {}
    assert index.match(chain(1, 2, 9)) == {A: 2}
    assert index.match(chain(1)) == {A: 1}


def test_bound_is_exact_and_least_recently_used_goes_first() -> None:
    index = PrefixIndex(PrefixConfig(max_blocks=8))
    old, hot, new = chain(1, 1, 1), chain(2, 2, 2), chain(3, 3, 3, 3)
    index.insert(A, old)
    index.insert(A, hot)
    index.insert(A, hot)
    assert index.blocks(A) == 6
    index.insert(A, new)
    assert index.blocks(A) == 8, "ten less the two oldest"
    assert index.match(old) == {}
    assert index.match(hot) == {A: 3}
    assert index.match(new) == {A: 4}


def test_a_prefix_outlives_what_builds_on_it() -> None:
    index = PrefixIndex(PrefixConfig(max_blocks=5))
    index.insert(A, chain(1, 2, 3, 4, 5))
    index.insert(A, chain(7, 8))
    assert index.match(chain(1, 2, 3, 4, 5)) == {A: 3}


def test_prompt_longer_than_the_bound_keeps_its_head() -> None:
    index = PrefixIndex(PrefixConfig(max_blocks=4))
    index.insert(A, chain(*range(10)))
    assert index.match(chain(*range(10))) == {A: 4}


def test_forget_forgets_one_replica_and_frees_its_bit() -> None:
    index, prompt = PrefixIndex(), chain(1, 2, 3)
    for replica in (A, B):
        index.insert(replica, prompt)
    index.forget(A)
    assert index.match(prompt) == {B: 3}
    assert index.blocks(A) == 0
    index.insert(C, chain(1, 2))
    assert index.match(prompt) == {B: 3, C: 2}, "the bit of the departed now names another"
    assert max(index._masks.values()) <= 3, "masks stay short"
    for replica in (B, C, A):
        index.forget(replica)
    assert index.bytes_estimate == 0
    assert not index._masks


def test_resize_never_believes_more_than_the_pool_holds() -> None:
    index = PrefixIndex(PrefixConfig(block_bytes=512))
    index.insert(A, chain(*range(100)))
    index.resize(A, 1280, 4.0)
    assert index.blocks(A) == 10
    assert index.match(chain(*range(100))) == {A: 10}
    index.insert(A, chain(*range(50, 150)))
    assert index.blocks(A) <= 10
    index.resize(A, 0, 4.0)
    index.insert(A, chain(*range(100)))
    assert index.blocks(A) >= 100, "unknown capacity: the general bound"
    index.resize(A, 1, 4.0)
    assert index.blocks(A) == 1


def test_bytes_are_capped_at_every_insert_and_the_largest_gives_way() -> None:
    cap = 200_000
    index, rng = PrefixIndex(PrefixConfig(max_bytes=cap)), random.Random(1)
    index.insert(B, chain(1, 2, 3))
    for _ in range(500):
        index.insert(A, tuple(rng.getrandbits(64) for _ in range(8)))
        assert index.bytes_estimate <= cap
    assert index.match(chain(1, 2, 3)) == {B: 3}


@pytest.mark.slow
def test_case_155_churn_with_shared_prefixes_stays_flat() -> None:
    """Prompts that leave a template at random depths (2 M blocks when soaking, here 48,000): nothing is left behind."""
    index, rng = PrefixIndex(PrefixConfig(max_blocks=256)), random.Random(2)
    count = 170_000 if SOAK else 4_000
    sizes = []
    for k in range(count):
        cut = rng.randint(0, 12)
        index.insert(A, chain(*range(cut), *(rng.getrandbits(30) for _ in range(12 - cut))))
        if k >= count // 2:
            sizes.append(len(index._masks))
    assert max(sizes) == max(sizes[:1000]) <= 256
    assert len(index._masks) == index.blocks(A)


def held_bytes(index: PrefixIndex) -> int:
    """What the index really takes: its tables and the hashes and masks in them."""
    tables = [index._masks, *(shelf.blocks for shelf in index._shelves.values())]
    numbers = {id(number): getsizeof(number) for table in tables for number in table}
    numbers |= {id(mask): getsizeof(mask) for mask in index._masks.values()}
    return sum(map(getsizeof, tables)) + sum(numbers.values())


@pytest.mark.slow
def test_case_154_a_burst_of_unique_prompts_never_exceeds_the_cap() -> None:
    """50,000 prompts of 200 kB when soaking, here 400: real memory stays below the cap and a fifth, all the time."""
    cap = (64 if SOAK else 4) * 1024 * 1024
    index, rng = PrefixIndex(PrefixConfig(max_bytes=cap)), random.Random(4)
    replicas = [ReplicaId(f"r{k}") for k in range(16)]
    count = 50_000 if SOAK else 400
    for k in range(count):
        index.insert(replicas[k % 16], tuple(rng.getrandbits(64) for _ in range(200_000 // 512)))
        if k % (count // 40) == 0:
            assert held_bytes(index) < 1.2 * cap
    assert held_bytes(index) > 0.5 * cap, "and it is made use of"


def test_decoded_sets_are_remembered_within_bounds() -> None:
    index = PrefixIndex(PrefixConfig(decoded=4))
    for k in range(20):
        for j in range(k + 1):
            index.insert(ReplicaId(f"r{j}"), chain(k, 1))
    for k in range(20):
        assert index.match(chain(k, 1)) == {f"r{j}": 2 for j in range(k + 1)}
    assert len(index._decoded) <= 4


class TestTrust:
    def test_starts_whole_for_strangers_too(self) -> None:
        assert PrefixIndex().trust(A) == 1.0
        PrefixIndex().correct(A, 100, 50)

    def test_follows_measurements_and_recovers(self) -> None:
        index = PrefixIndex()
        index.insert(A, chain(1, 2))
        for _ in range(200):
            index.correct(A, 2000, 500)
        assert index.trust(A) == pytest.approx(0.25, abs=0.05)
        for _ in range(200):
            index.correct(A, 2000, 2500)
        assert index.trust(A) == pytest.approx(1.0, abs=0.05)
        assert index.trust(A) <= 1.0

    def test_a_missing_report_is_not_zero(self) -> None:
        """Engines that do not report cached tokens look like engines that cached nothing."""
        index = PrefixIndex()
        index.insert(A, chain(1, 2))
        for _ in range(50):
            index.correct(A, 2000, 0)
        assert index.trust(A) == 1.0
        index.correct(A, 2000, 1500)
        for _ in range(50):
            index.correct(A, 2000, 0)
        assert index.trust(A) < 0.2

    def test_predictions_of_nothing_say_nothing(self) -> None:
        index = PrefixIndex()
        index.insert(A, chain(1, 2))
        index.correct(A, 0, 300)
        index.correct(A, 2000, 0)
        assert index.trust(A) == 1.0


@pytest.mark.slow
def test_l9_a_million_inserts_under_the_cap_with_fast_lookups() -> None:
    """1 M inserts of 8 blocks when soaking, here an eighth; memory as it is estimated, and as it really is."""
    index, rng = PrefixIndex(), random.Random(3)
    replicas = [ReplicaId(f"r{k}") for k in range(16)]
    taken, last = [], [0] * 8
    count = 1_000_000 if SOAK else 125_000
    for k in range(count):
        last = [rng.getrandbits(64) for _ in range(8)]
        index.insert(replicas[k % 16], tuple(last))
        if k % 50 == 0:
            before = perf_counter()
            index.match(tuple(last))
            taken.append(perf_counter() - before)
    assert max(held_bytes(index), index.bytes_estimate) <= 64 * 1024 * 1024
    assert held_bytes(index) < 1.1 * index.bytes_estimate
    assert all(index.blocks(r) <= 16_384 for r in replicas)
    assert index.match(tuple(last)) == {replicas[(count - 1) % 16]: 8}
    assert sorted(taken)[int(0.99 * len(taken))] < 0.001
