"""Plain random mutation of a kept corpus, bounded in time, repeatable by its seed.

    python -m fuzz.run --seconds 60 --seed 1 [--target body]

A finding (a broken promise, an uncaught exception, or more than 100 ms for one input) is saved into the corpus, where
the tests replay it for ever, and the run ends with status 1.
"""

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from fuzz.targets import TARGETS

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "corpus"
SLOW_S = 0.1
HANG_S = 5.0
MAX_BYTES = 64 * 1024
WORDS = (
    b'"model":', b'"stream":true', b'"stream_options":', b'{"include_usage":null}', b'"messages":[', b'"usage":', b"{}",
    b"[]", b"null", b"\\u006d", b"\\ud800", b"\\", b'"', b"NaN", b"1e400", b"-0", b"\xff", b"\xef\xbb\xbf", b"\x00",
    b"data: ", b": c\n", b"\n\n", b"\r\n", b"\r", b"[DONE]", b'"choices":[]', b'"error":', b'"finish_reason":',
    b"\nm 1\n", b'm{a="', b"+Inf", b"# ", b"--b\r\n", b"--b--", b'Content-Disposition: form-data; name="model"\r\n\r\n',
)  # fmt: skip


def mutate(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """One to six random changes."""
    for _ in range(rng.randint(1, 6)):
        at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        end = min(end, at + 200)
        new = rng.choice(
            (
                lambda: b"",
                lambda: rng.randbytes(rng.randint(1, 4)),
                lambda: rng.choice(WORDS),
                lambda at=at, end=end, data=data: data[at:end] * rng.randint(2, 4),
                lambda: _slice(rng.choice(others), rng),
            )
        )()
        data = data[:at] + new + data[end if rng.random() < 0.5 else at :]
    return data[:MAX_BYTES]


def _slice(data: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[at : at + rng.randint(0, 200)]


def _hang(*_: object) -> None:
    raise TimeoutError(f"more than {HANG_S} s")


def check(target: Callable[[bytes], None], data: bytes) -> str:
    """What is wrong with the target on this input, empty if nothing is."""
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    began = time.perf_counter()
    try:
        target(data)
    except Exception as error:  # noqa: BLE001 any exception is a finding
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    took = time.perf_counter() - began
    return f"took {took * 1000:.0f} ms" if took > SLOW_S else ""


def fuzz(name: str, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Run one target. Returns the number of inputs tried and what was found (at most ten)."""
    target, rng = TARGETS[name], random.Random(f"{name} {seed}")
    seeds = [file.read_bytes() for file in sorted((CORPUS / name).iterdir())]
    findings: list[str] = []
    tried, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until and len(findings) < 10:
        data = mutate(rng.choice(seeds), seeds, rng)
        tried += 1
        wrong = check(target, data)
        if wrong.startswith("took"):
            wrong = check(target, data)  # another process may have had the core: slow twice is slow
        if wrong:
            file = CORPUS / name / f"finding-{sha256(data).hexdigest()[:12]}"
            file.write_bytes(data)
            findings.append(f"{file}: {wrong}")
    return tried, findings


def main() -> int:
    """Run the targets one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=sorted(TARGETS))
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _hang)
    names = [options.target] if options.target else list(TARGETS)
    status = 0
    for name in names:
        tried, findings = fuzz(name, options.seconds / len(names), options.seed)
        sys.stdout.write(f"{name}: {tried} inputs, {len(findings)} findings (seed {options.seed})\n")
        for finding in findings:
            status = 1
            sys.stdout.write(f"  {finding}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
