"""The clock of a body. The brain never reads one: it is told the time with every event."""

import time


def now() -> float:
    """Monotonic seconds since an arbitrary origin; never goes back, unaffected by changes of the wall clock."""
    return time.monotonic()
