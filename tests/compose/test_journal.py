from pathlib import Path

import pytest

from headway.compose.journal import JournalWriter
from headway.core.events import TimerFired
from headway.wire.journal import decode_entry


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


class Full:
    """A file on a disk that is full."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        self.closed = True
        raise OSError(28, "No space left on device")


def test_header_and_entries(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j", b"header\n", Clock())
    for number in range(3):
        writer(TimerFired(float(number), "x"), [])
    writer.close()
    header, *entries = (tmp_path / "j").read_bytes().splitlines()
    assert header == b"header"
    assert [decode_entry(line).event for line in entries] == [TimerFired(float(n), "x") for n in range(3)]


def test_a_crash_loses_at_most_a_second(tmp_path: Path) -> None:
    clock = Clock()
    writer = JournalWriter(tmp_path / "j", b"header\n", clock)
    writer(TimerFired(0.0, "x"), [])
    assert len((tmp_path / "j").read_bytes().splitlines()) == 1
    clock.at = 1.5
    writer(TimerFired(1.5, "x"), [])
    assert len((tmp_path / "j").read_bytes().splitlines()) == 3
    writer.close()


def test_a_full_disk_ends_the_journal_and_nothing_else(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "j", b"header\n", Clock())
    full = Full()
    assert writer._file is not None
    writer._file.close()
    writer._file = full  # type: ignore[assignment]
    writer(TimerFired(0.0, "x"), [])
    writer(TimerFired(1.0, "x"), [])
    writer.close()
    assert full.closed
    assert writer.events == 0


def test_a_path_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        JournalWriter(tmp_path / "absent" / "j", b"", Clock())


@pytest.mark.parametrize("path", [Path("/dev/full"), Path("/nowhere/j")])
def test_a_journal_that_cannot_be_begun_is_named(path: Path) -> None:
    if path.parent.exists() and not path.exists():
        pytest.skip("no full device here")
    with pytest.raises(OSError, match=str(path)) as caught:
        JournalWriter(path, b"header\n", Clock())
    assert caught.value.filename == str(path)
