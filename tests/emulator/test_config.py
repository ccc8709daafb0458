"""Settings become sizes as vLLM would choose them, or are refused with the reason."""

import msgspec
import pytest

from headway.emulator.config import BOUNDS, MOST, DoesNotFit, EmulatorConfig, TooLong, machine
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


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName):
        machine(EmulatorConfig(gpu="h100-90gb"))


NOT_A_NUMBER, ENDLESS = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[(field, value) for field in BOUNDS for value in (BOUNDS[field][0] - 1, BOUNDS[field][1] + 1)],
        *[("time_scale", value) for value in (0.0, NOT_A_NUMBER, ENDLESS, 1e9)],
        *[("step_noise", NOT_A_NUMBER), ("gpu_memory_utilization", NOT_A_NUMBER)],
    ],
)
def test_numbers_out_of_bounds_are_refused_by_the_name_of_their_flag(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"--{field.replace('_', '-')} .* is not between"):
        machine(EmulatorConfig(**{field: value}))


def test_every_number_has_bounds() -> None:
    numbers = {f.name for f in msgspec.structs.fields(EmulatorConfig) if f.type in (int, float)}
    assert numbers - BOUNDS.keys() == {"seed"}


def test_a_pool_that_no_block_fits_into_is_not_blamed_on_the_card() -> None:
    with pytest.raises(ValueError, match=r"--kv-tokens 8 is less than one block of 16") as error:
        machine(EmulatorConfig(kv_tokens=8))
    assert not isinstance(error.value, DoesNotFit)
    with pytest.raises(ValueError, match="KV blocks are more than"):
        machine(EmulatorConfig(kv_tokens=MOST))


def test_a_context_that_was_asked_for_is_not_cut() -> None:
    with pytest.raises(TooLong, match="131072 is more than the KV pool of 32,768 tokens"):
        machine(EmulatorConfig(gpu="l4-24gb", max_model_len=131072))
    with pytest.raises(TooLong, match=r"more than the 131,072 tokens llama-3\.1-8b was made for"):
        machine(EmulatorConfig(max_model_len=131073))
    assert machine(EmulatorConfig(gpu="l4-24gb")).sizes.max_model_len == 32768
    assert machine(EmulatorConfig(gpu="l4-24gb", max_model_len=32768)).sizes.max_model_len == 32768


def test_the_served_name_is_the_models_unless_given() -> None:
    assert EmulatorConfig(model="phi-4").name == "phi-4"
    assert EmulatorConfig(served_model_name="x").name == "x"
