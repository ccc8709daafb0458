"""The longest context and the fewest GPUs."""

from headway.perfmodel import catalogue, memory, sizing
from headway.perfmodel.gpus import custom

L4 = catalogue.gpu("l4")
LLAMA = catalogue.model("llama-3.1-8b")


def test_the_longest_context_starts_and_the_next_does_not() -> None:
    longest = sizing.longest_that_fits(LLAMA, L4)
    assert 1000 < longest < 131_072
    assert memory.plan(LLAMA, L4, max_model_len=longest).fits
    assert not memory.plan(LLAMA, L4, max_model_len=longest + 1).fits


def test_the_longest_context_is_bounded_by_what_was_asked() -> None:
    assert sizing.longest_that_fits(LLAMA, L4, max_model_len=512) == 512
    assert sizing.longest_that_fits(catalogue.model("llama-3.1-70b"), L4) == 0


def test_above_whole_prompts_the_first_core_takes_less() -> None:
    """Its batch is a whole prompt of up to 32,768 tokens, and 2,048 tokens where the context is longer."""
    card, asked = custom(23.55), {"version": "V0 0.6.6"}
    starts = [memory.plan(LLAMA, card, max_model_len=length, **asked).fits for length in (27_296, 32_768, 40_000)]
    assert starts == [True, False, True]
    longest = sizing.longest_that_fits(LLAMA, card, **asked)
    assert longest >= 40_000
    assert not memory.plan(LLAMA, card, max_model_len=longest + 1, **asked).fits
    assert sizing.longest_that_fits(LLAMA, card, max_model_len=32_768, **asked) == 27_296
    assert sizing.longest_that_fits(LLAMA, custom(21.0), **asked) < 32_768


def test_the_fewest_gpus_fit_and_one_step_less_does_not() -> None:
    model, card = catalogue.model("llama-3.3-70b"), catalogue.gpu("h100")
    found = sizing.gpus_needed(model, card)
    assert found
    tp, pp, plan = found
    assert (tp, pp, plan.fits) == (4, 1, True)
    assert not memory.plan(model, card, tp=2).fits


def test_hosts_are_added_in_pipeline_stages() -> None:
    found = sizing.gpus_needed(catalogue.model("llama-3.1-405b"), catalogue.gpu("h100"), max_model_len=8192)
    assert found
    assert found[:2] == (8, 2)
    assert sizing.gpus_needed(catalogue.model("kimi-k2"), catalogue.gpu("t4")) is None
