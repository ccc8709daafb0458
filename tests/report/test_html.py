"""The HTML report: one file that needs nothing, says everything and breaks on nothing."""

import re
from html.parser import HTMLParser

import msgspec
import pytest

from headway.report.board import Board
from headway.report.html import Story, chosen, page
from headway.report.measures import MEASURES
from headway.report.style import COLOURS, load_rules, policy_rules
from headway.report.tabulate import signed, tiles
from headway.workload.results import Run
from headway.workload.stats import Slo
from tests.report.simulated import SKILL, run, sweep

STORY = Story("Eight replicas", (("Fleet", "8 × something"),), "headway simulate --replicas 8", Slo())
VOID = {"meta", "input", "img", "br", "image", "path", "circle", "rect"}


class Nesting(HTMLParser):
    """Fails on tags that close what is not open; gathers what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID or tag in {"path", "circle", "rect"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None: ...

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def read(text: str) -> str:
    parser = Nesting()
    parser.feed(text)
    assert parser.open == []
    return " ".join(parser.said)


@pytest.fixture(scope="module")
def whole() -> str:
    return page(sweep(), STORY)


def test_nothing_is_fetched_and_nothing_runs(whole: str) -> None:
    assert "<script" not in whole
    assert not re.search(r"https?:|['\"( ]//[a-z]", whole)
    assert "url(" not in whole
    assert set(re.findall(r'(?:src|href)="([^,]*),', whole)) == {"data:image/png;base64"}


def test_it_is_well_formed_and_says_everything(whole: str) -> None:
    said = read(whole)
    titles = [measure.title.replace("-\n", "").replace("\n", " ") for measure in MEASURES]
    sections = ["Goodput", "Served well", "Where requests waited", "Time to first token", "Time per output token"]
    sections += ["Preemptions", "Imbalance", "KV use of each replica over time", "All figures"]
    for word in (*SKILL, *titles, *sections, *STORY.scenario[0], STORY.command, "TPOT <= 50 ms", "5 seeds are few"):
        assert word in said


def test_each_load_is_shown_on_demand_and_the_page_opens_below_saturation(whole: str) -> None:
    for at in range(4):
        assert f'class="load-{at}"' in whole
    assert re.findall(r'id="(load-\d)" checked', whole) == ["load-2"]
    assert chosen(Board([run("a", 1.0, 0).result, run("a", 1.1, 0).result])) == 1.0


def test_one_load_needs_no_choice() -> None:
    text = page(sweep(loads=(0.85,), seeds=1), STORY)
    assert "Against load" not in text
    assert 'type="radio"' not in text
    assert "may be luck" in text
    read(text)


def test_runs_without_curves_still_make_a_page() -> None:
    text = page([run(policy, 0.85, 0, detail=False) for policy in SKILL], STORY)
    assert "All figures" in text
    assert "Time to first token" not in text
    read(text)


def test_runs_that_served_nobody_make_a_page() -> None:
    one = run("headroom", 0.85, 0)
    assert one.detail is not None
    times = [f for f in one.result.__struct_fields__ if f.endswith("_s") and f != "window_s"]
    nothing = msgspec.structs.replace(
        one.result, good=0, late=0, shed=one.result.requests, **dict.fromkeys(times, None)
    )
    nothing = msgspec.structs.replace(nothing, goodput_rps=0.0, gpu_hours_per_1k_good=None)
    detail = msgspec.structs.replace(one.detail, ttft_s=(), tpot_s=(), held_s=0, waiting_s=0, prefill_s=0, decode_s=0)
    other = msgspec.structs.replace(nothing, policy="round_robin")
    read(page([Run(nothing, detail), Run(other, detail)], STORY))


def test_words_from_outside_cannot_become_markup() -> None:
    story = Story("<b>", (("<i>", "<u>"),), "--policy <script>", Slo())
    evil = [
        Run(msgspec.structs.replace(r.result, policy=f"<script>{r.result.policy}"), r.detail) for r in sweep(seeds=1)
    ]
    text = page(evil, story)
    assert "<script" not in text
    assert "<script>headroom" in read(text)


def test_it_stays_small(whole: str) -> None:
    assert len(whole) < 700_000


def test_without_runs_there_is_no_page() -> None:
    with pytest.raises(ValueError, match="no runs"):
        page([], STORY)


def test_the_headline_compares_the_best_with_the_reference() -> None:
    text = read(tiles(Board([r.result for r in sweep(loads=(0.85,))]), 0.85))
    assert "served well by headroom, the most here" in text
    assert re.search(r"1\.\d\d × +as many as round_robin", text)
    assert re.search(r"−\d\d % +GPU-hours per good request against round_robin", text)
    assert re.search(r"longest wait under headroom; [\d.]+ % late, [\d.]+ % shed", text)


def test_when_the_reference_is_best_it_is_compared_with_nothing() -> None:
    text = read(tiles(Board([r.result for r in sweep(loads=(0.85,))], "headroom"), 0.85))
    assert "as many as" not in text


def test_a_change_carries_its_sign() -> None:
    ttft = next(measure for measure in MEASURES if measure.name == "ttft_p50_s")
    assert signed(-0.012, ttft) == "−12 ms"
    assert signed(1.5, ttft) == "+1.5 s"


def test_more_policies_than_colours_are_dashed() -> None:
    rules = policy_rules([str(n) for n in range(len(COLOURS) + 1)])
    assert rules.count("dasharray") == 1
    assert f".p{len(COLOURS)} {{ --c: {COLOURS[0][0]}; }}" in rules
    assert load_rules(1) == ""
