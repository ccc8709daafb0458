import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import call

PROMISED = (
    "weights_bytes",
    "kv_bytes_per_token",
    "activation_bytes",
    "non_torch_bytes",
    "cuda_graph_bytes",
    "kv_pool_bytes",
    "kv_tokens",
    "fits",
    "reason",
)
CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert call("memory", *arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_one_object_per_question(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(
        capsys,
        *("--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "h100-80gb", "--engine-version", "0.19.0"),
        *("--max-model-len", "8192", "--gpu-memory-utilization", "0.95", "--tensor-parallel-size", "2"),
    )
    assert set(PROMISED) <= set(found)
    assert found["fits"] is True
    assert found["kv_tokens"] == pytest.approx(2_390_592, rel=0.001)  # a log of this very setting
    assert found["kv_bytes_per_token"] == 28672
    total = sum(found[name] for name in ("weights_bytes", "activation_bytes", "non_torch_bytes", "kv_pool_bytes"))
    assert total == found["requested_bytes"]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("memory", "--model", "llama-3.1-8b", "--length", "2048", "--gpus-needed") == 0
    shown = capsys.readouterr().out
    assert "meta-llama/Llama-3.1-8B-Instruct on 1 x h100-80gb, bfloat16" in shown
    assert "sequences of 2,048 tokens" in shown
    assert "1 (--tensor-parallel-size 1)" in shown


def test_a_config_file_is_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    by_file = asked(capsys, "--model", str(tmp_path / "config.json"))
    by_folder = asked(capsys, "--model", str(tmp_path))
    known = asked(capsys, "--model", "llama-3-8b")
    assert by_file["weights_bytes"] == by_folder["weights_bytes"] == known["weights_bytes"]


def test_what_does_not_fit_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(
        capsys, "--model", "llama-3.3-70b", "--gpu-memory-gib", "79.19", "--max-len-that-fits", "--gpus-needed"
    )
    assert found["fits"] is False
    assert found["kv_tokens"] == found["kv_pool_bytes"] == found["max_len_that_fits"] == 0
    assert "weights" in found["reason"]
    assert found["gpus_needed"] == 4


def test_what_would_start_instead_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("memory", "--model", "llama-3.1-70b") == 0
    assert "GPUs needed: 4 (--tensor-parallel-size 4)" in capsys.readouterr().out
    assert call("memory", "--model", "llama-3.1-8b", "--gpu", "l4") == 0
    shown = capsys.readouterr().out
    assert "does not fit: one sequence of 131,072 tokens" in shown
    assert "--max-model-len" in shown
    assert call("memory", "--model", "llama-3.1-8b") == 0
    assert "GPUs needed" not in capsys.readouterr().out


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    def weights(*arguments: str) -> float:
        return float(asked(capsys, *arguments)["weights_bytes"])

    plain = weights("--model", "llama-3.1-8b")
    assert weights("--model", "llama-3.1-8b", "--quantization", "fp8") < 0.6 * plain
    assert weights("--model", "llama-3.1-8b", "--quantization", "awq") < 0.4 * plain
    assert weights("--model", "llama-3.1-8b", "--dtype", "float32") > 1.9 * plain
    copy = ("--model", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8")
    assert weights(*copy) == weights(*copy, "--quantization", "compressed-tensors", "--dtype", "float16")
    assert asked(capsys, *copy, "--kv-cache-dtype", "fp8")["kv_bytes_per_token"] == 65536


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "llama-9"), ("--model: unknown model 'llama-9'", "config.json")),
        (("--model", "none/config.json"), ("there is no such file",)),
        (("--model", "phi-4", "--gpu", "h99"), ("--gpu: unknown GPU 'h99'", "--gpu-memory-gib")),
        (("--model", "phi-4", "--quantization", "fp3"), ("--quantization: unknown precision 'fp3'",)),
        (("--model", "phi-4", "--quantization", "compressed-tensors"), ("does not say which format", "w4a16")),
        (("--model", "phi-4", "--dtype", "fp8"), ("--dtype fp8", "--quantization")),
        (
            ("--model", "phi-4", "--engine-version", "new"),
            ("--engine-version: 'new' is not a version", "vllm --version"),
        ),
        (("--model", "phi-4", "--tensor-parallel-size", "3"), ("40 attention heads cannot be split over 3",)),
        (("--model", "phi-4", "--gpu-memory-utilization", "95"), ("is not between 0 and 1",)),
        (("--model", "phi-4", "--kv-cache-dtype", "fq8"), ("unknown type of KV cache 'fq8'",)),
        (("--model", "phi-4", "--gpu-memory-gib", "1e300"), ("--gpu-memory-gib",)),
    ],
)
def test_errors_name_the_flag(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert call("memory", *arguments) == 2
    shown = capsys.readouterr().err
    for word in words:
        assert word in shown


def test_a_broken_config_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    for text, words in (
        ("{", "--model"),
        ('{"a":' + "[" * 100_000, "--model"),
        ("[]", "not an object"),
        ('{"hidden_size": 1}', "no num_hidden_layers"),
    ):
        file.write_text(text)
        assert call("memory", "--model", str(file)) == 2
        assert words in capsys.readouterr().err


def test_flags_as_vllm_reads_them(capsys: pytest.CaptureFixture[str]) -> None:
    def length(said: str, *more: str) -> int:
        return int(asked(capsys, "--model", "llama-3.1-8b", "--max-model-len", said, *more)["max_model_len"])

    assert [length(said) for said in ("32k", "32K", "25.6k", "0", "131072")] == [32000, 32768, 25600, 131072, 131072]
    assert length("auto") == length("-1") == 131072
    assert length("auto", "--gpu", "l4") < 131072
    found = asked(capsys, "--model", "llama-3.1-8b", "--tensor_parallel_size", "2", "--max_num_batched_tokens", "4K")
    assert (found["tensor_parallel_size"], found["max_num_batched_tokens"]) == (2, 4096)


@pytest.mark.parametrize("said", ["1.5K", "many", "-7", "9t9", "1e5", "9999999999999"])
def test_counts_that_are_none(capsys: pytest.CaptureFixture[str], said: str) -> None:
    assert call("memory", "--model", "phi-4", "--max-model-len", said) == 2
    assert "--max-model-len" in capsys.readouterr().err


def test_what_the_engine_refuses_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("memory", "--model", "llama-3.1-8b", "--max-model-len", "200000") == 0
    shown = capsys.readouterr().out
    assert "above the model's own 131,072" in shown
    assert "--max-model-len 131072 starts" in shown
    assert "GPUs needed" not in shown
    longer = ("--model", "llama-3.1-8b", "--max-model-len", "200000", "--allow-long-max-model-len")
    assert asked(capsys, *longer)["fits"] is True
    assert call("memory", "--model", "Qwen/Qwen3-14B", "-tp", "5") == 2
    assert "rows of the padded vocabulary cannot be split over 5" in capsys.readouterr().err
    assert call("memory", "--model", "phi-4", "--gpu", "mi300x") == 2
    assert "only engines on NVIDIA's GPUs" in capsys.readouterr().err


def test_a_file_with_a_mark_and_one_that_makes_no_sense(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(CONFIG | {"torch_dtype": "torch.bfloat16"}).encode())
    assert asked(capsys, "--model", str(file))["kv_bytes_per_token"] == 131072
    file.write_text(json.dumps(CONFIG | {"num_hidden_layers": 10**9}))
    assert call("memory", "--model", str(file)) == 2
    assert "num_hidden_layers is 1,000,000,000" in capsys.readouterr().err
