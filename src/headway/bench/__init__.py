"""Open-loop load over HTTP against any OpenAI endpoint, and what came of it as plain values.

The bench is a client like any other: it knows nothing of the gateway's insides and shares no parser with it, so that a
mistake on one side shows on the other. `run` is the seam; printing is `report`'s business.
"""

from headway.bench.plan import BenchPlan, BenchResult, ClientLoad, Progress
from headway.bench.runner import run

__all__ = ["BenchPlan", "BenchResult", "ClientLoad", "Progress", "run"]
