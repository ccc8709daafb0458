"""One self-contained HTML file about simulated runs: no script, nothing fetched, readable in light and dark.

Sections here; pictures are `plots`, looks are `style`. Figures are means over seeds; curves are those of one seed.
"""

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from headway import __version__
from headway.report import plots
from headway.report.board import Board
from headway.report.figures import count, seconds, share
from headway.report.measures import GOOD, GOODPUT
from headway.report.simulation import notes
from headway.report.style import SHEET, load_rules, policy_rules
from headway.report.tabulate import figures_table, tiles
from headway.workload.results import Run, RunDetail
from headway.workload.stats import Slo


class Story(msgspec.Struct, frozen=True):
    """What a page says beside the figures: a title, the scenario as (word, sentence) pairs, the command, the SLOs.

    An empty reference stands for round robin, or the first policy where that did not run.
    """

    title: str
    scenario: tuple[tuple[str, str], ...]
    command: str
    slo: Slo
    reference: str = ""


def page(runs: Sequence[Run], story: Story) -> str:
    """The report. Raises ValueError without runs, or when the reference policy did not run."""
    if not runs:
        raise ValueError("no runs to report")
    board = Board([run.result for run in runs], story.reference)
    styles = {policy: f"p{at}" for at, policy in enumerate(board.policies)}
    parts = [*_opening(board, story, styles), *_overview(board, styles)]
    for at, load in enumerate(board.loads):
        details = _details(runs, load)
        parts += [f'<div class="load-{at}">', *_of_load(board, load, details, styles, story.slo), "</div>"]
    rules = policy_rules(board.policies) + load_rules(len(board.loads))
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(story.title)}</title><style>{SHEET}{rules}</style></head><body><main>"
    )
    return head + "\n".join(parts) + f"<footer>headway {__version__}</footer></main></body></html>\n"


def chosen(board: Board) -> float:
    """The load shown first: the highest at which the fleet is not asked for more than it can do."""
    return max((load for load in board.loads if load < 1.0), default=board.loads[0])


def _opening(board: Board, story: Story, styles: plots.Styles) -> Iterator[str]:
    yield f"<h1>{escape(story.title)}</h1>"
    yield f'<p class="lead">{_scope(board)}</p>'
    yield '<section class="card"><dl>'
    for word, sentence in (*story.scenario, ("SLOs", f"{story.slo}; a request is good when it meets both")):
        yield f"<dt>{escape(word)}</dt><dd>{escape(sentence)}</dd>"
    yield f"</dl><pre><code>{escape(story.command)}</code></pre></section>"
    yield '<nav class="bar-top">'
    for policy, style in styles.items():
        box = f'<input type="checkbox" id="show-{style}" checked>'
        yield f'<label class="{style}">{box}<span class="swatch"></span>{escape(policy)}</label>'
    if len(board.loads) > 1:
        yield '<span class="loads">' + "".join(_load_choice(board, at) for at in range(len(board.loads))) + "</span>"
    yield "</nav>"


def _scope(board: Board) -> str:
    many = {"policy": len(board.policies), "load": len(board.loads), "seed": board.seeds}
    plural = {"policy": "policies", "load": "loads", "seed": "seeds"}
    return " × ".join(f"{n} {word if n == 1 else plural[word]}" for word, n in many.items())


def _load_choice(board: Board, at: int) -> str:
    checked = " checked" if board.loads[at] == chosen(board) else ""
    return f'<label><input type="radio" name="load" id="load-{at}"{checked}>load {board.loads[at]:g}</label>'


def _overview(board: Board, styles: plots.Styles) -> Iterator[str]:
    if len(board.loads) == 1:
        return
    yield "<h2>Against load</h2>"
    yield '<div class="grid">'
    yield _figure(
        "Goodput", "Good requests per second; dotted: offered.", plots.against_load(board, GOODPUT, styles, True)
    )
    yield _figure("Served well", "Share of all requests that met both SLOs.", plots.against_load(board, GOOD, styles))
    yield "</div>"
    if board.seeds > 1:
        yield (
            '<p class="note">Bands: 95 % bootstrap of each mean. Policies share their seeds, so a difference may be '
            "sure where bands overlap; the table has the paired intervals.</p>"
        )


