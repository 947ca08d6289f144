"""What a page shows, as data: the model, its input, the changes, and the number whose gradient is shown.

The page keeps it in its address and sends it with every question. The server remembers nothing of a page, so tabs and
users cannot disturb each other, and an address opens the same picture again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError, did_you_mean

WORDS = ("put", "zero", "scale", "add", "take", "steer", "mean", "freeze", "stop", "put_gradient", "scale_gradient")
"""Kinds of changes; `steer` moves a value part of the way to that of another text."""
BACKWARD = ("stop", "put_gradient", "scale_gradient")
WITH_NUMBER = ("put", "scale", "add", "steer", "put_gradient", "scale_gradient")
WITH_OTHER = ("take", "steer", "mean")
AXES = ("example", "head", "position", "key", "feature", "row")
POSITIONS = "positions"
"""The name of all position information together: zero switches it off."""
TARGETS = ("loss", "logit", "entry")
LONGEST = 20_000
"""Most characters of a text."""
MOST = 200
"""Most changes, and most steps of training."""


@dataclass(frozen=True)
class Changed:
    """One change of a value, a parameter or a part of the batch; see `interpret.changes`."""

    word: str
    name: str
    where: tuple[tuple[str, int], ...] = ()
    value: float = 0.0
    other: str = ""


@dataclass(frozen=True)
class Asked:
    """The number whose gradient is shown: the loss, a logit, the difference of two logits, or an entry of a value."""

    kind: str = "loss"
    token: int = 0
    against: int | None = None
    position: int = -1
    name: str = ""
    index: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stepped:
    """One step of an optimizer on the loss of the text."""

    optimizer: str
    lr: float


@dataclass(frozen=True)
class PageState:
    """Everything that decides what a page shows."""

    model: str
    text: str = ""
    answer: str | None = None  # the target of an encoder-decoder; None: its own answer
    changes: tuple[Changed, ...] = ()
    of: Asked = Asked()
    steps: tuple[Stepped, ...] = ()

    def key(self) -> str:
        """Return a name for what the run depends on."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=True)


def read_state(given: Any) -> PageState:
    """Return the state that a page has sent; refuse what does not fit."""
    fields = _fields(given, "a state", {"model", "text", "answer", "changes", "of", "steps"})
    answer = fields.get("answer")
    return PageState(
        _text(fields.get("model"), "model"),
        _text(fields.get("text", ""), "text"),
        None if answer is None else _text(answer, "answer"),
        tuple(map(read_change, _list(fields.get("changes", []), "changes"))),
        _of(fields.get("of", {})),
        tuple(map(read_step, _list(fields.get("steps", []), "steps"))),
    )


def read_change(given: Any) -> Changed:
    """Return one change."""
    fields = _fields(given, "a change", {"word", "name", "where", "value", "other"})
    word = _choice(fields.get("word"), WORDS, "change")
    where = _fields(fields.get("where", {}), "a place", set(AXES))
    places = tuple((axis, read_int(where[axis], axis)) for axis in AXES if where.get(axis) is not None)
    value = _number(fields.get("value", 0.0), "value")
    return Changed(word, _text(fields.get("name"), "name"), places, value, _text(fields.get("other", ""), "other"))


def _of(given: Any) -> Asked:
    fields = _fields(given, "a target", {"kind", "token", "against", "position", "name", "index"})
    kind = _choice(fields.get("kind", "loss"), TARGETS, "target")
    if kind == "loss":
        return Asked()
    if kind == "entry":
        return Asked(kind, name=_text(fields.get("name"), "name"), index=read_index(fields.get("index")))
    against = fields.get("against")
    return Asked(
        kind,
        read_int(fields.get("token"), "token"),
        None if against is None else read_int(against, "against"),
        read_int(fields.get("position", -1), "position"),
    )


def read_step(given: Any) -> Stepped:
    """Return one step."""
    fields = _fields(given, "a step", {"optimizer", "lr"})
    return Stepped(_text(fields.get("optimizer"), "optimizer"), _number(fields.get("lr"), "lr"))


# --- parts of what a page sends --------------------------------------------------------------------------------------


def read_index(given: Any, most: int = 8) -> tuple[int, ...]:
    """Return an index of an entry, or a few other whole numbers."""
    return tuple(read_int(part, "an index") for part in _list(given, "index", most=most))


def read_int(given: Any, what: str) -> int:
    """Return a whole number that can be an index."""
    if isinstance(given, bool) or not isinstance(given, int) or abs(given) >= 2**31:
        raise ConfigError(f"{what} is {_shown(given)}", hint="give a whole number")
    return given


def _number(given: Any, what: str) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) < 1e30:
        raise ConfigError(f"{what} is {_shown(given)}", hint="give a number")
    return float(given)


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise ConfigError(f"{what} is {_shown(given)}", hint="give a text")
    if len(given) > LONGEST:
        raise ConfigError(f"{what} has {len(given):,} characters", hint=f"at most {LONGEST:,} are shown here")
    return given


def _list(given: Any, what: str, most: int = MOST) -> list[Any]:
    if not isinstance(given, list) or len(given) > most:
        raise ConfigError(f"{what} is {_shown(given)}", hint=f"give a list of at most {most}")
    return given


def _choice(given: Any, known: tuple[str, ...], what: str) -> str:
    if given not in known:
        raise ConfigError(f"there is no {what} {_shown(given)}", hint=did_you_mean(str(given)[:40], known))
    return str(given)


def _fields(given: Any, what: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{what} is {_shown(given)}", hint="give an object")
    for name in given:
        if name not in known:
            raise ConfigError(f"{what} has no {_shown(name)}", hint=did_you_mean(str(name)[:40], known))
    return given


def _shown(given: Any) -> str:
    """Return a value, shortened for a message."""
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."
