import errno
import os
import threading
import time
from collections.abc import Callable

import pytest

from headway.telemetry.sink import LineSink, to_descriptor, to_nowhere


class Disk:
    """A stream that can be full."""

    def __init__(self) -> None:
        self.full = False
        self.data = b""
        self.tries = 0
        self.tried = threading.Event()

    def write(self, data: bytes) -> None:
        self.tries += 1
        self.tried.set()
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        self.data += data


def line(text: str) -> Callable[[], str]:
    return lambda: text


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.001)


def test_lines_arrive_in_order_and_batched() -> None:
    disk = Disk()
    sink = LineSink(disk.write, gather_s=0.01)
    for number in range(500):
        sink.put(line(str(number)))
    sink.close()
    assert disk.data.decode().split() == [str(number) for number in range(500)]
    assert disk.tries <= 20


def test_a_full_disk_costs_lines_but_no_loop_and_heals() -> None:
    disk = Disk()
    disk.full = True
    sink = LineSink(disk.write, rest_s=(0.02,), gather_s=0.0)
    for number in range(50):
        sink.put(line(str(number)))
        time.sleep(0.001)
    until(lambda: sink.dropped > 0)
    assert disk.tries < 20
    assert "no space" in sink.last_error
    disk.full = False
    until(lambda: sink.put(line("back")) is None and disk.data.endswith(b"back\n"))
    sink.close()


def test_the_queue_is_bounded_while_a_write_hangs() -> None:
    released = threading.Event()
    sink = LineSink(lambda _data: released.wait(5) and None, capacity=10, gather_s=0.0)
    sink.put(line("first"))
    until(lambda: not sink._queue)
    for number in range(100):
        sink.put(line(str(number)))
    assert sink.dropped == 90
    released.set()
    sink.close()


def test_closing_does_not_wait_for_a_stuck_stream() -> None:
    released = threading.Event()
    sink = LineSink(lambda _data: released.wait(5) and None, gather_s=0.0)
    sink.put(line("x"))
    start = time.monotonic()
    sink.close(wait_s=0.05)
    assert time.monotonic() - start < 1
    released.set()


def test_a_closed_reader_is_survived() -> None:
    reading, writing = os.pipe()
    write = to_descriptor(writing)
    os.close(writing)
    write(b"still open for us\n")
    assert os.read(reading, 100) == b"still open for us\n"
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        write(b"nobody")


def test_nowhere() -> None:
    with pytest.raises(OSError, match="no stream"):
        to_nowhere(b"x")
