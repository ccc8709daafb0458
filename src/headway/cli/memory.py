"""`headway memory`: where a GPU's memory goes when an engine serves a model. Flags are named as vLLM's."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headway.cli.console import fail, out
from headway.perfmodel import catalogue, hf_config, memory, memory_limits, quantisation, sizing
from headway.perfmodel.architectures import Architecture
from headway.perfmodel.gpus import GIB, Gpu, custom
from headway.perfmodel.memory import Asked, MemoryPlan
from headway.perfmodel.versions import LATEST, BadVersion
from headway.report.memory import Question, memory_view

SHAPED = ("compressed-tensors", "compressed_tensors")
"""Names of --quantization that leave the format to the checkpoint."""

MOST = 10**12
"""Greatest count that a flag may state."""

SETTINGS = {"token_normalize_func": lambda name: name.replace("_", "-")}
"""Settings of the command: flags may be written with underscores, as vLLM allows."""


def command(
    model: Annotated[str, typer.Option(help="Hugging Face id, short name, or path of a config.json.")],
    gpu: Annotated[str, typer.Option(help="Kind of GPU; the default is h100-80gb.")] = "",
    gpu_memory_gib: Annotated[
        float, typer.Option(help="Memory of the GPU as its driver reports it.", min=0, max=1e6)
    ] = 0.0,
    tensor_parallel_size: Annotated[int, typer.Option("--tensor-parallel-size", "-tp", help="GPUs per layer.")] = 1,
    pipeline_parallel_size: Annotated[int, typer.Option("--pipeline-parallel-size", "-pp", help="Stages.")] = 1,
    dtype: Annotated[str, typer.Option(help="Type of weights and cache: auto, bfloat16, float16, float32.")] = "auto",
    quantization: Annotated[str, typer.Option(help="Of the weights: fp8, awq, gptq, int8, mxfp4, nvfp4 ...")] = "",
    kv_cache_dtype: Annotated[str, typer.Option(help="Type of the KV cache: auto, fp8.")] = "auto",
    gpu_memory_utilization: Annotated[float, typer.Option(help="Share of the card; 0: the version's default.")] = 0.0,
    max_model_len: Annotated[
        str,
        typer.Option(help="Longest context, as 32768, 32k or 32K; 0: the model's; auto or -1: the longest that fits."),
    ] = "0",
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences at once; 0: as vLLM chooses.", min=0)] = 0,
    max_num_batched_tokens: Annotated[
        str, typer.Option(help="Most tokens a step, as 8192, 8k or 8K; 0: as vLLM chooses.")
    ] = "0",
    block_size: Annotated[int, typer.Option(help="Tokens per block.", min=1)] = 16,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="No CUDA graphs.")] = False,
    engine_version: Annotated[str, typer.Option(help='Version of vLLM; "V0 0.8.5" for its first core.')] = LATEST,
    allow_long_max_model_len: Annotated[
        bool,
        typer.Option(
            "--allow-long-max-model-len", help="Above the model's own, as VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 or overrides."
        ),
    ] = False,
    length: Annotated[int, typer.Option(help="Also say how many sequences of this length fit at once.", min=0)] = 0,
    max_len_that_fits: Annotated[bool, typer.Option("--max-len-that-fits", help="Find the longest context.")] = False,
    gpus_needed: Annotated[
        bool, typer.Option("--gpus-needed", help="Find the fewest GPUs: one host's, then stages of hosts.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Where a GPU's memory goes when vLLM serves a model, how much KV cache is left, and whether it starts at all."""
    shape, card = _model(model), _gpu(gpu, gpu_memory_gib)
    precision = _precision(shape, quantization, dtype)
    if dtype != "auto":
        shape = msgspec.structs.replace(shape, dtype=precision if not shape.quantisation else shape.dtype)
    asked: Asked = {
        "precision": precision,
        "tp": tensor_parallel_size,
        "pp": pipeline_parallel_size,
        "utilization": gpu_memory_utilization,
        "kv_dtype": kv_cache_dtype,
        "block_size": block_size,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": _count("--max-num-batched-tokens", max_num_batched_tokens),
        "max_model_len": 0,
        "version": engine_version,
        "eager": enforce_eager,
        "allow_long": allow_long_max_model_len,
    }
    try:
        asked["max_model_len"] = _length(shape, card, asked, max_model_len)
        plan = memory.plan(shape, card, **asked)
        answers = _answers(shape, card, plan, asked, length, max_len_that_fits, gpus_needed)
    except BadVersion as error:
        fail(f"--engine-version: {error}", "take the version that `vllm --version` prints", code=2)
    except ValueError as error:
        fail(str(error), "see `headway memory --help`", code=2)
    if as_json:
        typer.echo(
            json.dumps(_object(plan, model, card, asked) | {name: value for name, (value, _) in answers.items()})
        )
        return
    heading = f"{shape.id} on {tensor_parallel_size * pipeline_parallel_size} x {card.name}, {precision}"
    lines = [(name.replace("_", " "), text) for name, (_, text) in answers.items()]
    out.print(memory_view(plan, Question(f"{heading}, vLLM {engine_version}", lines)))
    if not plan.fits:
        _remedies(shape, card, asked)


def _model(name: str) -> Architecture:
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        try:
            config = hf_config.decode(path.read_bytes())
            if not isinstance(config, dict):
                raise hf_config.ConfigError("config.json is not an object")
            return hf_config.read(str(config.get("_name_or_path") or path), config)
        except (OSError, ValueError, RecursionError) as error:
            fail(f"--model {name}: {error}", "give the config.json of a Hugging Face model", code=2)
    if name.endswith(".json"):
        fail(f"--model {name}: there is no such file", "give the path of a config.json, or a Hugging Face id", code=2)
    try:
        return catalogue.model(name)
    except catalogue.UnknownName as error:
        fail(
            f"--model: {error}",
            "`headway check --list` has all short names; Hugging Face ids are known too",
            "or give the path of the model's config.json",
            code=2,
        )


