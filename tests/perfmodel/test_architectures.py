"""Layers and parts: letters are checked, and parts add up to the model."""

import pytest

from headway.perfmodel import catalogue
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.models import ARCHITECTURES


def test_letters_must_match_the_layers() -> None:
    with pytest.raises(ValueError, match="'fx' is not one of 'fwl-'"):
        Architecture("m", 2, 8, 8, 1, 1, 8, 10, 10, mixers="fx")
    with pytest.raises(ValueError, match="each of 2 layers"):
        Architecture("m", 2, 8, 8, 1, 1, 8, 10, 10, mlps="ddd")


def test_parts_of_a_dense_layer() -> None:
    model = Architecture("m", 2, 16, 32, 4, 2, 4, 100, 10)
    parts = {part.name: part for part, _ in model.layer_parts()}
    assert parts["qkv"].split == 16 * 16
    assert parts["qkv"].kv == 2 * 16 * 8
    assert parts["up"].parameters == 2 * 16 * 32
    assert model.layer_parameters == 2 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32)
    assert model.active_layer_parameters == model.layer_parameters


def test_a_slice_of_layers_has_its_own_parts() -> None:
    model = catalogue.model("deepseek-v3")
    names = {part.name for part, _ in model.layer_parts(0, 3)}
    assert "up" in names
    assert "experts up" not in names
    assert sum(count for part, count in model.layer_parts(3) if part.name == "experts up") == 58


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("mixtral-8x7b", 12.9),
        ("qwen3-30b-a3b", 3.3),
        ("deepseek-v3", 37.6),
        ("gpt-oss-120b", 5.1),
        ("llama-4-maverick", 17.2),
        ("qwen3-next-80b-a3b", 3.9),
        ("nemotron-3-nano-30b-a3b", 3.6),
    ],
)
def test_active_parameters_match_the_published_ones(name: str, active: float) -> None:
    model = catalogue.model(name)
    tables = model.embedding_parameters * (1 if name == "gpt-oss-120b" else 2)  # OpenAI counts one table
    assert (model.active_layer_parameters + tables) / 1e9 == pytest.approx(active, rel=0.03)


def test_every_layer_of_every_model_has_something_to_do() -> None:
    for model in ARCHITECTURES:
        letters = zip(model.mixer_letters, model.mlp_letters, strict=True)
        assert all(mixer != "-" or mlp != "-" for mixer, mlp in letters), model.id
        assert ("l" in model.mixer_letters) == (model.linear is not None), model.id
        assert ("m" in model.mlp_letters) == (model.experts is not None), model.id
        assert ("w" in model.mixer_letters) == (model.window > 0), model.id
        assert 0 <= model.expert_parameters < model.layer_parameters, model.id
