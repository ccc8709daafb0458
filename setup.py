"""A wheel whose hot modules are compiled, where HEADWAY_COMPILE=1 asks for it (`make wheel`); all else is in
pyproject.toml. Without it, and in every editable install, Headway is plain Python."""

import os
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent


def extensions() -> list[Extension]:
    """What mypyc makes of the modules in compiled.txt. It has to see what they import: no build isolation."""
    from mypyc.build import mypycify

    # sums as plain Python has them; and whatever is called within the one library, directly and not through its table
    flags = "-g0 -ffp-contract=off -fvisibility=hidden -fno-plt"
    os.environ["CFLAGS"] = f"{flags} {os.environ.get('CFLAGS', '')}"
    os.environ["MYPYPATH"] = str(ROOT / "src")
    modules = [str(Path("src") / line) for line in (ROOT / "compiled.txt").read_text().split()]
    return mypycify(modules, opt_level="3")


setup(ext_modules=extensions() if os.environ.get("HEADWAY_COMPILE") == "1" else [])
