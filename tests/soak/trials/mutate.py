"""Ways to spoil bytes, JSON and text, all of them drawn from one generator."""

from __future__ import annotations

import copy
import json
import random
import string
from collections.abc import Sequence
from typing import Any

EXTREME = (
    0,
    1,
    2,
    7,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 255, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**30, 10**400, 0.5, -0.0, 1e300,
    1e-320, float("nan"), float("inf"), "", " ", "0", "-1", "nan", "a", "é", "\x00", "\ud800", "🦊", "a" * 300, "../..",
    "/dev/null", [], {}, [[]], [{}], [None], [0], [1, 2], [2**62, 4], {"": None}, {"a": {}}, ["a"] * 40,
)  # fmt: skip
"""Values that nobody expects."""


def spoiled_bytes(data: bytes, rng: random.Random, *, within: int | None = None) -> bytes:
    """Change some of the first `within` bytes: bits, numbers, pieces left out, doubled or moved, or the end."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not changed:
            break
        place = rng.randrange(min(len(changed), within or len(changed)))
        _spoil(changed, place, rng)
    return bytes(changed)


def _spoil(data: bytearray, place: int, rng: random.Random) -> None:
    length = rng.choice((1, 2, 4, 8, rng.randrange(1, 64)))
    match rng.randrange(9):
        case 0:
            data[place] ^= 1 << rng.randrange(8)
        case 1:
            data[place] = rng.randrange(256)
        case 2:
            size = rng.choice((2, 4, 8))
            number = rng.choice(EXTREME) & ((1 << 8 * size) - 1)
            data[place : place + size] = number.to_bytes(size, rng.choice(("little", "little", "big")))
        case 3:
            del data[place : place + length]
        case 4:
            data[place:place] = data[place : place + length]
        case 5:
            data[place:place] = rng.randbytes(length)
        case 6:
            data[place : place + length] = bytes(min(length, len(data) - place))
        case 7:
            other = rng.randrange(len(data))
            data[place : place + length] = data[other : other + length]
        case _ if rng.random() < 0.3:
            del data[place:]


def spoiled_json(value: Any, rng: random.Random, *, odd: Sequence[Any] = ODD) -> bytes:
    """Replace, remove, double or nest some parts of a JSON value, and now and then spoil its text as well."""
    changed = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        changed = replaced(changed, rng, odd)
    text = json.dumps(changed, ensure_ascii=rng.random() < 0.8)
    if rng.random() < 0.02:
        text = text.replace(rng.choice(("{", "[", '"', ":", "1")), "[" * rng.choice((10, 1000, 100_000)), 1)
    content = text.encode("utf-8", "surrogatepass")
    return spoiled_bytes(content, rng) if rng.random() < 0.15 else content


def replaced(value: Any, rng: random.Random, odd: Sequence[Any]) -> Any:
    """Return a value with one of its parts changed: the deeper it is, the more turns lead there."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        return _changed_dict(value, name, rng, odd)
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        match rng.randrange(6):
            case 0:
                del value[place]
            case 1:
                value.insert(place, copy.deepcopy(value[place]))
            case 2:
                value[place] = _one_of(rng, odd)
            case _:
                value[place] = replaced(value[place], rng, odd)
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e99 and rng.random() < 0.4:
        return rng.choice((value + 1, value - 1, -value, value * 2, value * 10**6, value / 2, str(value)[:99]))
    if isinstance(value, str) and rng.random() < 0.4:
        return spoiled_text(value, rng, ())
    return _one_of(rng, odd)


def _changed_dict(value: dict[str, Any], name: str, rng: random.Random, odd: Sequence[Any]) -> Any:
    match rng.randrange(8):
        case 0:
            del value[name]
        case 1:
            value[name] = _one_of(rng, odd)
        case 2:
            value[rng.choice((*value, "", "x", name.upper(), name + "s"))] = value.pop(name)
        case 3:
            value[name] = copy.deepcopy(rng.choice(list(value.values())))
        case _:
            value[name] = replaced(value[name], rng, odd)
    return value


def _one_of(rng: random.Random, odd: Sequence[Any]) -> Any:
    return copy.deepcopy(rng.choice(odd))


def spoiled_text(text: str, rng: random.Random, words: Sequence[str]) -> str:
    """Leave out, double, swap or put in pieces of a text; `words` are those that mean something in it."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, length = rng.randrange(len(text) + 1), rng.choice((1, 2, 8, 40))
        piece = text[place : place + length]
        match rng.randrange(5):
            case 0:
                text = text[:place] + text[place + length :]
            case 1:
                text = text[:place] + piece * rng.choice((2, 2, 3, 50)) + text[place + length :]
            case 2:
                text = text[:place] + "".join(rng.choices(string.printable + "éß日🦊\x00\u2028", k=4)) + text[place:]
            case 3:
                other = rng.randrange(len(text) + 1)
                text = text[:place] + text[other : other + length] + text[place + length :]
            case _:
                word = rng.choice(words) if words else rng.choice(("0", "-", " ", "\n", "\t", '"'))
                text = text[:place] + word + text[place:]
    return text
