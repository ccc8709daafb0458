"""A memory plan as a table and a bar, for terminals."""

from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headway.perfmodel.gpus import GIB
from headway.perfmodel.memory import MemoryPlan

WIDTH = 64
MIB = 1024**2
_COLOURS = {
    "weights": "blue",
    "KV cache": "green",
    "activations": "yellow",
    "outside PyTorch": "magenta",
    "CUDA graphs": "cyan",
    "not asked for": "bright_black",
}


class Question(msgspec.Struct, frozen=True):
    """What was asked beside the plan: its heading, and lines of (name, text) to add under the table."""

    heading: str
    answers: Sequence[tuple[str, str]] = ()


def memory_view(plan: MemoryPlan, question: Question) -> Group:
    """Heading, bar, parts in GiB, the pool, and whether it fits."""
    parts = portions(plan)
    return Group(
        Text(question.heading, style="bold"),
        memory_bar(parts, plan.total_bytes),
        _parts_table(parts, plan),
        _facts_table(plan, question.answers),
        _verdict(plan),
    )


def portions(plan: MemoryPlan) -> dict[str, int]:
    """Bytes of the card by use; they add up to the card where the plan fits."""
    used = {
        "weights": plan.weights_bytes,
        "KV cache": max(0, plan.kv_bytes),
        "activations": plan.activation_bytes,
        "outside PyTorch": plan.non_torch_bytes,
        "CUDA graphs": plan.cuda_graph_bytes,
    }
    return used | {"not asked for": max(0, plan.total_bytes - sum(used.values()))}


def memory_bar(parts: dict[str, int], total: int) -> Text:
    """One cell per 1/WIDTH of the card; parts too small for a cell are left to the table; overflow is cut, in red."""
    bar, done, cells = Text(), 0, 0
    for name, size in parts.items():
        done += size
        wanted = min(WIDTH, round(done / total * WIDTH)) - cells
        bar.append("█" * wanted if name != "not asked for" else "░" * wanted, style=_COLOURS[name])
        cells += wanted
    if sum(parts.values()) > total:
        bar.append(f" +{(sum(parts.values()) - total) / GIB:.1f} GiB over", style="bold red")
    return bar


def _parts_table(parts: dict[str, int], plan: MemoryPlan) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("per GPU")
    for name in ("GiB", "of the card"):
        table.add_column(name, justify="right")
    for name, size in parts.items():
        note = " (not counted by this version)" if name == "CUDA graphs" and size and not plan.graphs_counted else ""
        label = Text("■ ", style=_COLOURS[name]) + Text(name + note, style="default")
        table.add_row(label, f"{size / GIB:.2f}", _percent(size / plan.total_bytes))
    table.add_section()
    table.add_row("asked for", f"{plan.requested_bytes / GIB:.2f}", _percent(plan.requested_bytes / plan.total_bytes))
    table.add_row("card", f"{plan.total_bytes / GIB:.2f}", "")
    return table


def _facts_table(plan: MemoryPlan, answers: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    groups = len(plan.layout.groups)
    shape = f" in {groups} groups of layers" if groups > 1 else ""
    table.add_row("KV pool", f"{plan.kv_tokens:,} tokens, {plan.kv_blocks:,} blocks of {plan.block_size}{shape}")
    table.add_row("KV bytes per token", _per_token(plan))
    if plan.fits:
        at_once = f"{plan.concurrency(plan.max_model_len):.2f} sequences of {plan.max_model_len:,} tokens"
        table.add_row("concurrency", at_once)
    table.add_row("batch", f"{plan.max_num_seqs:,} sequences, {plan.max_num_batched_tokens:,} tokens a step")
    for name, text in answers:
        table.add_row(name, escape(text))
    return table


def _per_token(plan: MemoryPlan) -> str:
    """What a token takes; what is bounded (windows) or does not grow (states) is said apart."""
    growing = plan.kv_bytes_per_token - plan.window_bytes_per_token
    text = f"{growing:,}"
    if plan.window_bytes_per_token:
        text = f"{text}, and {plan.window_bytes_per_token:,} for each of the last {plan.layout.window:,} tokens"
    if plan.state_bytes_per_sequence:
        text = f"{text}, and {plan.state_bytes_per_sequence / MIB:,.1f} MiB of state per sequence"
    return text


def _percent(value: float) -> str:
    """81.5 %: one digit everywhere, so that a column of shares is aligned."""
    return f"{value * 100:.1f} %"


def _verdict(plan: MemoryPlan) -> Text:
    verdict = Text("fits: ", style="bold green") if plan.fits else Text("does not fit: ", style="bold red")
    return verdict + Text(plan.reason, style="default")