def _count(flag: str, said: str) -> int:
    """A whole number as vLLM reads it: 32k is 32,000 and 32K is 32,768."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)", said.strip())
    if found is None or ("." in found[1] and not found[2].islower()):
        fail(f"{flag} {said} is not a whole number", "write it like 32768, 32k (32,000), 32K (32,768) or 25.6k", code=2)
    power = "kmgt".find(found[2].lower()) + 1 if found[2] else 0
    value = float(found[1]) * (1000 if found[2].islower() else 1024) ** power
    if value > MOST:
        fail(f"{flag} {said} is too large", f"up to {MOST:,}", code=2)
    return int(value)


def _length(model: Architecture, gpu: Gpu, asked: Asked, said: str) -> int:
    """--max-model-len; "auto" and -1 are the longest with which the engine starts (the model's own where none does)."""
    if said.strip().lower() not in ("auto", "-1"):
        return _count("--max-model-len", said)
    return sizing.longest_that_fits(model, gpu, **asked)


def _gpu(name: str, gib: float) -> Gpu:
    if not name and gib:
        return custom(gib)
    try:
        card = catalogue.gpu(name or "h100-80gb")
    except catalogue.UnknownName as error:
        fail(f"--gpu: {error}", "or state its memory with --gpu-memory-gib", code=2)
    return msgspec.structs.replace(card, memory_bytes=int(gib * GIB)) if gib else card


def _precision(model: Architecture, quantization: str, dtype: str) -> str:
    """Weights: what is asked for, else the checkpoint's own format, else the type."""
    if quantization.lower() in SHAPED and not model.quantisation:
        fail(
            f"--quantization {quantization} does not say which format {model.id} is in",
            "name the quantised copy in --model (...-FP8-dynamic, ...-quantized.w8a8, ...-quantized.w4a16)",
            "or name the format: --quantization fp8, int8 or w4a16",
            code=2,
        )
    named = "" if quantization.lower() in SHAPED else quantization
    if dtype.lower() not in quantisation.TYPES:
        fail(
            f"--dtype {dtype} is none", f"known: {', '.join(quantisation.TYPES)}; formats go to --quantization", code=2
        )
    try:
        return catalogue.precision(named or model.quantisation or dtype, model)
    except catalogue.UnknownName as error:
        fail(f"--quantization: {error}", code=2)


def _answers(
    model: Architecture, gpu: Gpu, plan: MemoryPlan, asked: Asked, length: int, longest: bool, needed: bool
) -> dict[str, tuple[Any, str]]:
    """What else was asked: by name, its value for JSON and its text."""
    answers: dict[str, tuple[Any, str]] = {}
    if length:
        value = round(plan.concurrency(length), 2)
        answers["concurrency_at_length"] = (value, f"{value:.2f} sequences of {length:,} tokens")
    if longest:
        found = sizing.longest_that_fits(model, gpu, **asked)
        answers["max_len_that_fits"] = (found, f"{found:,} tokens" if found else "none: not even one token fits")
    if needed:
        answers["gpus_needed"] = _fewest(model, gpu, asked)
    return answers


def _fewest(model: Architecture, gpu: Gpu, asked: Asked) -> tuple[int | None, str]:
    """(GPUs needed, in words); None: more than were tried."""
    fewest = sizing.gpus_needed(model, gpu, **asked)
    if fewest is None:
        return None, f"more than {sizing.HOST_GPUS * sizing.MOST_STAGES}"
    tp, pp, _ = fewest
    flags = f"--tensor-parallel-size {tp}" + (f" --pipeline-parallel-size {pp}" if pp > 1 else "")
    return tp * pp, f"{tp * pp} ({flags})"


def _remedies(model: Architecture, gpu: Gpu, asked: Asked) -> None:
    """What would start instead: a shorter context, more GPUs."""
    longest = sizing.longest_that_fits(model, gpu, **asked)
    if longest:
        out.print(f"  [dim]->[/] --max-model-len {longest} starts", highlight=False)
    own = memory_limits.longest(model, asked["version"])
    if asked["max_model_len"] > own and not asked["allow_long"]:  # no number of GPUs changes that
        return
    _, words = _fewest(model, gpu, asked)
    out.print(f"  [dim]->[/] GPUs needed: {words}", highlight=False)


def _object(plan: MemoryPlan, model: str, gpu: Gpu, asked: Asked) -> dict[str, Any]:
    """The JSON object; bytes are per GPU."""
    return {
        "model": model,
        "gpu": gpu.name,
        "tensor_parallel_size": asked["tp"],
        "pipeline_parallel_size": asked["pp"],
        "engine_version": asked["version"],
        "total_bytes": plan.total_bytes,
        "requested_bytes": plan.requested_bytes,
        "weights_bytes": plan.weights_bytes,
        "kv_bytes_per_token": plan.kv_bytes_per_token,
        "window_bytes_per_token": plan.window_bytes_per_token,
        "state_bytes_per_sequence": plan.state_bytes_per_sequence,
        "activation_bytes": plan.activation_bytes,
        "non_torch_bytes": plan.non_torch_bytes,
        "cuda_graph_bytes": plan.cuda_graph_bytes,
        "kv_pool_bytes": max(0, plan.kv_bytes),
        "kv_tokens": plan.kv_tokens,
        "kv_blocks": plan.kv_blocks,
        "block_size": plan.block_size,
        "max_model_len": plan.max_model_len,
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "max_concurrency": round(plan.concurrency(plan.max_model_len), 2),
        "fits": plan.fits,
        "reason": plan.reason,
    }
