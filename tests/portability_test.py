"""What must hold on every Python from 3.11.0 on, whichever runs the tests."""

import re
from pathlib import Path

import headway

GROUP_POSSESSIVE = re.compile(r"\)[*+?}]\+|\(\?>")


def test_no_expression_is_possessive_over_a_group() -> None:
    """Python before 3.11.5 matches them wrongly (gh-106052); on such a Python every request head was refused."""
    found = [
        f"{path.name}:{number}"
        for path in Path(headway.__file__).parent.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if "re.compile" in line or line.lstrip().startswith(('rb"', 'r"')) or ' = rb"' in line
        if GROUP_POSSESSIVE.search(line)
    ]
    assert found == []
