"""The clock of a body. The brain never reads one: it is told the time with every event."""

import time

now = time.monotonic
"""Monotonic seconds since an arbitrary origin; never goes back, unaffected by changes of the wall clock. The builtin
itself: a request reads it seven times."""
