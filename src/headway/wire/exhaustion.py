"""Whether an engine says that it ran out of memory, and whether a client could have made it say so.

Words of allocators as engines pass them on: torch ("CUDA out of memory. Tried to allocate", `OutOfMemoryError`), ggml
("cudaMalloc failed: out of memory"), XLA ("RESOURCE_EXHAUSTED: Out of memory"), CUDA's own error names. Engines also
quote requests in their errors, and being out of memory takes a replica out of use at once: so whoever speaks of memory
in its own request is not believed to have heard it from an allocator.
"""

import re
from typing import Final

from headway.wire.splice import Octets

_EXHAUSTED: Final = re.compile(rb"out[ _-]?of[ _-]?memory|cudaErrorMemoryAllocation", re.IGNORECASE)
_ESCAPED_ASCII: Final = re.compile(rb"\\u00[2-7]", re.IGNORECASE)
"""Letters that need no escape, written as one: nobody does that but to hide them."""

MAX_READ_BYTES: Final = 1024 * 1024
"""Longer bodies are not searched: what they might say is not worth a pause of all others."""


def exhausted(error: bytes) -> bool:
    """Whether an error of an engine says that it is out of memory."""
    return _EXHAUSTED.search(error) is not None


def may_be_quoted(body: Octets) -> bool:
    """Whether an error about memory may repeat what this request says. An empty body is one that is not here any more:
    it may have said anything."""
    if not 0 < len(body) <= MAX_READ_BYTES:
        return True
    said = bytes(body).lower()
    return b"memory" in said or (b"\\u00" in said and _ESCAPED_ASCII.search(said) is not None)
