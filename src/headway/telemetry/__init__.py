"""What is known about what happened: counters, the bounded memory of decisions, log lines.

Telemetry receives plain values (`Access`, `Decision`, `Settled`, `HealthChanged`) and never steers anything: losing
all of it changes no request. What is called per request must cost less than 3 µs together, so counters are plain
numbers that become Prometheus text only when a scrape asks for them.
"""

from headway.telemetry.access import Access, Account
from headway.telemetry.decisions import DecisionLog
from headway.telemetry.metrics import Telemetry

__all__ = ["Access", "Account", "DecisionLog", "Telemetry"]
