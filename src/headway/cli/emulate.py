"""`headway emulate`: one inference engine without a GPU. Flags are named as vLLM's where vLLM has them."""

import errno
from typing import Annotated, Any

import typer

from headway.cli.console import fail
from headway.emulator import EmulatorConfig, serve
from headway.emulator.config import DoesNotFit, TooLong
from headway.emulator.serve import CannotListen
from headway.perfmodel.catalogue import UnknownName
from headway.telemetry.logs import configure

LEVELS = ("debug", "info", "warning", "error")


def command(
    model: Annotated[str, typer.Option(help="Hugging Face id or a short name of the catalogue.")] = "llama-3.1-8b",
    gpu: Annotated[str, typer.Option(help="Kind of GPU.")] = "h100-80gb",
    tensor_parallel_size: Annotated[int, typer.Option(help="GPUs the model is split over.")] = 1,
    dtype: Annotated[str, typer.Option(help="Precision of the weights.")] = "auto",
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the API; 0: any.")] = 8000,
    control_port: Annotated[int, typer.Option(help="Port for faults; 0: any, -1: none.")] = 0,
    time_scale: Annotated[float, typer.Option(help="Virtual seconds per real second.")] = 1.0,
    kv_tokens: Annotated[int, typer.Option(help="Size of the KV pool; 0: what the card has room for.")] = 0,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences at once; 0: as vLLM chooses.")] = 0,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Most tokens per step; 0: as vLLM chooses.")] = 0,
    max_model_len: Annotated[int, typer.Option(help="Longest context; 0: the model's.")] = 0,
    max_num_queued_reqs: Annotated[int, typer.Option(help="Answer 503 above this queue; 0: never.")] = 0,
    served_model_name: Annotated[str, typer.Option(help="Name for clients; empty: --model.")] = "",
    gpu_memory_utilization: Annotated[float, typer.Option(help="Fraction of device memory to use.")] = 0.92,
    enable_prefix_caching: Annotated[bool, typer.Option(help="Keep the KV of prompts.")] = True,
    quantization: Annotated[str, typer.Option(help="Quantization of the weights, such as fp8.")] = "",
    kv_cache_dtype: Annotated[str, typer.Option(help="Precision of the KV cache.")] = "auto",
    block_size: Annotated[int, typer.Option(help="Tokens per KV block.")] = 16,
    api_key: Annotated[str, typer.Option(help="Clients must show this key.")] = "",
    step_noise: Annotated[float, typer.Option(help="Relative deviation of each step's time.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the step noise.")] = 0,
    enable_prompt_tokens_details: Annotated[bool, typer.Option(help="Report cached prompt tokens in usage.")] = False,
    ready_file: Annotated[str, typer.Option(help="Write the ports here, as JSON, once they listen.")] = "",
    exit_with_parent: Annotated[
        bool, typer.Option("--exit-with-parent", help="End when the process that started this one is gone.")
    ] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning, error.")] = "info",
) -> None:
    """Run an inference engine without a GPU: vLLM's HTTP API and metrics, timed by a model of the hardware."""
    # Every parameter but the log level is a field of EmulatorConfig, by the same name.
    flags: dict[str, Any] = dict(locals())
    flags.pop("log_level")
    if log_level not in LEVELS:
        fail(f"--log-level {log_level}: there are {', '.join(LEVELS)}", code=2)
    logs = configure(log_level)
    config = EmulatorConfig(**flags)
    try:
        serve(config)
    except UnknownName as error:
        fail(str(error), "`headway check --list` names every model and GPU")
    except DoesNotFit as error:
        fail(str(error), f"headway memory --model {model} --gpu {gpu} --gpus-needed says how many would do")
    except TooLong as error:
        fail(str(error), "leave --max-model-len out to have as long a context as there is room for")
    except ValueError as error:  # impossible sizes: the message says which
        fail(str(error))
    except CannotListen as error:
        step = "name an address of this machine with --host"
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            step = f"choose another {error.flag}; 0 takes a free one"
        fail(f"cannot listen on {error.where}: {error.strerror}", step)
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}", "name another file with --ready-file")
    finally:
        logs.close()
