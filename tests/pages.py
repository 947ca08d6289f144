"""What the explorer keeps in a page that is one file; and dots that stand for figures."""

import base64
import json
import re
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from glassformer.core.files import write_new

DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")
"""A PNG file of one white dot."""


class ExportedPage(NamedTuple):
    """The address that a page opens with, its answers and refusals by their keys, and its tiles."""

    told: dict[str, Any]
    answers: dict[str, Any]
    refused: dict[str, Any]
    tiles: dict[str, bytes]


def parse_page(text: str) -> ExportedPage:
    """Read back what a file of the explorer holds."""
    packed = re.search(r'<script type="text/plain" id="kept">([^<]+)</script>', text)
    assert packed is not None, "this is not the explorer's page"
    whole = zlib.decompress(base64.b64decode(packed[1]))
    length = struct.unpack("<I", whole[:4])[0]
    index = json.loads(whole[4 : 4 + length])
    tiles = {key: whole[4 + length + at : 4 + length + at + size] for key, (at, size) in index["tiles"].items()}
    return ExportedPage(index["told"], index["answers"], index["refused"], tiles)


def read_page(path: Path) -> ExportedPage:
    """Read back what the explorer wrote into a file."""
    return parse_page(Path(path).read_text(encoding="utf-8"))


def write_dot(figure, path):
    """Write a dot in place of a figure, and return where it is, as `plots.save` does."""
    assert figure.get_label()
    return write_new(Path(path), DOT)


def draw_nothing(draw, path):
    """Write a dot in place of a figure that is not drawn, as `plots.style._saved` would."""
    return write_new(path, DOT)


@cache
def really_drawn():
    """What draws a figure into a file, as it was before a test put `draw_nothing` in its place."""
    from glassformer.plots import style

    return style._saved
