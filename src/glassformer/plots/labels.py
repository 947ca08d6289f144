"""Labels of tokens: invisible characters get a sign, and those that no font can draw an escape."""

import unicodedata
from collections.abc import Sequence
from functools import cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "⇤", "\N{NO-BREAK SPACE}": "⍽"}

# Common fonts with many scripts; those that this machine has follow the font that matplotlib brings.
_CANDIDATES = (
    *("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans CJK TC"),
    *("Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Arial Unicode MS"),
    *("Hiragino Sans", "PingFang SC", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Bengali"),
    *("Noto Sans Tamil", "Noto Sans Telugu", "Noto Sans Georgian", "Noto Sans Armenian", "Noto Sans Symbols2"),
    *("FreeSans", "FreeSerif", "Unifont"),
)


@cache
def font_families() -> tuple[str, ...]:
    """Return the fonts to draw with: the first that has a character draws it."""
    present = {entry.name for entry in font_manager.fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _CANDIDATES if name in present))


def weight_text(weight: float) -> str:
    """Return a share between 0 and 1 with two decimals and no leading zero."""
    text = f"{weight:.2f}"
    return text[1:] if text.startswith("0") else text


@cache
def _drawable() -> frozenset[int]:
    """Return the code points that the fonts can draw."""
    known: set[int] = set()
    for family in font_families():
        known.update(FT2Font(font_manager.findfont(family)).get_charmap())
    return frozenset(known)


def visible(label: str, limit: int = 14) -> str:
    """Return a label as one short line: signs for white space at its ends, escapes for what no font can draw.

    A dollar sign is escaped, since matplotlib would read mathematics.
    """
    if not label:
        return "∅"
    first, last = len(label) - len(label.lstrip(" ")), len(label.rstrip(" "))
    text = "".join(" " if c == " " and first < i < last else _sign(c) for i, c in enumerate(label))
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    if unicodedata.combining(text[0]):
        text = "◌" + text
    return text.replace("$", r"\$")


def visible_all(labels: Sequence[str], limit: int = 14) -> list[str]:
    """Return every label as `visible` shows it."""
    return [visible(label, limit) for label in labels]


def _sign(character: str) -> str:
    sign = _SIGNS.get(character, character)
    hidden = sign == character and unicodedata.category(character)[0] in "CZ"
    if hidden or ord(sign) not in _drawable():
        return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):x}"
    return sign
