"""One engine under two names is found; engines at different ports, paths or addresses are not taken for one."""

from collections.abc import Callable
from typing import Any

import pytest

from headway.compose.twins import twins

Run = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("urls", "found"),
    [
        (["http://localhost:81", "http://127.0.0.1:81"], 1),
        (["http://127.0.0.1", "http://localhost:80"], 1),
        (["http://localhost:81", "http://127.0.0.1:82"], 0),
        (["http://localhost:81/a", "http://127.0.0.1:81/b"], 0),
        (["http://127.0.0.1:81", "http://127.0.0.2:81"], 0),
        (["http://nosuch.invalid:81", "http://nosuch.invalid.:81"], 0),
        ([], 0),
    ],
)
def test_urls_of_one_place(run: Run, urls: list[str], found: int) -> None:
    assert run(twins(urls)) == tuple([tuple(urls)] * found)
