"""The options of `headway bench`: their help, grouped as the help page shows them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Mix(StrEnum):
    """Shapes of the generated workload."""

    CHAT = "chat"
    DOCUMENTS = "documents"
    BOTH = "both"


class Endpoint(StrEnum):
    """Routes the bench can drive."""

    CHAT = "chat"
    COMPLETIONS = "completions"


_WORKLOAD, _SENDING, _FIGURES = "Workload", "Sending", "Figures"
_COLUMNS = (
    "Its columns, e.g. arrival=ts:ms,input=in_tokens,output=out_tokens,session=user,hashes=ids:512 "
    "(units s, ms, us, ns, time; tokens per unit; tokens per block); or azure, mooncake, sharegpt, claude_code, "
    "lmcache; detected when left out."
)
_EXACT = "Make the engine generate the workload's lengths exactly (ignore_eos: vLLM, SGLang, llama.cpp), or let it end."

Url = Annotated[str, typer.Argument(help="Address of an OpenAI endpoint, with or without /v1.")]
Model = Annotated[str, typer.Option(help="Model to ask for; the first of /v1/models when left out.")]
ApiKey = Annotated[str, typer.Option(help="Bearer token.", envvar="HEADWAY_BENCH_API_KEY", show_envvar=True)]
Route = Annotated[Endpoint, typer.Option("--endpoint", help="Route to drive.")]

Rate = Annotated[
    float,
    typer.Option(help="Requests/s; 0: 2/s, or a trace's own rate.", min=0.0, max=1e6, rich_help_panel=_WORKLOAD),
]
Duration = Annotated[
    float,
    typer.Option(help="Seconds of load; 0: 30 s, or the whole trace.", min=0.0, max=1e9, rich_help_panel=_WORKLOAD),
]
Shapes = Annotated[Mix, typer.Option("--mix", help="What generated sessions are like.", rich_help_panel=_WORKLOAD)]
Burstiness = Annotated[
    float,
    typer.Option(help="Variation of the gaps between sessions; 1 is Poisson.", min=0.1, rich_help_panel=_WORKLOAD),
]
Longest = Annotated[
    int, typer.Option(help="Longest prompt plus output, tokens; sessions end there.", min=16, rich_help_panel=_WORKLOAD)
]
Trace = Annotated[
    Path | None,
    typer.Option(
        help="Replay this CSV or JSON Lines file (.gz too).", exists=True, dir_okay=False, rich_help_panel=_WORKLOAD
    ),
]
Columns = Annotated[str, typer.Option(help=_COLUMNS, rich_help_panel=_WORKLOAD)]
Seed = Annotated[int, typer.Option(help="Same seed, same workload and text.", min=0, rich_help_panel=_WORKLOAD)]

Stream = Annotated[bool, typer.Option("--stream/--no-stream", help="Ask for streams.", rich_help_panel=_SENDING)]
ExactOutput = Annotated[bool, typer.Option("--exact-output/--free-output", help=_EXACT, rich_help_panel=_SENDING)]
MaxTokens = Annotated[
    int,
    typer.Option(help="With --free-output: the limit clients state; 0: none.", min=0, rich_help_panel=_SENDING),
]
MaxConcurrency = Annotated[
    int, typer.Option(help="Most requests in flight; 0: no cap.", min=0, rich_help_panel=_SENDING)
]
Patience = Annotated[
    float,
    typer.Option(help="Seconds after the last due moment until the rest is cut.", min=0.0, rich_help_panel=_SENDING),
]
TimeScale = Annotated[
    float,
    typer.Option(
        help="Server seconds per real second, for faster emulators. All times, given and printed, are the server's.",
        min=0.01,
        rich_help_panel=_SENDING,
    ),
]

Warmup = Annotated[
    float, typer.Option(help="Leave the first seconds out of the figures.", min=0.0, rich_help_panel=_FIGURES)
]
SloTtft = Annotated[float, typer.Option(help="TTFT objective (s).", min=0.0, rich_help_panel=_FIGURES)]
SloPerToken = Annotated[
    float,
    typer.Option("--slo-ttft-per-token", help="What a prompt token adds (s).", min=0.0, rich_help_panel=_FIGURES),
]
SloTpot = Annotated[float, typer.Option(help="TPOT objective (s).", min=0.0, rich_help_panel=_FIGURES)]
Json = Annotated[
    bool,
    typer.Option("--json", help="One JSON object on standard output and nothing else.", rich_help_panel=_FIGURES),
]
Records = Annotated[
    Path | None, typer.Option(help="Write every request's record here, as JSON Lines.", rich_help_panel=_FIGURES)
]
