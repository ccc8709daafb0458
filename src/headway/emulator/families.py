"""The families of vLLM 0.32's metrics page: names, help texts and kinds exactly as recorded, without values.

A table only; `metrics` fills it. What a CPU build of vLLM exports but no balancer reads (Python's garbage collector,
HTTP middleware) is left out.
"""

import msgspec

SECONDS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
                 640, 2560)  # fmt: skip
TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
FEW = (1, 2, 3, 4, 5, 10, 20)
CHOICES = (1, 2, 5, 10, 20)
TOKENS: tuple[float, ...] = ()
"""Stands for 1-2-5 steps up to the model's context."""


class Family(msgspec.Struct, frozen=True):
    """One family. `labels`: a label besides model_name and engine, with its values. `engine`: whether"
    " it has one."""

    name: str
    kind: str
    help: str
    bounds: tuple[float, ...] = ()
    label: str = ""
    values: tuple[str, ...] = ()
    engine: bool = True


def _gauge(name: str, text: str, label: str = "", *values: str) -> Family:
    return Family(f"vllm:{name}", "gauge", text, (), label, values)


def _counter(name: str, text: str, label: str = "", *values: str, engine: bool = True) -> Family:
    return Family(f"vllm:{name}", "counter", text, (), label, values, engine)


def _histogram(name: str, text: str, bounds: tuple[float, ...]) -> Family:
    return Family(f"vllm:{name}", "histogram", text, bounds)


FAMILIES: tuple[Family, ...] = (
    _counter(
        "estimated_flops_per_gpu",
        "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).",
    ),
    _counter(
        "estimated_read_bytes_per_gpu",
        "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).",
    ),
    _counter(
        "estimated_write_bytes_per_gpu",
        "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).",
    ),
    _gauge("num_requests_running", "Number of requests in model execution batches."),
    _gauge("num_requests_waiting", "Number of requests waiting to be processed."),
    _gauge(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling "
        "capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked "
        "status). Sum of all reasons equals vllm:num_requests_waiting.",
        "reason",
        "capacity",
        "deferred",
    ),
    _gauge(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        "sleep_state",
        "awake",
        "weights_offloaded",
        "discard_all",
    ),
    _gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
    _counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens."),
    _counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens."),
    _counter(
        "external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, in terms of "
        "number of queried tokens.",
    ),
    _counter(
        "external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number "
        "of cached tokens.",
    ),
    _counter("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items."),
    _counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items."),
    _counter("num_preemptions", "Cumulative number of preemption from the engine."),
    _counter("prompt_tokens", "Number of prefill tokens processed."),
    _counter(
        "prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        "source",
        "local_compute",
        "local_cache_hit",
        "external_kv_transfer",
    ),
    _counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external)."),
    _counter(
        "prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host "
        "(offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or "
        "external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + "
        "vllm:external_prefix_cache_hits.",
        "source",
        "device",
        "host",
        "p2p",
        "disk",
        "external_unspecified",
    ),
    _counter("generation_tokens", "Number of generation tokens processed."),
    _counter(
        "request_success",
        "Count of successfully processed requests.",
        "finished_reason",
        "stop",
        "length",
        "abort",
        "error",
        "repetition",
    ),
    _counter(
        "admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        "reason",
        "max_num_queued_reqs",
        "max_num_queued_tokens",
        engine=False,
    ),
    _histogram("request_prompt_tokens", "Number of prefill tokens processed.", TOKENS),
    _histogram("request_generation_tokens", "Number of generation tokens processed.", TOKENS),
    _histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", STEP_TOKENS),
    _histogram(
        "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", TOKENS
    ),
    _histogram("request_params_n", "Histogram of the n request parameter.", CHOICES),
    _histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", TOKENS),
    _histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", FIRST_TOKEN_S),
    _histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", TOKEN_S),
    _histogram(
        "request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", TOKEN_S
    ),
    _histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", SECONDS),
    _histogram("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request.", SECONDS),
    _histogram("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request.", SECONDS),
    _histogram("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request.", SECONDS),
    _histogram("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request.", SECONDS),
    _histogram("request_num_preemptions", "Histogram of the number of times a request was preempted.", FEW),
    _histogram(
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        TOKENS,
    ),
)
