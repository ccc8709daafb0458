"""Errors of connecting that say what this process or its machine lacks, and nothing of whom it wanted to reach.

Whoever judges replicas by failed connections must tell these apart: a gateway out of descriptors would eject its fleet.
"""

import errno

SHORTAGES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))
"""Descriptors, buffers, memory, local ports."""
