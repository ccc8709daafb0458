"""How numbers are written, everywhere the same: three significant digits, and a dash for what was not measured."""

NOTHING = "-"


def seconds(value: float | None) -> str:
    """12 ms, 1.23 s, 2:05 min."""
    if value is None:
        return NOTHING
    if abs(value) < 0.9995:
        return f"{value * 1000:.3g} ms" if abs(value) >= 0.001 or value == 0 else f"{value * 1e6:.3g} µs"
    if abs(value) < 119.5:
        return f"{value:.3g} s"
    return f"{int(value) // 60}:{int(value) % 60:02d} min"


def count(value: float | None) -> str:
    """1,234 or 123k or 1.2M: whole below ten thousand, short above."""
    if value is None:
        return NOTHING
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= (10_000 if letter == "k" else size):
            return f"{value / size:.3g}{letter}"
    return f"{value:,.0f}"


def rate(value: float | None, unit: str = "/s") -> str:
    """1.23/s"""
    return NOTHING if value is None else f"{value:.3g}{unit}" if value < 1000 else f"{count(value)}{unit}"


def share(value: float | None) -> str:
    """93.1 %"""
    return NOTHING if value is None else f"{value * 100:.3g} %"


def bar(fraction: float | None, width: int = 10) -> str:
    """A bar of eighth blocks, clipped to [0, 1]; a dash when unknown."""
    if fraction is None:
        return NOTHING
    eighths = round(min(1.0, max(0.0, fraction)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width)
