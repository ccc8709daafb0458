"""Settings of observation as plain values, with the reasons for their defaults."""

import msgspec


class ObserveConfig(msgspec.Struct, frozen=True):
    """How often and how patiently replicas are looked at (seconds unless named otherwise).

    `interval_s` is jittered by a tenth, so that gateways do not scrape in step. Answers that take long stretch the
    interval to `slow_factor` times their duration, so that scraping never fills more than a quarter of a replica's
    time; failures double it; neither beyond `slowest_s`.
    """

    interval_s: float = 0.5
    timeout_s: float = 2.0
    slow_factor: float = 4.0
    slowest_s: float = 5.0
    page_cap_bytes: int = 4 * 1024 * 1024
    absent_s: float = 60.0  # how long a report that an engine does not have is not asked for again
    frozen_s: float = 10.0  # a page with a heartbeat that has not changed for so long is no news
    probe_interval_s: float = 5.0
    probe_timeout_s: float = 3.0
    warm_up_timeout_s: float = 25.0  # of each of two ways to ask: a first token that has graphs captured for it is slow
    cards_interval_s: float = 30.0
    cards_retry_s: float = 2.0  # doubled with each failure in a row, up to the interval
    devices_interval_s: float = 10.0  # the exporter itself collects every 30 s by default


DEFAULTS = ObserveConfig()
