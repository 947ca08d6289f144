"""Numbers and texts as people read them, in tables, messages, figures and formulas."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

SPACE = "␣"


def signed(value: float, places: int) -> str:
    """Write a change with its sign; one that rounds to zero has none."""
    text = f"{value:+.{places}f}"
    return text[1:] if not text.strip("+-0.") else text


def percent(share: float) -> str:
    """Write a share in percent: 12.3 %; more decimals just below 100 %, and fewer than 0.1 % as < 0.1 %."""
    number = 100 * float(share)
    if number >= 99.95:
        return "100 %" if number >= 99.995 else f"{number:.2f} %"
    return f"{number:.1f} %" if number >= 0.1 else "0 %" if number == 0 else "< 0.1 %"


def digits(number: float, count: int = 4) -> str:
    """Write a number with some significant digits and a typographic minus, as formulas show it."""
    return f"{number + 0.0:.{count}g}".replace("-", "−")


def compact(value: float) -> str:
    """Write a number in at most seven columns: 1.8702, 0.0002, 12.35, 3.1e-05."""
    if value and not 1e-4 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.{4 if abs(value) < 10 else 2 if abs(value) < 1000 else 0}f}"


def cell_text(cell: Any) -> str:
    """Write a cell of a table: a word as it is, a number with four digits, nothing for None."""
    if cell is None:
        return ""
    return f"{cell:.4g}" if isinstance(cell, Real) and not isinstance(cell, Integral) else str(cell)


def bytes_text(size: float) -> str:
    """Write a memory size: 1.5 GiB."""
    return _scaled(size, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def count_text(number: float) -> str:
    """Write a large count: 124.4 M."""
    return _scaled(number, 1000, ("", "k", "M", "B", "T"))


def flops_text(number: float) -> str:
    """Write an amount of arithmetic: 284.8 MFLOP, 349.3 GFLOP."""
    return _scaled(number, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"))


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    power = max(power for power in range(len(units)) if power == 0 or abs(number) >= base**power)
    decimals = 1 if power else 0
    return f"{number / base**power:,.{decimals}f} {units[power]}".rstrip()


# --- texts -----------------------------------------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Return `text` on one line: line ends and unprintable characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def visible(text: str) -> str:
    """Return `text` on one line, with spaces as ␣."""
    return escaped(text).replace(" ", SPACE)


def shorten(text: str, width: int) -> str:
    """Return a text of at most `width` characters, its end replaced by an ellipsis where it is longer."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
