"""Questions that are nearly right, and requests that are not HTTP: what a server must survive."""

import copy
import random
from collections.abc import Sequence
from typing import Any

from browser import state

JUNK: list[Any] = [
    None, True, -1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "\0",
    "💥" * 9, "a" * 30_000, [], [[]], {}, {"": {}}, [0] * 300, {"kind": "entry"}, {"word": "zero"}, "logits",
    "blocks.0", "__class__", "../../etc/passwd", {"model": "encoder"}, [1, 2, 3, 4, 5, 6, 7, 8, 9],
]  # fmt: skip

QUESTIONS: dict[str, dict[str, Any]] = {
    "tile": {"what": "value", "name": "logits", "at": [0], "rows": [0, 1], "columns": [0, 1], "height": 4, "width": 4},
    "card": {"name": "logits", "index": [0, 0, 0], "gradient": False},
    "proof": {"name": "logits", "index": [0, 0, 0]},
    "open": {"model": "decoder"},
    "steps": {"model": "decoder"},
    "lengths": {"what": "gradient"},
    "attention": {"kind": "decoder", "layer": 0, "head": 0},
    "lens": {"token": None, "between": False, "first": 0, "count": 4},
    "attribution": {"token": None, "against": None, "position": -1},
    "next": {"written": [], "temperature": 0.8, "seed": 0},
    "job": {"job": "x"},
    "stop": {"job": "x"},
}
"""Parts that questions have besides their state."""

CHANGES = [
    {"word": "zero", "name": "blocks.0.attention.output.x", "where": {"head": 1}},
    {"word": "scale", "name": "head.w", "where": {"row": 0}, "value": 0.5},
]


def _junk(rng: random.Random) -> Any:
    return copy.deepcopy(rng.choice(JUNK))


def nearly_right(rng: random.Random, words: Sequence[str]) -> tuple[str, Any]:
    """Return a word and a question in which one part, or several, are not what they should be."""
    word = rng.choice(words)
    whole: dict[str, Any] = copy.deepcopy(QUESTIONS.get(word, {}))
    if word not in ("models", "open", "steps", "job", "stop"):
        whole["state"] = state(rng.choice(["encoder", "decoder"]), answer=None, steps=[], of={"kind": "loss"})
        whole["state"]["changes"] = [copy.deepcopy(rng.choice(CHANGES))] if rng.random() < 0.2 else []
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        _spoil(rng, whole)
    return word, whole


def _spoil(rng: random.Random, thing: Any) -> None:
    """Replace, remove or add a part somewhere inside."""
    inner = [part for part in (thing.values() if isinstance(thing, dict) else thing) if isinstance(part, dict | list)]
    if inner and rng.random() < 0.7:
        _spoil(rng, rng.choice(inner))
    elif isinstance(thing, dict):
        name = rng.choice([*thing, "nonsense", "state"])
        thing[name] = _junk(rng)
        if rng.random() < 0.2:
            del thing[name]
    elif thing:
        thing[rng.randrange(len(thing))] = _junk(rng)
    else:
        thing.append(_junk(rng))


def not_http(rng: random.Random) -> bytes:
    """Return bytes that end a line, and are no request."""
    noise = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 60)))
    kinds = [
        noise + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ]
    return rng.choice(kinds)
