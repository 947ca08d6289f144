"""Token labels that can be seen: invisible characters get a sign, those that no font can draw an escape."""

import unicodedata
from collections.abc import Sequence
from functools import cache

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "⇤", "\N{NO-BREAK SPACE}": "⍽"}

# The font that matplotlib brings, then common ones with many scripts, as far as this machine has them.
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
    """Return the fonts to draw with: the first that knows a character draws it."""
    present = {entry.name for entry in font_manager.fontManager.ttflist}
    return ("DejaVu Sans", *(name for name in _CANDIDATES if name in present))


@cache
def _font() -> FT2Font:
    """Return one font that falls back to the others."""
    return font_manager.get_font([font_manager.findfont(family) for family in font_families()])


def text_width(text: str, size: float) -> float:
    """Return how wide a line of `visible` text is in points, set in letters of some points."""
    font = _font()
    font.set_size(size, 72)
    font.set_text(plain(text))
    return float(font.get_width_height()[0]) / 64


def weight_text(weight: float) -> str:
    """Return a share between 0 and 1 with two decimals, without the leading zero that all below one have."""
    text = f"{weight:.2f}"
    return text[1:] if text.startswith("0") else text


@cache
def _drawable() -> frozenset[int]:
    """Return the code points that some of the fonts can draw."""
    known: set[int] = set()
    for family in font_families():
        known.update(FT2Font(font_manager.findfont(family)).get_charmap())
    return frozenset(known)


def visible(label: str, limit: int = 14) -> str:
    """Return a label that shows as one short line: signs for white space (except spaces between words),
    escapes for what cannot be drawn.

    At most `limit` characters remain of a longer one. A dollar sign is protected: matplotlib would read mathematics.
    """
    if not label:
        return "∅"
    inside = len(label) - len(label.lstrip(" ")), len(label.rstrip(" "))
    text = "".join(
        " " if character == " " and inside[0] < i < inside[1] else _sign(character) for i, character in enumerate(label)
    )
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    if unicodedata.combining(text[0]):
        text = "◌" + text
    return text.replace("$", r"\$")


def visible_all(labels: Sequence[str], limit: int = 14) -> list[str]:
    """Return every label as `visible` shows it."""
    return [visible(label, limit) for label in labels]


def plain(text: str) -> str:
    """Return `visible` text as it reads, for places that are not drawn by matplotlib."""
    return text.replace(r"\$", "$")


def _sign(character: str) -> str:
    sign = _SIGNS.get(character, character)
    code = ord(character)
    hidden = sign == character and unicodedata.category(character)[0] in "CZ"
    if hidden or ord(sign) not in _drawable():
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:x}"
    return sign
