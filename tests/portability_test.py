"""What must hold on every Python from 3.11.0 on, whichever runs the tests."""

import ast
import re
from pathlib import Path

import pytest

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


def test_no_final_of_a_compiled_module_is_a_tuple_of_floats() -> None:
    """mypyc (of mypy 2.4) forgets them: "value for final name was not set", in compiled builds only."""
    source = Path(headway.__file__).parent.parent
    listed = source.parent / "compiled.txt"
    if not listed.exists():
        pytest.skip("installed without compiled.txt")
    found = [
        f"{name}:{node.lineno}"
        for name in listed.read_text().split()
        for node in ast.walk(ast.parse((source / name).read_text()))
        if isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation)
        if isinstance(node.value, ast.Tuple) and "..." not in ast.unparse(node.annotation)
        if any(isinstance(each, ast.Constant) and isinstance(each.value, float) for each in node.value.elts)
    ]
    assert found == []
