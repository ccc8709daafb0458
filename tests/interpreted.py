"""What can only be tested in plain Python: compiled classes (`make fast`) mind types, keep their
methods, and have no heirs in plain Python."""

import pytest

from headway.core import memory

COMPILED = not memory.__file__.endswith(".py")
interpreted = pytest.mark.skipif(COMPILED, reason="replaces a method or a type, which compiled classes do not allow")
