"""Fleets side by side."""

import io

import msgspec
from rich.console import Console

from headway.report.sizing import FleetSize, money, savings, show, sizes_table
from tests.report.simulated import run


def size(policy: str, replicas: int | None, gpus: int = 1) -> FleetSize:
    runs = tuple(run(policy, 0.7, seed, detail=False).result for seed in range(3))
    per_good = {"gpu_hours_per_1k_good": float(replicas or 0) / 10, "longest_wait_s": 4.5}
    runs = tuple(msgspec.structs.replace(each, **per_good) for each in runs)
    return FleetSize(policy, replicas, gpus, 64, runs if replicas else (), 0.9 if replicas else None)


def printed(sizes: list[FleetSize], price: float = 0.0, width: int = 0) -> str:
    console = Console(file=io.StringIO(), width=width or 80, force_terminal=bool(width), color_system=None)
    show(console, sizes, price)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_what_a_policy_saves_is_said_in_gpus_and_money() -> None:
    sizes = [size("headroom", 4, 2), size("lmetric", 6, 2), size("round_robin", 6, 2), size("random", 7, 2)]
    assert savings(sizes, 2.5) == [
        "headroom saves 4 of 12 GPUs against round_robin: 240 a day",
        "lmetric needs as many GPUs as round_robin",
        "random needs 2 GPUs more against round_robin: 120 a day",
    ]
    assert savings(sizes)[0] == "headroom saves 4 of 12 GPUs against round_robin"


def test_without_round_robin_the_first_policy_is_compared_with() -> None:
    assert savings([size("a", 5), size("b", 4)]) == ["b saves 1 of 5 GPUs against a"]
    assert savings([]) == []


def test_a_policy_that_never_gets_there_is_said_to_need_more() -> None:
    sizes = [size("headroom", 4), size("round_robin", None)]
    assert savings(sizes) == ["headroom against round_robin: round_robin needs more than 64 replicas"]
    text = printed(sizes, 1.0)
    assert "> 64" in text
    assert sizes[1].gpu_hours is None


def test_the_table_shows_costs_only_with_a_price_and_always_what_was_lost() -> None:
    sizes = [size("headroom", 4), size("round_robin", 6)]
    headers = [str(column.header) for column in sizes_table(sizes).columns]
    assert {"late", "shed", "longest\nwait", "with one\nfewer"} <= set(headers)
    assert "cost/\n1k good" not in headers
    priced = sizes_table(sizes, 2.0)
    assert list(priced.columns[-1].cells) == ["0.8", "1.2"]
    assert list(priced.columns[1].cells) == ["[bold green]4[/]", "6"]


def test_a_narrow_terminal_gets_whole_columns() -> None:
    text = printed([size("headroom", 4), size("least_connections", 6)], 2.0, 80)
    assert "…" not in text
    assert "columns need a wider terminal" in text
    assert "longest" in text


def test_money() -> None:
    assert [money(value) for value in (0.01234, 1.5, 1234.5)] == ["0.0123", "1.5", "1,234"]


def test_a_seed_in_which_nothing_was_good_has_no_price() -> None:
    """Its fleet would look the cheaper the more such seeds there are."""
    good = size("headroom", 4)
    spoilt = msgspec.structs.replace(good.results[0], good=0, gpu_hours_per_1k_good=None, longest_wait_s=None)
    mixed = msgspec.structs.replace(good, results=(spoilt, *good.results[1:]))
    assert (mixed.gpu_hours, mixed.cost(2.0), mixed.longest_wait_s) == (None, None, 4.5)
    assert [next(iter(column.cells)) for column in sizes_table([mixed], 2.0).columns][-2:] == ["-", "-"]
    assert msgspec.structs.replace(good, results=(spoilt,)).longest_wait_s is None
