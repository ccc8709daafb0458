"""The options that `headway simulate` and `headway plan` share: their help, grouped as the help page shows them.

None stands for "as the scenario file says, or the default"; defaults are written once, in the structs they fill.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.sim.scenario import PoolSpec, Truth
from headway.workload.stats import Slo

WORKLOAD, FLEET, TRUTH, SLO, OUTPUT, RUNS = "Workload", "Fleet", "Truth", "What counts as good", "Output", "Runs"
_POOL, _TRUE, _GOALS = PoolSpec(), Truth(), Slo()


def option(*names: str, help: str, panel: str, default: object = None, **more: Any) -> Any:
    """A typer option whose default, None, stands for `default`."""
    shown = False if default is None else str(default)
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=shown, **more)


Scenario = Annotated[Path | None, typer.Argument(help="Scenario file (YAML); flags win over it.", show_default=False)]

Trace = Annotated[
    Path | None,
    option(
        help="Request log: Azure, Mooncake, ServeGen, sessions, Headway's own log, any CSV or JSON Lines (.gz too).",
        panel=WORKLOAD,
        exists=True,
        dir_okay=False,
    ),
]
TraceFormat = Annotated[
    str | None, option(help="azure, mooncake, ...; known from the first line when left out.", panel=WORKLOAD)
]
Columns = Annotated[
    str | None,
    option(
        help="Which column is which: arrival=ts:ms,input=in_tokens,output=out_tokens,session=user,hashes=ids:512",
        panel=WORKLOAD,
    ),
]
Generate = Annotated[
    str | None,
    option(help="Instead of a trace: chat, code, reasoning, agents, bursts, diurnal, documents.", panel=WORKLOAD),
]
Longest = Annotated[
    int | None, option(help="Leave out requests of more tokens, prompt and output.", panel=WORKLOAD, min=1)
]
LengthFactor = Annotated[float | None, option(help="Multiply all lengths.", panel=WORKLOAD, min=0.001)]
Tenant = Annotated[str | None, option(help="Only this tenant's requests.", panel=WORKLOAD)]
Duration = Annotated[
    float | None,
    option(
        help="Seconds of arrivals, from a random place per seed; 0: the whole trace.",
        panel=WORKLOAD,
        default=600,
        min=0.0,
    ),
]
Warmup = Annotated[
    float | None, option(help="Leave requests of the first seconds out of the figures.", panel=WORKLOAD, min=0.0)
]

Model = Annotated[str | None, option(help="Hugging Face id or a short name.", panel=FLEET, default=_POOL.model)]
Gpu = Annotated[str | None, option(help="Kind of GPU.", panel=FLEET, default=_POOL.gpu)]
KvTokens = Annotated[
    int | None,
    option(help="KV cache of one replica (tokens); else what its GPUs have room for.", panel=FLEET, min=16),
]
TensorParallel = Annotated[
    int | None, option("--tensor-parallel-size", help="GPUs of one replica.", panel=FLEET, default=1, min=1)
]
Dtype = Annotated[str | None, option(help="Precision of the weights.", panel=FLEET, default=_POOL.dtype)]
MaxNumSeqs = Annotated[
    int | None,
    option(help="Most requests running at once on a replica.", panel=FLEET, default=_POOL.max_num_seqs, min=1),
]

Perturb = Annotated[
    float | None,
    option(
        help="Each replica's true speed differs from what is believed by up to this.",
        panel=TRUTH,
        default=0.0,
        min=0.0,
    ),
]
SampleAge = Annotated[
    float | None,
    option(help="Seconds between load reports.", panel=TRUTH, default=_TRUE.scrape_interval_s, min=0.001),
]

SloTtft = Annotated[float | None, option(help="TTFT objective (s).", panel=SLO, default=_GOALS.ttft_s, min=0.0)]
SloPerToken = Annotated[
    float | None,
    option(
        "--slo-ttft-per-token",
        help="What a prompt token adds to it (s).",
        panel=SLO,
        default=_GOALS.ttft_per_prompt_token_s,
        min=0.0,
    ),
]
SloTpot = Annotated[float | None, option(help="TPOT objective (s).", panel=SLO, default=_GOALS.tpot_s, min=0.0)]

Policy = Annotated[
    list[str] | None,
    option(
        help="Policies, by comma or repeated; NAME+queue puts one behind our queue, clairvoyant is a bound.",
        panel=RUNS,
        default="headroom,least_connections,round_robin",
    ),
]
Seeds = Annotated[int | None, option(help="Runs per point, with other arrivals each.", panel=RUNS, default=3, min=1)]
Jobs = Annotated[int, typer.Option(help="Processes; 0: one per CPU.", min=0, rich_help_panel=RUNS)]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output and nothing else.", rich_help_panel=OUTPUT)]


def changes(flags: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What flags say, as `compose.simulation.overlaid` takes it: changes of the scenario, changes of its pools."""
    if flags.get("columns") and flags.get("trace_format"):
        raise ValueError("--trace-format and --columns say the same: give one of them")
    same = ("generate", "longest", "length_factor", "tenant", "seeds", "reference")
    scenario = {name: flags.get(name) for name in same}
    scenario |= {
        "trace": str(flags["trace"]) if flags.get("trace") else None,
        "columns": flags.get("columns") or flags.get("trace_format"),
        "duration_s": flags.get("duration"),
        "warmup_s": flags.get("warmup"),
        "truth": {"perturb": flags.get("perturb"), "scrape_interval_s": flags.get("sample_age")},
        "slo": {
            "ttft_s": flags.get("slo_ttft"),
            "ttft_per_prompt_token_s": flags.get("slo_ttft_per_token"),
            "tpot_s": flags.get("slo_tpot"),
        },
        "loads": numbers(flags.get("load")),
        "policies": names(flags.get("policy")),
    }
    pool = {name: flags.get(name) for name in _POOL.__struct_fields__}
    return scenario, {**pool, "count": flags.get("replicas")}


def names(given: Sequence[str] | None) -> list[str] | None:
    """Names given by comma, by repetition or both."""
    parts = [part.strip() for text in given or [] for part in text.split(",")]
    return list(dict.fromkeys(part for part in parts if part)) or None


def numbers(text: str | None) -> list[float] | None:
    """0.7,0.9 as numbers. Raises ValueError that says what is not one."""
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--load takes numbers by comma, such as 0.7,0.9, not {text!r}") from None
