"""A build whose hot modules are compiled, where HEADWAY_COMPILE asks for it (`make fast`, `make wheel`); all else is in
pyproject.toml. Without it, and in every editable install, Headway is plain Python.

HEADWAY_COMPILE=1 compiles. With gcc a profile makes it faster: `count` compiles with counters, which write what they
counted beside the objects when a process ends; `counted` compiles by that (docs/decisions, 7).
"""

import os
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent


PROFILE = {
    "1": "",
    "count": "-fprofile-generate",
    "counted": "-fprofile-use -Wno-missing-profile",  # what was never run has none
}


def extensions(profile: str) -> list[Extension]:
    """What mypyc makes of the modules in compiled.txt. It has to see what they import: no build isolation."""
    from mypyc.build import mypycify

    # sums as plain Python has them; and whatever is called within the one library, directly and not through its table
    flags = f"-g0 -ffp-contract=off -fvisibility=hidden -fno-plt {profile}"
    os.environ["CFLAGS"] = f"{flags} {os.environ.get('CFLAGS', '')}"
    os.environ["MYPYPATH"] = str(ROOT / "src")
    modules = [str(Path("src") / line) for line in (ROOT / "compiled.txt").read_text().split()]
    return mypycify(modules, opt_level="3")


wanted = os.environ.get("HEADWAY_COMPILE", "")
setup(ext_modules=extensions(PROFILE[wanted]) if wanted else [])
