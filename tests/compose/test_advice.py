"""What is doubtful is told once and by its path; what is all right is not."""

from pathlib import Path

import pytest

from headway.compose.advice import advice, journal_problem
from headway.compose.settings import Settings
from headway.compose.source import dotted


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ({}, []),
        ({"replicas": ["http://a/v1", "http://b/v1/", "http://c/v10", "http://d/v1/x"]}, [0, 1]),
        ({"replicas": [{"url": "http://a", "gpu": "h100-80gb"}, {"url": "http://b", "gpu": "nosuch"}]}, [1]),
        ({"models": {"x": "y", "y": "z", "u": ["x", "m"], "w": ["w", "x"]}}, ["x"]),
    ],
)
def test_doubts(data: dict[str, object], paths: list[str | int]) -> None:
    assert [doubt.path[1] for doubt in advice(Settings.model_validate(data))] == paths


def test_a_doubt_names_its_field() -> None:
    (doubt,) = advice(Settings.model_validate({"replicas": ["http://a/v1"]}))
    assert dotted(doubt.path) == "replicas[0].url"


def test_where_no_journal_can_be(tmp_path: Path) -> None:
    assert journal_problem(tmp_path / "j") == ""
    (tmp_path / "j").touch()
    assert journal_problem(tmp_path / "j") == ""
    assert journal_problem(tmp_path) == f"{tmp_path} is a folder"
    assert journal_problem(tmp_path / "no" / "j") == f"there is no folder {tmp_path / 'no'}"
