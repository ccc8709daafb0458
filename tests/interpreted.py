"""What can only be tested in plain Python: compiled classes (`make fast`) let nobody replace their methods, and mind types."""

import pytest

from headway.core import memory

COMPILED = not memory.__file__.endswith(".py")
interpreted = pytest.mark.skipif(
    COMPILED, reason="replaces a method, or a type, and compiled classes do not allow that"
)