def _of_load(board: Board, load: float, details: dict[str, RunDetail], styles: plots.Styles, slo: Slo) -> Iterator[str]:
    yield f"<h2>At load {load:g}</h2>"
    yield tiles(board, load)
    yield '<div class="grid" style="margin-top:16px">'
    yield _figure("Served well", "Share of all requests that met both SLOs.", plots.at_load(board, GOOD, styles, load))
    if details:
        yield _figure("Where requests waited", _phase_key(), plots.phases(details, styles))
        yield from _curves(details, styles, slo)
    yield "</div>"
    if details:
        yield from _heats(details, styles)
    yield "<h3 style='margin:28px 0 10px'>All figures</h3>"
    yield figures_table(board, load, styles)
    yield from (f'<p class="note">{escape(note)}</p>' for note in notes(board))


def _curves(details: dict[str, RunDetail], styles: plots.Styles, slo: Slo) -> Iterator[str]:
    """Distributions and curves over time."""
    per_token = f" The objective grows by {seconds(slo.ttft_per_prompt_token_s)} per prompt token."
    ttft = plots.distribution(details, "ttft_s", styles, slo.ttft_s, "time to first token (log)")
    yield _figure("Time to first token", "Share of served requests at least as quick." + per_token, ttft)
    tpot = plots.distribution(details, "tpot_s", styles, slo.tpot_s, "time per output token (log)")
    yield _figure("Time per output token", "Share of served requests at least as quick.", tpot)
    lost = {policy: (detail.times, detail.preemptions) for policy, detail in details.items()}
    yield _figure("Preemptions", "Since the start, whole fleet.", plots.over_time(lost, styles, count, "preemptions"))
    uneven = {policy: (detail.times, plots.imbalance(detail)) for policy, detail in details.items()}
    caption = "Standard deviation of KV use across replicas."
    yield _figure("Imbalance", caption, plots.over_time(uneven, styles, share, "imbalance"))
    held = {policy: (detail.times, detail.queued) for policy, detail in details.items()}
    yield _figure("Held by us", "Requests not yet dispatched.", plots.over_time(held, styles, count, "requests held"))
    queues = {policy: (detail.times, plots.in_engines(detail)) for policy, detail in details.items()}
    waiting = plots.over_time(queues, styles, count, "requests in engines' queues")
    yield _figure("Waiting in engines", "Dispatched, but not running.", waiting)


def _heats(details: dict[str, RunDetail], styles: plots.Styles) -> Iterator[str]:
    ramp = f'<img class="ramp" alt="" src="{plots.ramp_uri()}">'
    yield "<h3 style='margin:28px 0 2px'>KV use of each replica over time</h3>"
    yield f'<p class="note">A row per replica: free {ramp} full.</p><div class="grid small">'
    for policy, detail in details.items():
        mean = sum(map(sum, detail.kv_usage)) / max(1, sum(map(len, detail.kv_usage)))
        caption = f"{share(mean)} on average"
        yield _figure(policy, caption, plots.heat(detail, f"KV use under {policy}"), styles[policy])
    yield "</div>"


def _phase_key() -> str:
    keys = (f'<span><i class="phase{at}"></i>{name}</span>' for at, (_, name) in enumerate(plots.PHASES))
    return f'Mean seconds of a served request.<br><span class="key">{"".join(keys)}</span>'


def _figure(title: str, caption: str, picture: str, style: str = "") -> str:
    """A card. The caption may hold markup; the title may not."""
    return f'<figure class="card {style}"><h3>{escape(title)}</h3><figcaption>{caption}</figcaption>{picture}</figure>'


def _details(runs: Sequence[Run], load: float) -> dict[str, RunDetail]:
    """Per policy the curves of the first seed that has them."""
    found: dict[str, RunDetail] = {}
    for run in sorted(runs, key=lambda run: run.result.seed):
        if run.result.load == load and run.detail is not None:
            found.setdefault(run.result.policy, run.detail)
    return {policy: found[policy] for policy in dict.fromkeys(run.result.policy for run in runs) if policy in found}
