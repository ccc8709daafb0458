"""The metrics page: what the engine did, in vLLM's families. Seconds are real ones, as a client sees them.

Per step only sums are kept; the page is written when somebody asks for it.
"""

import os
import time
from collections.abc import Iterator, Mapping

from headway.emulator.config import EmulatorConfig, Machine
from headway.emulator.families import FAMILIES, TOKENS, Family
from headway.emulator.histogram import Histogram, one_two_five
from headway.emulator.pace import Pace
from headway.perfmodel.engine import EngineStats, StepResult
from headway.perfmodel.sequence import Sequence

Values = float | Mapping[str, float]
REASONS = ("stop", "length", "abort", "error", "repetition")


class Meters:
    """Sums of one engine. `rejections`: requests refused because the queue was full."""

    def __init__(self, config: EmulatorConfig, machine: Machine) -> None:
        self.rejections = 0
        self._config = config
        self._machine = machine
        self.started = time.time()
        self._finished = dict.fromkeys(REASONS, 0.0)
        counts = one_two_five(machine.sizes.max_model_len)
        self._histograms = {
            family.name.removeprefix("vllm:"): Histogram(counts if family.bounds is TOKENS else family.bounds)
            for family in FAMILIES
            if family.kind == "histogram"
        }

    def step(self, step: StepResult, pace: Pace) -> None:
        """One step has ended: everybody that decoded waited this long for its token."""
        see = self._histograms
        see["iteration_tokens_total"].observe(step.batch_tokens)
        first = [sequence for sequence, _token in step.outputs if sequence.generated == 1]
        later = len(step.outputs) - len(first)
        if later:
            see["inter_token_latency_seconds"].observe(pace.real(step.duration_s), later)
        for sequence in first:
            see["time_to_first_token_seconds"].observe(max(0.0, pace.real(sequence.first_token - sequence.arrived)))
        for sequence in step.finished:
            self.ended(sequence, pace)

    def ended(self, one: Sequence, pace: Pace) -> None:
        """A request is over."""
        self._finished[one.finish] += 1
        decode_s = pace.real(one.last_token - one.first_token)
        seen: dict[str, float] = {
            "request_prompt_tokens": one.prompt_length,
            "request_generation_tokens": one.generated,
            "request_max_num_generation_tokens": one.generated,
            "request_params_n": 1,
            "request_params_max_tokens": one.request.max_tokens,
            "request_time_per_output_token_seconds": decode_s / max(1, one.generated - 1),
            "e2e_request_latency_seconds": pace.real(one.last_token - one.arrived),
            "request_queue_time_seconds": pace.real(one.started - one.arrived),
            "request_inference_time_seconds": pace.real(one.last_token - one.started),
            "request_prefill_time_seconds": pace.real(one.first_token - one.started),
            "request_decode_time_seconds": decode_s,
            "request_num_preemptions": one.preemptions,
            "request_prefill_kv_computed_tokens": one.prompt_length - one.cached,
        }
        for name, value in seen.items():
            self._histograms[name].observe(max(0.0, value))

    def page(self, stats: EngineStats, pace: Pace) -> bytes:
        """The whole page, in Prometheus text format."""
        base = f'model_name="{_escape(self._config.name)}"'
        values = self._values(stats)
        lines: list[str] = list(_process(self.started))
        for family in FAMILIES:
            lines += self._family(family, base, values)
        lines += self._cache_config(base)
        lines += _head("headway_emulator_clock_lag_ratio", "gauge", "Real time lost over time worked, lately.")
        lines.append(f"headway_emulator_clock_lag_ratio {pace.lag_ratio}")
        lines += _head("headway_emulator_time_scale", "gauge", "Virtual seconds per real second.")
        lines.append(f"headway_emulator_time_scale {pace.scale}")
        return ("\n".join(lines) + "\n").encode()

    def _values(self, stats: EngineStats) -> dict[str, Values]:
        hits = float(stats.prefix_hits_total)
        return {
            "num_requests_running": stats.running,
            "num_requests_waiting": stats.waiting,
            "num_requests_waiting_by_reason": {"capacity": stats.waiting},
            "engine_sleep_state": {("awake", "weights_offloaded", "discard_all")[stats.sleep_level]: 1.0},
            "kv_cache_usage_perc": stats.kv_usage,
            "prefix_cache_queries": stats.prefix_queries_total,
            "prefix_cache_hits": hits,
            "num_preemptions": stats.preemptions_total,
            "prompt_tokens": stats.prompt_tokens_total,
            "prompt_tokens_by_source": {"local_compute": stats.prompt_tokens_total - hits, "local_cache_hit": hits},
            "prompt_tokens_cached": hits,
            "prompt_tokens_cached_by_source": {"device": hits},
            "generation_tokens": stats.generation_tokens_total,
            "request_success": self._finished,
            "admission_rejections": {"max_num_queued_reqs": self.rejections},
        }

    def _family(self, family: Family, base: str, values: dict[str, Values]) -> Iterator[str]:
        short = family.name.removeprefix("vllm:")
        labels = f'engine="0",{base}' if family.engine else base
        if family.kind == "histogram":
            yield from _histogram(family, labels, self._histograms[short])
            yield from self._created(family.name, family, labels)
            return
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        yield from _head(name, family.kind, family.help)
        value = values.get(short, 0.0)
        if isinstance(value, Mapping):
            for one in family.values:
                yield f"{name}{{{_sorted(labels, family.label, one)}}} {float(value.get(one, 0.0))}"
        else:
            for inner in [_sorted(labels, family.label, one) for one in family.values] or [labels]:
                yield f"{name}{{{inner}}} {float(value)}"
        if family.kind == "counter":
            yield from self._created(family.name, family, labels)

    def _created(self, name: str, family: Family, labels: str) -> Iterator[str]:
        yield from _head(f"{name}_created", "gauge", family.help)
        for inner in [_sorted(labels, family.label, one) for one in family.values] or [labels]:
            yield f"{name}_created{{{inner}}} {self.started!r}"

    def _cache_config(self, base: str) -> list[str]:
        config, sizes, plan = self._config, self._machine.sizes, self._machine.plan
        blocks = sizes.kv_blocks
        facts = {
            "block_size": sizes.block_size,
            "cache_dtype": config.kv_cache_dtype,
            "enable_prefix_caching": sizes.enable_prefix_caching,
            "engine": 0,
            "gpu_memory_utilization": config.gpu_memory_utilization,
            "kv_cache_max_concurrency": round(blocks * sizes.block_size / sizes.max_model_len, 2),
            "kv_cache_memory_bytes": plan.layout.pool_bytes(blocks * sizes.block_size, plan.max_model_len),
            "kv_cache_size_tokens": blocks * sizes.block_size,
            "num_cpu_blocks": None,
            "num_gpu_blocks": blocks,
            "num_gpu_blocks_override": blocks if config.kv_tokens else None,
            "sliding_window": None,
            "user_specified_block_size": True,
        }
        labels = ",".join(f'{name}="{value}"' for name, value in facts.items())
        head = _head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig")
        return [*head, f"vllm:cache_config_info{{{labels}}} 1.0"]


def _process(started: float) -> Iterator[str]:
    cpu = os.times()
    yield from _head("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
    yield f"process_start_time_seconds {started!r}"
    yield from _head("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.")
    yield f"process_cpu_seconds_total {cpu.user + cpu.system}"


def _histogram(family: Family, labels: str, seen: Histogram) -> Iterator[str]:
    engine, _, model = labels.partition(",")
    yield from _head(family.name, family.kind, family.help)
    for bound, count in seen.buckets():
        yield f'{family.name}_bucket{{{engine},le="{bound}",{model}}} {float(count)}'
    yield f"{family.name}_count{{{labels}}} {float(seen.count)}"
    yield f"{family.name}_sum{{{labels}}} {float(seen.total)}"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _sorted(labels: str, name: str, value: str) -> str:
    return ",".join(sorted([*labels.split(","), f'{name}="{value}"']))


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
