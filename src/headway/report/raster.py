"""Heat maps as tiny pictures: an indexed PNG, one pixel per cell, small enough to live inside a page.

As SVG rectangles the KV use of 64 replicas would be ten thousand elements per policy; as a PNG it is a few kB. Cells
that are empty are transparent, so that the picture suits light and dark pages alike.
"""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Shades = NDArray[np.uint8]

_STOPS: tuple[tuple[float, tuple[int, int, int, int]], ...] = (
    (0.0, (59, 130, 246, 0)),
    (0.5, (59, 130, 246, 110)),
    (0.8, (99, 91, 235, 215)),
    (0.92, (217, 70, 160, 245)),
    (1.0, (225, 29, 47, 255)),
)
"""Faint blue while there is room, violet from 80 %, red when full: what hurts catches the eye."""


def heat_uri(values: Sequence[Sequence[float]], columns: int = 240) -> str:
    """A data: address of a picture of values 0..1 [row][time]; times are averaged down to at most `columns`."""
    cells = np.clip(np.rint(pool(np.asarray(values, dtype=np.float64), columns) * 255), 0, 255)
    return "data:image/png;base64," + base64.b64encode(png(cells.astype(np.uint8))).decode()


def pool(values: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """Mean over neighbouring columns, so that at most `columns` remain."""
    width = values.shape[1]
    if width <= columns:
        return values
    edges = np.linspace(0, width, columns + 1).astype(int)
    pooled: NDArray[np.float64] = np.add.reduceat(values, edges[:-1], axis=1) / np.diff(edges)
    return pooled


def png(cells: Shades) -> bytes:
    """An indexed picture in the shades of KV use (PNG specification, colour type 3). Cells: [row][column]."""
    height, width = cells.shape
    shades = palette()
    rows = np.hstack((np.zeros((height, 1), np.uint8), cells)).tobytes()  # each row begins with filter type 0
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", shades[:, :3].tobytes()),
        (b"tRNS", shades[:, 3].tobytes()),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def palette() -> Shades:
    """256 shades: red, green, blue, opacity."""
    places = [place for place, _ in _STOPS]
    channels = zip(*(shade for _, shade in _STOPS), strict=True)
    ramp = np.linspace(0, 1, 256)
    shades: Shades = np.rint([np.interp(ramp, places, channel) for channel in channels]).T.astype(np.uint8)
    return shades


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
