"""How the HTML report looks: one style sheet, light and dark, no script.

Choosing a load and hiding policies is done by CSS alone (`:has` of checked inputs), so the page needs no JavaScript,
and a browser without `:has` shows everything.
"""

COLOURS: tuple[tuple[str, str], ...] = (
    ("#0d9488", "#2dd4bf"),
    ("#2563eb", "#6ea8fe"),
    ("#d97706", "#fbbf24"),
    ("#9333ea", "#c084fc"),
    ("#dc2626", "#f87171"),
    ("#db2777", "#f472b6"),
    ("#4d7c0f", "#a3e635"),
    ("#0284c7", "#38bdf8"),
    ("#92400e", "#d6a06a"),
    ("#475569", "#a8b3c4"),
)
"""A policy's colour on light and on dark; with more policies they come again, dashed."""

SHEET = """
:root { color-scheme: light dark; --paper: #f6f7f9; --card: #fff; --ink: #15181e; --soft: #5d6673; --line: #e3e6ea;
  --good: #0a7d4f; --bad: #c2281d; --accent: #0d9488; }
@media (prefers-color-scheme: dark) { :root { --paper: #0e1116; --card: #161a21; --ink: #e8ebf0; --soft: #97a1af;
  --line: #2a303a; --good: #4ade80; --bad: #ff8077; --accent: #2dd4bf; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 24px 72px; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 6px; text-wrap: balance; }
h2 { font-size: 19px; letter-spacing: -.01em; margin: 44px 0 12px; }
h3 { font-size: 14px; margin: 0 0 2px; }
p { margin: 0 0 8px; }
.lead, figcaption, .note { color: var(--soft); }
figcaption, .note { font-size: 13px; } .grid + .note, .card + .note { margin-top: 10px; }
.grid { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px; margin: 0;
  min-width: 0; }
.tiles { display: grid; gap: 16px; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); margin: 24px 0 0; }
.tile b { display: block; font-size: 27px; line-height: 1.25; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 12px 0 0; padding: 10px 12px; background: var(--paper); border: 1px solid var(--line); border-radius: 8px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.bar-top { position: sticky; top: 0; z-index: 2; background: color-mix(in srgb, var(--paper) 92%, transparent);
  backdrop-filter: blur(6px); padding: 10px 0; margin-top: 20px; display: flex; flex-wrap: wrap; gap: 6px 16px;
  border-bottom: 1px solid var(--line); align-items: center; font-size: 13px; }
.bar-top label { display: inline-flex; align-items: center; gap: 6px; cursor: pointer; }
.bar-top .swatch { width: 18px; height: 0; border-top: 3px solid var(--c); }
.bar-top input[type=checkbox] { accent-color: var(--c); margin: 0; }
.loads { display: inline-flex; border: 1px solid var(--line); border-radius: 8px; overflow: hidden;
  background: var(--card); margin-left: auto; }
.loads input { position: absolute; opacity: 0; pointer-events: none; }
.loads label { padding: 3px 11px; color: var(--soft); }
.loads label:has(:checked) { background: var(--accent); color: var(--card); font-weight: 600; }
.loads label:has(:focus-visible) { outline: 2px solid var(--ink); outline-offset: -2px; }
svg { display: block; width: 100%; height: auto; margin-top: 8px; overflow: visible; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg .title { font-size: 12px; } svg .name { font-size: 12px; font-weight: 600; fill: var(--c); }
svg .value { fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .gridline { stroke: var(--line); } svg .axis { stroke: var(--soft); opacity: .6; }
svg .line { fill: none; stroke: var(--c); stroke-width: 1.9; stroke-linejoin: round; stroke-linecap: round; }
svg .band { fill: var(--c); opacity: .13; } svg .dot { fill: var(--c); } svg .bar { fill: var(--c); opacity: .85; }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; } svg .lead-line { stroke-width: 3; }
svg .offered { --c: var(--soft); stroke-dasharray: 2 4; } svg .limit { stroke: var(--bad); stroke-dasharray: 4 3; }
svg image { image-rendering: pixelated; }
.phase0 { fill: #e11d2f; } .phase1 { fill: #f59e0b; } .phase2 { fill: #3b82f6; } .phase3 { fill: #14b8a6; }
.key { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--soft); }
.key i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; }
.key .phase0 { background: #e11d2f; } .key .phase1 { background: #f59e0b; } .key .phase2 { background: #3b82f6; }
.key .phase3 { background: #14b8a6; } .ramp { width: 130px; height: 10px; border: 1px solid var(--line);
  border-radius: 3px; vertical-align: middle; margin: 0 6px; }
.scroll { overflow-x: auto; padding: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 13.5px; }
th, td { padding: 6px 12px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap;
  vertical-align: top; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--card); white-space: normal;
  min-width: 190px; padding-left: 18px; font-weight: 500; }
thead th { border-bottom: 2px solid var(--c, var(--line)); }
tr.group th { color: var(--soft); font-size: 12px; text-transform: uppercase; letter-spacing: .05em;
  padding-top: 16px; }
td small, th small { display: block; color: var(--soft); font-size: 11.5px; font-weight: 400; }
td.better small { color: var(--good); } td.worse small { color: var(--bad); } td.best { font-weight: 700; }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
@media print { .bar-top { position: static; } body { background: none; } .card { break-inside: avoid; } }
"""


def policy_rules(names: list[str]) -> str:
    """Colours of the policies p0, p1 ... in their order, and rules that hide what is unchecked or dim the others."""
    light, dark, rest = [], [], []
    for at, _ in enumerate(names):
        bright, pale = COLOURS[at % len(COLOURS)]
        light.append(f".p{at} {{ --c: {bright}; }}")
        dark.append(f".p{at} {{ --c: {pale}; }}")
        rest.append(f"body:has(#show-p{at}:not(:checked)) :is(svg, table, .grid) .p{at} {{ display: none; }}")
        rest.append(f"body:has(.bar-top .p{at}:hover) svg .line:not(.p{at}), ")
        rest[-1] += f"body:has(.bar-top .p{at}:hover) svg .band:not(.p{at}) {{ opacity: .08; }}"
        if at >= len(COLOURS):
            rest.append(f"svg .line.p{at} {{ stroke-dasharray: 6 3; }}")
    return "\n".join([*light, "@media (prefers-color-scheme: dark) {", *dark, "}", *rest])


def load_rules(count: int) -> str:
    """Only what belongs to the chosen load is shown."""
    return "\n".join(
        f"body:has(#load-{at}:not(:checked)) .load-{at} {{ display: none; }}" for at in range(count if count > 1 else 0)
    )
