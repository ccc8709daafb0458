"""The scheduler's promises: budgets kept, blocks conserved, no token lost by preemption, first come first served."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.perfmodel import catalogue
from headway.perfmodel.engine import Engine, EngineConfig, StepResult
from headway.perfmodel.sequence import Request
from headway.perfmodel.steptime import StepModel
from headway.perfmodel.tokens import TokenStream
from headway.perfmodel.vocabulary import EOS, SIZE

STEPS = StepModel(catalogue.model("llama-3.1-8b"), catalogue.gpu("h100-80gb"))


def engine(**config: int | bool | str) -> Engine:
    return Engine(EngineConfig(**{"kv_blocks": 1000, **config}), STEPS)  # type: ignore[arg-type]


def ask(name: str, length: int = 20, seed: int = 0, **options: object) -> Request:
    """A request with a prompt of its own (or of its seed's)."""
    prompt = [(seed * 7919 + place * 31) % (SIZE - 300) + 300 for place in range(length)]
    return Request(name, prompt, **{"max_tokens": 10, "ignore_eos": True, **options})  # type: ignore[arg-type]


def drain(one: Engine, limit: int = 5000) -> tuple[dict[str, list[int]], list[StepResult]]:
    """Step until idle; what everybody said, and every step."""
    said: dict[str, list[int]] = {}
    steps = []
    now = 0.0
    while one.busy:
        steps.append(step := one.step(now))
        now += step.duration_s
        for sequence, token in step.outputs:
            said.setdefault(sequence.id, []).append(token)
        assert len(steps) < limit, "the engine does not come to an end"
    return said, steps


def expected(request: Request) -> list[int]:
    stream = TokenStream(request.prompt)
    said: list[int] = []
    for _ in range(request.max_tokens):
        said.append(stream.next())
        stream.push(said[-1])
        if said[-1] == EOS and not request.ignore_eos:
            break
    return said


def test_one_request_is_prefilled_and_decoded() -> None:
    one = engine()
    sequence = one.add(ask("a", 20, max_tokens=3), 5.0)
    first = one.step(6.0)
    assert [(s.id, t) for s, t in first.outputs] == [("a", expected(ask("a"))[0])]
    assert first.batch_tokens == 20
    assert sequence.started == 6.0
    assert sequence.first_token == 6.0 + first.duration_s
    one.step(7.0)
    last = one.step(8.0)
    assert [s.id for s in last.finished] == ["a"]
    assert (sequence.finish, sequence.generated) == ("length", 3)
    assert one.stats().kv_blocks_used == 0
    assert not one.busy


def test_long_prompts_are_computed_in_chunks_beside_decodes() -> None:
    one = engine(max_num_batched_tokens=64)
    one.add(ask("short", 10, max_tokens=20), 0.0)
    one.step(0.0)
    one.add(ask("long", 200, 1), 0.0)
    steps = [one.step(0.0) for _ in range(4)]
    assert [step.batch_tokens for step in steps] == [64, 64, 64, 1 + 200 - 3 * 63]
    assert all(any(s.id == "short" for s, _t in step.outputs) for step in steps)
    assert [s.id for s, _t in steps[-1].outputs] == ["short", "long"]


def test_no_more_sequences_than_allowed_run_and_the_first_come_goes_first() -> None:
    one = engine(max_num_seqs=2)
    for name in "abc":
        one.add(ask(name, seed=ord(name)), 0.0)
    one.step(0.0)
    assert [s.id for s in one.running] == ["a", "b"]
    assert one.stats().waiting == 1
    _said, steps = drain(one)
    assert [s.id for step in steps for s in step.finished] == ["a", "b", "c"]


def test_a_known_prefix_is_not_computed_again() -> None:
    one = engine()
    one.add(ask("a", 64), 0.0)
    drain(one)
    sequence = one.add(ask("b", 64), 0.0)
    step = one.step(0.0)
    assert sequence.cached == 48  # the last block is computed again: a token needs at least one to start from
    assert step.batch_tokens == 16
    assert (one.stats().prefix_queries_total, one.stats().prefix_hits_total) == (128, 48)


def test_generated_tokens_are_cached_too() -> None:
    one = engine()
    request = ask("a", 16, max_tokens=40)
    one.add(request, 0.0)
    said, _steps = drain(one)
    sequence = one.add(Request("b", [*request.prompt, *said["a"][:32]], max_tokens=8, ignore_eos=True), 0.0)
    assert drain(one)[0]["b"] == said["a"][32:]
    assert sequence.cached == 32


def test_salts_and_the_switch_keep_prefixes_apart() -> None:
    one = engine()
    one.add(ask("a", 64, salt="x"), 0.0)
    drain(one)
    assert one.add(ask("b", 64), 0.0).finish == ""
    drain(one)
    assert one.stats().prefix_hits_total == 0
    one.add(ask("c", 64, salt="x"), 0.0)
    drain(one)
    assert one.stats().prefix_hits_total == 48
    off = engine(enable_prefix_caching=False)
    for name in "ab":
        off.add(ask(name, 64), 0.0)
        drain(off)
    assert off.stats().prefix_hits_total == 0


def test_the_last_let_in_pays_for_memory_and_loses_nothing() -> None:
    one = engine(kv_blocks=8)
    requests = [ask(name, 40, seed, max_tokens=40) for seed, name in enumerate("ab")]
    for request in requests:
        one.add(request, 0.0)
    said, steps = drain(one)
    victims = [s.id for step in steps for s in step.preempted]
    assert victims
    assert set(victims) == {"b"}
    assert said == {request.id: expected(request) for request in requests}
    assert one.stats().preemptions_total == len(victims)


def test_a_prompt_waits_until_all_of_it_fits() -> None:
    one = engine(kv_blocks=8)
    one.add(ask("a", 80, max_tokens=5), 0.0)
    one.add(ask("b", 70, 1), 0.0)
    one.step(0.0)
    assert [s.id for s in one.running] == ["a"]
    drain(one)


def test_impossible_requests_are_refused() -> None:
    one = engine(kv_blocks=4)
    for bad in (ask("a", 64), ask("b", 0)):
        with pytest.raises(ValueError, match="does not fit"):
            one.add(bad, 0.0)
    one.add(ask("c"), 0.0)
    with pytest.raises(ValueError, match="already here"):
        one.add(ask("c"), 0.0)


def test_a_sequence_ends_where_memory_or_context_end() -> None:
    one = engine(kv_blocks=4)
    sequence = one.add(ask("a", 60, max_tokens=100), 0.0)
    drain(one)
    assert (sequence.generated, sequence.finish) == (4, "length")


def test_it_ends_by_itself_at_the_end_of_sequence_token() -> None:
    one = engine()
    request = ask("a", 30, max_tokens=5000, ignore_eos=False)
    sequence = one.add(request, 0.0)
    said, _steps = drain(one)
    assert said["a"] == expected(request)
    assert (said["a"][-1], sequence.finish, sequence.stop_reason) == (EOS, "stop", None)


def test_ignoring_the_end_goes_on_past_it() -> None:
    one = engine()
    one.add(ask("a", 30, max_tokens=3000), 0.0)
    said, _steps = drain(one)
    assert len(said["a"]) == 3000
    assert EOS in said["a"]


def test_stop_tokens_stop_but_not_before_the_minimum() -> None:
    plain = expected(ask("a", max_tokens=30))
    for minimum, end in ((0, 5), (10, None)):
        one = engine()
        sequence = one.add(ask("a", max_tokens=30, min_tokens=minimum, stop_token_ids=frozenset({plain[4]})), 0.0)
        drain(one)
        if end:
            assert (sequence.generated, sequence.finish, sequence.stop_reason) == (end, "stop", plain[4])
        else:
            assert sequence.generated > 10


def test_a_scripted_length_is_kept_exactly() -> None:
    one = engine()
    sequence = one.add(ask("a", output_tokens=777, ignore_eos=False), 0.0)
    drain(one)
    assert (sequence.generated, sequence.finish) == (777, "length")


def test_abort_frees_whatever_a_request_held() -> None:
    one = engine(max_num_seqs=1)
    running, waiting = one.add(ask("a"), 0.0), one.add(ask("b", 30, 1), 0.0)
    one.step(0.0)
    assert one.abort("b")
    assert one.abort("a")
    assert not one.abort("a")
    assert (running.finish, waiting.finish) == ("abort", "abort")
    assert one.stats().kv_blocks_used == 0
    assert not one.busy


def test_asleep_it_reports_nothing_and_forgets_the_cache() -> None:
    one = engine()
    request = ask("a", 40, max_tokens=30)
    one.add(request, 0.0)
    said = [token for _ in range(5) for _s, token in one.step(0.0).outputs]
    one.sleep(1)
    assert not one.busy
    assert one.step(0.0) == StepResult(0.0, [], [], [], 0)
    stats = one.stats()
    assert (stats.running, stats.waiting, stats.kv_blocks_used, stats.kv_blocks_cached) == (0, 0, 0, 0)
    assert stats.sleep_level == 1
    one.wake()
    assert said + drain(one)[0]["a"] == expected(request)


def test_paused_it_stands_still() -> None:
    one = engine()
    one.add(ask("a"), 0.0)
    one.paused = True
    assert not one.busy
    assert one.stats().waiting == 0
    one.paused = False
    assert one.stats().waiting == 1


def test_slowdown_stretches_steps() -> None:
    fast, slow = engine(), engine()
    slow.slowdown = 3.0
    for one in (fast, slow):
        one.add(ask("a"), 0.0)
    assert slow.step(0.0).duration_s == pytest.approx(3 * fast.step(0.0).duration_s)


def test_by_priority_the_lowest_number_is_let_in_first_and_equal_ones_as_they_came() -> None:
    one = engine(max_num_seqs=1, scheduling_policy="priority")
    for at, (name, priority) in enumerate([("a", 5), ("b", 0), ("c", 5), ("d", -1)]):
        one.add(ask(name, seed=at, priority=priority, max_tokens=3), float(at))
    _said, steps = drain(one)
    assert [s.id for step in steps for s in step.finished] == ["d", "b", "a", "c"]


def test_without_the_policy_priorities_mean_nothing() -> None:
    one = engine(max_num_seqs=1)
    for at, (name, priority) in enumerate([("a", 5), ("b", 0)]):
        one.add(ask(name, seed=at, priority=priority, max_tokens=3), float(at))
    _said, steps = drain(one)
    assert [s.id for step in steps for s in step.finished] == ["a", "b"]


def test_by_priority_the_least_important_gives_its_memory_back_wherever_it_stands() -> None:
    """Ten blocks for two sequences that grow to 6 each: the unimportant one was let in first, and pays; the tokens it
    had for that step go to nobody, and both say what they would have said alone."""
    one = engine(kv_blocks=10, scheduling_policy="priority")
    requests = [ask("dear", 60, 1, priority=9, max_tokens=36), ask("urgent", 60, 2, priority=1, max_tokens=36)]
    one.add(requests[0], 0.0)
    one.step(0.0)
    one.add(requests[1], 1.0)
    said, steps = drain(one)
    assert [s.id for step in steps for s in step.preempted] == ["dear"]
    assert [s.id for step in steps for s in step.finished] == ["urgent", "dear"]
    assert said["urgent"] == expected(requests[1])


requests = st.lists(
    st.tuples(st.integers(1, 90), st.integers(0, 3), st.integers(1, 60), st.integers(0, 30)), min_size=1, max_size=12
)


@settings(max_examples=60)
@given(
    requests,
    st.integers(10, 20),
    st.integers(1, 6),
    st.integers(8, 128),
    st.sets(st.integers(0, 11), max_size=3),
    st.sampled_from(["fcfs", "priority"]),
)
def test_whatever_happens_blocks_are_conserved_and_everybody_says_the_right_thing(
    asked: list[tuple[int, int, int, int]], blocks: int, places: int, budget: int, dropped: set[int], policy: str
) -> None:
    one = engine(kv_blocks=blocks, max_num_seqs=places, max_num_batched_tokens=budget, scheduling_policy=policy)
    wanted = {}
    said: dict[str, list[int]] = {}
    arrivals = sorted((start, str(n), length, seed, count) for n, (length, seed, count, start) in enumerate(asked))
    for tick in range(4000):
        while arrivals and arrivals[0][0] <= tick:
            _start, name, length, seed, count = arrivals.pop(0)
            wanted[name] = ask(name, length, seed, max_tokens=count, priority=length % 3)
            one.add(wanted[name], float(tick))
        if tick == 20:
            for name in map(str, dropped):
                if one.abort(name):
                    del wanted[name]
        step = one.step(float(tick))
        assert step.batch_tokens <= budget
        assert len(one.running) <= places
        for sequence, token in step.outputs:
            said.setdefault(sequence.id, []).append(token)
        check_blocks(one)
        if not one.busy and not arrivals:
            break
    assert not one.busy
    assert one.pool.free == blocks
    for name, request in wanted.items():
        assert said[name] == expected(request)[: blocks * 16 - len(request.prompt)]


def check_blocks(one: Engine) -> None:
    """Every block is free or held; it is held as often as sequences list it; nobody lists more than it needs."""
    held: dict[int, int] = {}
    for sequence in one.running:
        assert len(sequence.blocks) * 16 >= sequence.computed
        assert len(sequence.blocks) == len(set(sequence.blocks))
        for block in sequence.blocks:
            held[block] = held.get(block, 0) + 1
    assert not any(sequence.blocks for sequence in one.waiting)
    assert one.pool.used == len(held)
    assert {block: count for block, count in enumerate(one.pool._references) if count} == held
