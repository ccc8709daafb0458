"""How far the memory model is from engines' own start-up logs: `python benchmarks/memory_truth.py [--data DIR]`.

Logged measurements, each row naming its public source: those in data/vram_found.csv, which we found in public
repositories and issues after the model was written, and with --data those of `vram_truth.csv` in DIR. Settings that a
log does not show (max_num_seqs, max_num_batched_tokens) are the version's defaults; nothing is fitted here. Rows whose
inputs are not known (another engine, no card, no utilisation, a model family that is not modelled) are listed with the
reason, not judged. Prints Markdown: one line per row, errors by group, and who was said to fit against who did.
"""

import argparse
import csv
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from headway.perfmodel import catalogue, memory
from headway.perfmodel.gpus import GIB, Gpu, custom
from headway.perfmodel.memory import MemoryPlan
from headway.perfmodel.versions import BadVersion, rules

FOUND = Path(__file__).parent / "data" / "vram_found.csv"

CARDS = (
    ("H100", "h100-80gb"),
    ("H200", "h200-141gb"),
    ("B200", "b200-180gb"),
    ("A100-80", "a100-80gb"),
    ("A100-40", "a100-40gb"),
    ("A40", "a40-48gb"),
    ("RTX 5090", "rtx5090-32gb"),
    ("RTX 4090", "rtx4090-24gb"),
    ("RTX PRO 4500", "rtx5090-32gb"),
    ("L40S", "l40s-48gb"),
    ("RTX 4060", "rtx4060-8gb"),
    ("RTX 3090", "rtx3090-24gb"),
    ("RTX A5000", "a5000-24gb"),
    ("T4", "t4-16gb"),
)
"""What the column `gpu` starts with, and our name; the size is the logged one where there is one."""

NAMES = {
    "Qwen2.5-7B (int4 quant, 5.2 GiB)": "Qwen/Qwen2.5-7B-Instruct-AWQ",
    "Llama-3.2-3B (inferred)": "meta-llama/Llama-3.2-3B-Instruct",
    "Qwen2.5-0.5B bnb-4bit (inferred: 12,288 B/token)": "Qwen/Qwen2.5-0.5B-Instruct-bnb-4bit",
    "DeepSeek-R1-Distill-Qwen-32B": "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
    "Llama-3.3-70B FP8": "meta-llama/Llama-3.3-70B-Instruct-FP8",
    "Qwen2.5-Math-1.5B": "Qwen/Qwen2.5-Math-1.5B",
    "Qwen3-30B-A3B (inferred from 24,592 B/token/GPU and 57 GiB weights)": "Qwen/Qwen3-30B-A3B",
    "DeepSeek-R1 4-bit (moe wna16; model not named in excerpt)": "deepseek-ai/DeepSeek-R1-AWQ",
    "Qwen/Qwen3.8-27B": "Qwen/Qwen3.5-27B",
    "zai-org/GLM-5.1-FP8": "zai-org/GLM-5-FP8",
    "MiniMaxAI/MiniMax-M2.7-AWQ": "MiniMaxAI/MiniMax-M2-AWQ",
}
"""Names that are descriptions ("inferred" rows have no other), and models of the same shape as one that we know."""

CAMPAIGN, OTHERS = "found, same campaign as most given rows", "found, other logs"
UNIFIED = "found, memory shared with the CPU (GB10)"
GROUPS = {"vLLM >= 0.17": 17, "V1 < 0.17": 0}


