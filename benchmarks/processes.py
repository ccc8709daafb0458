"""What the operating system says about the processes a benchmark started. Linux only (/proc)."""

import os
import socket
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found, queue = [], [pid]
    while queue:
        current = queue.pop()
        found.append(current)
        try:
            for task in Path(f"/proc/{current}/task").iterdir():
                queue += [int(c) for c in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process tree so far."""
    total = 0
    for member in tree(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def rss_bytes(pid: int) -> int:
    """Resident memory of a process tree now."""
    return sum(int(Path(f"/proc/{m}/statm").read_text().split()[1]) * PAGE for m in tree(pid))


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
