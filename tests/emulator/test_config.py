"""Settings become sizes as vLLM would choose them, or are refused with the reason."""

import pytest

from headway.emulator.config import DoesNotFit, EmulatorConfig, machine
from headway.perfmodel.catalogue import UnknownName


def test_large_cards_get_larger_batches() -> None:
    big, small = machine(EmulatorConfig(gpu="h100-80gb")), machine(EmulatorConfig(gpu="l40s-48gb"))
    assert (big.sizes.max_num_seqs, big.sizes.max_num_batched_tokens) == (1024, 8192)
    assert (small.sizes.max_num_seqs, small.sizes.max_num_batched_tokens) == (256, 2048)
    assert big.sizes.kv_blocks > small.sizes.kv_blocks > 0


def test_explicit_sizes_win() -> None:
    built = machine(EmulatorConfig(kv_tokens=5000, max_num_seqs=3, max_num_batched_tokens=100, max_model_len=1000))
    assert (built.sizes.kv_blocks, built.sizes.max_num_seqs) == (312, 3)
    assert (built.sizes.max_num_batched_tokens, built.sizes.max_model_len) == (100, 1000)


def test_the_context_never_exceeds_the_pool() -> None:
    assert machine(EmulatorConfig(kv_tokens=1600)).sizes.max_model_len == 1600


def test_quantisation_makes_room_and_speed() -> None:
    plain, small = machine(EmulatorConfig()), machine(EmulatorConfig(quantization="fp8"))
    assert small.sizes.kv_blocks > plain.sizes.kv_blocks
    assert small.steps.weights_s < plain.steps.weights_s


def test_a_model_too_large_is_refused_with_the_sum() -> None:
    with pytest.raises(
        DoesNotFit, match=r"llama-3\.1-70b does not fit on 1 x h100-80gb: per card asked for .* weights 131"
    ):
        machine(EmulatorConfig(model="llama-3.1-70b"))
    assert machine(EmulatorConfig(model="llama-3.1-70b", tensor_parallel_size=4)).sizes.kv_blocks > 0


def test_unknown_names_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(UnknownName):
        machine(EmulatorConfig(gpu="h100-90gb"))
    with pytest.raises(ValueError, match="must be positive"):
        machine(EmulatorConfig(time_scale=0.0))


def test_the_served_name_is_the_models_unless_given() -> None:
    assert EmulatorConfig(model="phi-4").name == "phi-4"
    assert EmulatorConfig(served_model_name="x").name == "x"
