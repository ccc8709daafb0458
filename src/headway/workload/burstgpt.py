"""BurstGPT: how the load of a campus service on OpenAI's models went by the minute and by the hour.

Only aggregates of the trace are at hand (tokens per minute of a week, requests per hour of the day), so they serve as
profiles of arrivals; what arrives comes from elsewhere. Source: Wang et al., BurstGPT, through the aggregates that
docs/workloads.md names.
"""

import csv
import math
from collections.abc import Iterable

import numpy as np

from headway.workload.arrivals import Profile
from headway.workload.columns import TraceError

HOURS = (
    940.3,
    892.6,
    571.6,
    513.0,
    368.2,
    341.5,
    193.8,
    153.3,
    177.7,
    415.9,
    878.8,
    1286.5,
    1744.3,
    1501.1,
    1795.9,
    1401.1,
    1475.5,
    1355.8,
    1181.2,
    1567.6,
    1352.8,
    1175.0,
    1129.0,
    1025.8,
)
"""Requests per hour of the day, mean of 61 days: the busiest hour has twelve times the requests of the quietest."""
_MOST_MINUTES = 5_256_000
MINUTES = ("minute", "tokens_per_s")


def is_minutes(names: set[str]) -> bool:
    """Whether a header is that of the file of minutes."""
    return set(MINUTES) <= names


def read_minutes(lines: Iterable[str]) -> Profile:
    """The week as a profile of minutes; minutes that the file leaves out had no traffic."""
    rows = csv.DictReader(lines)
    try:
        found = {int(row[MINUTES[0]]): float(row[MINUTES[1]]) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"BurstGPT minutes, line {rows.line_num}: {error!r}") from None
    if not found:
        raise TraceError("BurstGPT minutes: empty")
    if (
        min(found) < 0
        or max(found) > _MOST_MINUTES
        or min(found.values()) < 0
        or not 0 < sum(found.values()) < math.inf
    ):
        raise TraceError("BurstGPT minutes: they and their tokens are 0 or more, and some are more, within ten years")
    return Profile(60.0, tuple(found.get(minute, 0.0) for minute in range(max(found) + 1)))


def busiest(profile: Profile, length_s: float) -> Profile:
    """The profile of its busiest `length_s` alone."""
    steps = max(1, min(len(profile.weights), round(length_s / profile.step_s)))
    sums = np.convolve(profile.weights, np.ones(steps), mode="valid")
    first = int(np.argmax(sums))
    return Profile(profile.step_s, profile.weights[first : first + steps])
