"""Tokenizer files: a real one is loaded and counts; what is none, or lacks its package, is a clear error."""

import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from headway.compose import tokenizers
from headway.compose.build import build_gateway
from headway.compose.settings import Settings
from headway.compose.source import SettingsError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tokenizer with a token per byte and one for the beginning, that would cut prompts at 8 tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate([*alphabet, "<s>"])}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    made.enable_truncation(8)
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_it_counts_with_and_without_a_beginning(file: Path) -> None:
    tokens = tokenizers.load({"m": file}, {})["m"]._tokens
    assert tokens("twelve bytes", True) == 13
    assert tokens("twelve bytes", False) == 12
    assert tokens("漢字", False) == 6


def test_an_alias_has_the_tokenizer_of_what_it_leads_to_first(file: Path) -> None:
    counters = tokenizers.load({"m": file}, {"chat": ["m", "other"], "other-first": ["other", "m"]})
    assert counters["chat"] is counters["m"]
    assert "other-first" not in counters


def test_a_gateway_counts_by_the_files_of_its_settings(file: Path) -> None:
    app = build_gateway(Settings.model_validate({"tokenizers": {"m": str(file)}}))
    assert set(app.plan.counters) == {"m"}


def problem(path: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        tokenizers.load({"m": path}, {})
    return str(caught.value)


def test_errors_name_the_field_and_what_to_do(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tokenizers.m: " in problem(tmp_path / "absent.json")
    assert "No such file" in problem(tmp_path / "absent.json")
    other = tmp_path / "other.json"
    other.write_text('{"model": 1}')
    assert "is no tokenizer.json" in problem(other)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "pip install 'headway[tokenizers]'" in problem(file)