class Judged(msgspec.Struct):
    """A row beside what the model says; `why_not` where it cannot be judged. `rank_0`: the plan of the first pipeline
    stage, whose parts logs show. `refused`: no engine starts with these sizes."""

    row: dict[str, str]
    plan: MemoryPlan | None = None
    why_not: str = ""
    rank_0: MemoryPlan | None = None
    refused: bool = False

    def error(self, told: float, column: str, scale: float = 1.0) -> float | None:
        """Relative error, None where the row has no such figure."""
        real = number(self.row[column])
        return told * scale / real - 1 if self.plan and real and real > 0 else None

    @property
    def errors(self) -> dict[str, float | None]:
        """Of weights, activations and the pool in GiB, and of its tokens."""
        plan, first = self.plan, self.rank_0 or self.plan
        if plan is None or first is None:
            return {}
        return {
            "weights": self.error(first.weights_bytes, "weights_gib_per_gpu", 1 / GIB),
            "activation": self.error(first.activation_bytes, "activation_peak_gib", 1 / GIB),
            "KV GiB": self.error(first.kv_bytes, "available_kv_gib_per_gpu", 1 / GIB),
            "KV tokens": self.error(plan.kv_tokens, "kv_tokens"),
        }

    @property
    def started(self) -> bool | None:
        """Whether the real engine started; None when the log does not say, or not for which length."""
        if "started" in self.row:
            return {"yes": True, "no": False}.get(self.row["started"])
        if not self.row["max_model_len"]:
            return None
        pool = number(self.row["kv_tokens"]) or number(self.row["available_kv_gib_per_gpu"])
        return None if pool is None else pool > 0

    @property
    def group(self) -> str:
        """By core and version, rows that we found apart."""
        version = rules(self.row["engine_version"])
        age = "V0" if version.first else next(name for name, first in GROUPS.items() if version.minor >= first)
        if "started" not in self.row:
            return age
        if "unified" in self.row["gpu"]:
            return UNIFIED
        return CAMPAIGN if "llm-d-planner" in self.row["source"] else f"{OTHERS}, {age}"


def number(text: str) -> float | None:
    """The number in a cell, None for an empty one."""
    try:
        return float(text)
    except ValueError:
        return None


def judge(row: dict[str, str]) -> Judged:
    """Ask the model for the row's settings."""
    if row["engine"] != "vllm" or "ascend" in row["engine_version"]:
        return Judged(row, why_not=f"{row['engine']} {row['engine_version']} is not modelled")
    # A row of 2026 without a version shows the activation peak of a sampler that sorts: before 0.17.
    text = row["engine_version"] if "2026" not in row["engine_version"] else "V1 0.16 (2026)"
    row = row | {"engine_version": text}
    if number(row["gpu_memory_utilization"]) is None:
        return Judged(row, why_not="utilisation not stated")
    if not re.search(r"\d", text):
        return Judged(row, why_not="version not stated")
    if "unsloth" in row["engine_version"]:
        return Judged(row, why_not="unsloth chooses max_num_seqs by the memory it finds; the row does not have it")
    if rules(text).first and not row["max_model_len"]:
        return Judged(row, why_not="max_model_len not stated: the first core profiles with so many tokens")
    gap = own_gap(row)
    if abs(gap) > 0.5:
        return Judged(row, why_not=f"the log's own parts miss utilisation x card by {gap:+.2f} GiB: wrong utilisation")
    gpu = card(row)
    if gpu is None:
        return Judged(row, why_not=f"card not stated ({row['gpu']})")
    try:
        model = catalogue.model(NAMES.get(row["model"], row["model"]))
    except catalogue.UnknownName:
        return Judged(row, why_not=f"model not modelled ({row['model'][:40]})")
    if row["dtype"] == "float32":
        model = msgspec.structs.replace(model, dtype="float32")
    seqs, batched = (re.search(rf"{name}=(\d+)", row["notes"]) for name in ("max_num_seqs", "max_num_batched_tokens"))
    try:
        plans = memory.stage_plans(
            model,
            gpu,
            precision="fp8" if "online" in row["weight_quant"] else "auto",
            tp=int(row["tp"]),
            pp=int(row["pp"] or 1),
            utilization=float(row["gpu_memory_utilization"]),
            kv_dtype=row["kv_cache_dtype"] or "auto",
            block_size=int(number(row["block_size"]) or 16),
            max_num_seqs=int(seqs.group(1)) if seqs else 0,
            max_num_batched_tokens=int(batched.group(1)) if batched else 0,
            max_model_len=int(row["max_model_len"] or 0),
            version=text,
            eager="enforce_eager" in row["notes"],
            allow_long="YaRN" in row["notes"],
        )
    except BadVersion as error:
        return Judged(row, why_not=str(error))
    except ValueError as error:
        return Judged(row, why_not=f"refused: {error}", refused=True)
    return Judged(row, min(plans, key=lambda one: (one.kv_blocks, one.kv_bytes)), rank_0=plans[0])


