"""The tiny model is small, the same each time, and the same in both formats."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.real import tiny_hf, tiny_model


def test_every_byte_and_every_merge_is_a_token() -> None:
    tokens = tiny_model.tokens()
    assert len(tokens) == len(set(tokens)) == 3 + 256 + len(tiny_model.PIECES)
    assert all(letter in tokens for piece in tiny_model.PIECES for letter in piece)
    assert tokens[tiny_model.EOS] == "<|im_end|>"


def test_only_what_can_be_shown_can_be_said() -> None:
    spoken = np.flatnonzero(np.any(tiny_model.weights()["lm_head.weight"], axis=1))
    words = [tiny_model.tokens()[number] for number in spoken]
    assert len(words) == 94 + len(tiny_model.PIECES)
    assert all(word.isascii() and word.isprintable() for word in words)


def test_the_gguf_file_is_small_and_reproducible(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the model writer is not installed (extra: engines)")
    from tests.real import tiny_gguf

    one, two = tiny_gguf.make(tmp_path / "one.gguf"), tiny_gguf.make(tmp_path / "two.gguf")
    assert one.read_bytes() == two.read_bytes()
    assert one.stat().st_size < 2_000_000
    names = {tensor.name: tensor.data for tensor in gguf.GGUFReader(one).tensors}
    assert np.array_equal(names["output.weight"], tiny_model.weights()["lm_head.weight"])
    own, theirs = tiny_model.weights()["model.layers.0.self_attn.q_proj.weight"], names["blk.0.attn_q.weight"]
    half = tiny_model.HEAD // 2
    assert np.array_equal(theirs[0:2], own[[0, half]])
    assert np.array_equal(theirs[tiny_model.HEAD : tiny_model.HEAD + 2], own[[tiny_model.HEAD, tiny_model.HEAD + half]])


def test_the_hugging_face_folder_holds_every_tensor(tmp_path: Path) -> None:
    folder = tiny_hf.make(tmp_path / "tiny")
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + size])
    start, end = table["lm_head.weight"]["data_offsets"]
    values = np.frombuffer(raw[8 + size :][start:end], dtype="<f4")
    assert np.array_equal(values, tiny_model.weights()["lm_head.weight"].ravel())
    assert json.loads((folder / "config.json").read_text())["vocab_size"] == len(tiny_model.tokens())
    assert (8 + size) % 8 == 0
