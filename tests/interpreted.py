"""What can only be tested in plain Python: compiled classes (`make fast`) mind types and keep their methods."""

import pytest

from headway.core import memory

COMPILED = not memory.__file__.endswith(".py")
interpreted = pytest.mark.skipif(COMPILED, reason="replaces a method or a type, which compiled classes do not allow")