def own_gap(row: dict[str, str]) -> float:
    """GiB by which a log's own parts exceed the stated share of the card; 0 where a part is missing."""
    names = ("weights_gib_per_gpu", "non_torch_gib", "activation_peak_gib", "available_kv_gib_per_gpu")
    parts = [number(row[name]) for name in names]
    size, share = number(row["gpu_total_gib"]), number(row["gpu_memory_utilization"])
    if size is None or share is None or None in parts:
        return 0.0
    return sum(part for part in parts if part) - size * share


def card(row: dict[str, str]) -> Gpu | None:
    """The card, of the logged size; a card that only its size is known of is no obstacle."""
    size = number(row["gpu_total_gib"])
    for start, name in CARDS:
        if re.sub(r"^\d+x ", "", row["gpu"]).startswith(start):
            found = catalogue.gpu(name)
            return msgspec.structs.replace(found, memory_bytes=int(size * GIB)) if size else found
    return custom(size) if size else None


def row_lines(rows: Iterable[Judged]) -> Iterator[str]:
    """One line of a table per judged row."""
    yield "| row | model | card | version | weights | activation | KV GiB | KV tokens, log | model | error |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for one in rows:
        if one.plan is None:
            continue
        errors = {name: "-" if error is None else f"{error:+.1%}" for name, error in one.errors.items()}
        row, real = one.row, number(one.row["kv_tokens"])
        what = f"{row['row']} | {row['model'][:44]} | {row['gpu'][:16]} x{row['tp']} | {row['engine_version'][:16]}"
        parts = f"{errors['weights']} | {errors['activation']} | {errors['KV GiB']}"
        tokens = "-" if real is None else f"{real:,.0f}"
        yield f"| {what} | {parts} | {tokens} | {one.plan.kv_tokens:,} | {errors['KV tokens']} |"


def group_lines(rows: list[Judged]) -> Iterator[str]:
    """Mean absolute errors by group; the pool in GiB stands in where a log has no tokens."""
    yield "| group | rows | weights | activation | KV tokens (GiB where not logged) | worst |"
    yield "|---|---|---|---|---|---|"
    for group in sorted({one.group for one in rows if one.plan}, key=lambda name: ("V0" in name, name)):
        inside = [one for one in rows if one.plan and one.group == group and one.started is not False]
        pools = [abs(e) for one in inside if (e := pool_error(one)) is not None]
        cells = []
        for name in ("weights", "activation"):
            values = [abs(e) for one in inside if (e := one.errors[name]) is not None]
            cells.append(f"{statistics.mean(values):.2%}" if values else "-")
        mean, worst = (statistics.mean(pools), max(pools)) if pools else (0.0, 0.0)
        yield f"| {group} | {len(inside)} | {' | '.join(cells)} | {mean:.2%} | {worst:.1%} |"


def pool_error(one: Judged) -> float | None:
    """Of tokens, else of GiB."""
    tokens = one.errors["KV tokens"]
    return one.errors["KV GiB"] if tokens is None else tokens


def confusion_lines(rows: list[Judged]) -> Iterator[str]:
    """Said to fit against did."""
    told = [one for one in rows if (one.plan or one.refused) and one.started is not None]
    pairs = [(bool(one.plan and one.plan.fits), one.started) for one in told]
    yield "| | the engine started | it did not |\n|---|---|---|"
    for verdict, words in ((True, "said to fit"), (False, "said not to fit")):
        yield f"| {words} | {pairs.count((verdict, True))} | {pairs.count((verdict, False))} |"


def read(path: Path) -> list[Judged]:
    """The rows of a file, judged."""
    with path.open() as lines:
        return [judge(row) for row in csv.DictReader(lines)]


def report(rows: list[Judged]) -> None:
    """Print the tables of one file."""
    for block in (row_lines(rows), group_lines(rows), confusion_lines(rows)):
        print("\n".join(block), end="\n\n")
    print("Not judged:\n")
    for one in rows:
        if one.plan is None:
            print(f"- row {one.row['row']}: {one.why_not}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with vram_truth.csv")
    data = parser.parse_args().data
    if data:
        print("Given rows\n")
        report(read(data / "vram_truth.csv"))
    print("\nFound in public logs\n")
    report(read(FOUND))


if __name__ == "__main__":
    from missing import said  # tests import this module by another path

    said(main)
