"""Tables say what the results say."""

import io

from rich.console import Console, RenderableType

from headway.report.tables import accounts_line, comparison_table, latency_table, outline_line, totals_table
from headway.workload.accounts import Accounts
from headway.workload.outline import outline
from headway.workload.request import Request, Segment
from headway.workload.stats import Record, Slo, Summary, summarize


def shown(item: RenderableType) -> str:
    console = Console(width=150, file=io.StringIO(), force_terminal=False)
    console.print(item)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def summary(ttft_s: float = 0.5, capped: bool = False) -> Summary:
    good = Record(0.0, 0.0, 2.0, "ok", (ttft_s, ttft_s + 0.1), 200, 100, 3, 50, capped=capped)
    shed = Record(0.0, 0.0, 0.1, "shed", status=503, error="queue_full")
    return summarize([good, shed], 2, 10.0, Slo())


def test_latencies() -> None:
    text = shown(latency_table(summary()))
    assert "TTFT" in text
    assert "500 ms" in text
    assert "50 ms" in text  # TPOT: 0.1 s over 2 tokens


def test_totals_name_errors_slo_and_accounts() -> None:
    text = shown(totals_table(summary(capped=True)))
    assert "1 x queue_full" in text
    assert "0.1/s (50 % of requests met TTFT <= 1 s" in text
    assert "2 started = 1 ok" in text
    assert "50 % of them reported as cached" in text
    assert "1 waited for the concurrency cap" in text


def test_accounts_that_do_not_balance_say_so() -> None:
    assert "DOES NOT BALANCE" in accounts_line(Accounts(started=2, ok=1))
    assert "DOES NOT" not in accounts_line(Accounts(started=1, ok=1))


def test_comparison_marks_the_better_value() -> None:
    table = comparison_table([("round_robin", summary(0.9)), ("headroom", summary(0.4))])
    text = shown(table)
    assert "round_robin" in text
    assert "900 ms" in text
    cells = [list(column.cells) for column in table.columns]
    assert cells[3] == ["900 ms", "[bold green]400 ms[/]"]
    assert cells[1] == ["0.1/s", "0.1/s"]  # equal: nothing is better


def test_comparison_of_runs_without_answers() -> None:
    empty = summarize([], 0, 10.0, Slo())
    assert "-" in shown(comparison_table([("a", empty), ("b", empty)]))


def test_outline() -> None:
    line = outline_line(outline([Request(0.0, (Segment(1, 10),), 5, "a"), Request(2.0, (Segment(1, 10),), 5, "a", 1)]))
    assert line.startswith("2 requests in 1 sessions, 1/s; prompt p50 10")
    assert "50 % of prompt tokens repeat" in line
