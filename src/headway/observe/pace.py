"""How long to wait before the next scrape: pure arithmetic, so that backing off can be tested without waiting.

A llama.cpp server froze under fast polling, and a scraper that hammers dead replicas starves the good ones; so slow
and failing replicas are asked less often, within bounds.
"""

from headway.core.plugin import Chance
from headway.observe.config import ObserveConfig

JITTER = 0.1


class Pace:
    """The rhythm of one replica's scrapes."""

    def __init__(self, config: ObserveConfig, chance: Chance) -> None:
        self._config = config
        self._chance = chance
        self.failures = 0
        self.interval_s = config.interval_s
        self._last_s = 0.0

    def after(self, took_s: float, ok: bool) -> float:
        """Seconds to wait after a scrape that took `took_s`, such that scrapes start `interval_s` apart.

        One slow answer may be our own hiccup: only the quicker of the last two counts. Silence is the slowest answer.
        """
        config = self._config
        self.failures = 0 if ok else min(self.failures + 1, 30)
        slow_s, self._last_s = min(took_s, self._last_s), took_s
        wanted = max(config.interval_s * 2**self.failures, config.slow_factor * slow_s)
        self.interval_s = min(wanted, max(config.slowest_s, config.interval_s))
        jittered = self.interval_s * (1.0 + JITTER * (2.0 * self._chance.random() - 1.0))
        return max(jittered - took_s, config.interval_s / 10)
