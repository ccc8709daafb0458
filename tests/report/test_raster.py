"""Heat maps as pictures."""

import base64
import struct
import zlib

import numpy as np
import pytest

from headway.report.raster import heat_uri, palette, png, pool


def chunks(picture: bytes) -> dict[bytes, bytes]:
    """The parts of a PNG, their check sums verified."""
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = {}, 8
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        kind, data = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        assert struct.unpack(">I", picture[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        found[kind] = data
        at += 12 + length
    return found


def test_a_picture_holds_the_cells_it_was_given() -> None:
    cells = np.array([[0, 128, 255], [1, 2, 3]], dtype=np.uint8)
    parts = chunks(png(cells))
    assert list(parts) == [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", parts[b"IHDR"]) == (3, 2, 8, 3, 0, 0, 0)
    assert zlib.decompress(parts[b"IDAT"]) == bytes([0, 0, 128, 255, 0, 1, 2, 3])
    assert len(parts[b"PLTE"]) == 768


def test_empty_is_transparent_and_full_is_red() -> None:
    shades = palette()
    assert shades[0, 3] == 0
    assert shades[255].tolist() == [225, 29, 47, 255]
    assert np.all(np.diff(shades[:, 3].astype(int)) >= 0)


def test_long_runs_are_averaged_down() -> None:
    values = np.random.default_rng(0).uniform(0, 1, (4, 1000))
    small = pool(values, 240)
    assert small.shape == (4, 240)
    assert small.mean() == pytest.approx(values.mean(), abs=0.002)
    assert pool(values[:, :100], 240).shape == (4, 100)


def test_an_hour_of_64_replicas_stays_small() -> None:
    steady = np.clip(np.random.default_rng(0).normal(0.6, 0.1, (64, 3600)), 0, 1).tolist()
    uri = heat_uri(steady)
    assert uri.startswith("data:image/png;base64,")
    assert len(uri) < 20_000
    assert struct.unpack(">II", chunks(base64.b64decode(uri.partition(",")[2]))[b"IHDR"][:8]) == (240, 64)
