"""The state of a page, as data: the model, its input, the changes, and the number whose gradient is shown.

The page keeps it in its address and sends it with every question. The server remembers nothing of a page, so tabs and
users cannot disturb each other, and an address opens the same picture again.
"""

import json
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from enum import EnumType
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ..core.errors import ConfigError, did_you_mean

Word = Literal[
    "put", "zero", "scale", "add", "take", "steer", "mean", "freeze", "stop", "put_gradient", "scale_gradient"
]
WORDS = get_args(Word)
"""Kinds of changes; `steer` moves a value part of the way to that of another text."""
WITH_NUMBER = ("put", "scale", "add", "steer", "put_gradient", "scale_gradient")
WITH_OTHER = ("take", "steer", "mean")
Axis = Literal["example", "head", "position", "key", "feature", "row"]
POSITIONS = "positions"
"""The name of all position information together: zero switches it off."""
LONGEST = 20_000
"""Most characters of a text."""
MOST = 200
"""Most changes, and most steps of training."""


@dataclass(frozen=True)
class PageChange:
    """One change of a value, a parameter or a part of the batch; see `interpret.changes`."""

    word: Word
    name: str
    where: dict[Axis, int] = field(default_factory=dict)
    value: float = 0.0
    other: str = ""


@dataclass(frozen=True)
class PageTarget:
    """The number whose gradient is shown: the loss, a logit, the difference of two logits, or an entry of a value."""

    kind: Literal["loss", "logit", "entry"] = "loss"
    token: int = 0
    against: int | None = None
    position: int = -1
    name: str = ""
    index: tuple[int, ...] = ()


@dataclass(frozen=True)
class OptimizerStep:
    """One step of an optimizer on the loss of the text."""

    optimizer: str
    lr: float


@dataclass(frozen=True)
class PageState:
    """Everything that decides what a page shows."""

    model: str
    text: str = ""
    answer: str | None = None  # the target of an encoder-decoder; None: its own answer
    changes: tuple[PageChange, ...] = ()
    of: PageTarget = PageTarget()
    steps: tuple[OptimizerStep, ...] = ()

    def key(self) -> str:
        """Return a name for what the run depends on."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=True)


def read_state(given: Any) -> PageState:
    """Return the state that a page has sent; refuse what does not fit."""
    return read(PageState, given, "a state")


def read(hint: Any, given: Any, what: str) -> Any:
    """Return a part of what a page has sent, as an annotation describes it; refuse what does not fit.

    A text or a list has at most LONGEST characters or MOST parts, unless the annotation says Annotated[…, limit]. A
    dataclass is read from an object with the names of its fields.
    """
    limit = None
    if get_origin(hint) is Annotated:
        hint, limit = get_args(hint)
    if get_origin(hint) is UnionType:
        if given is None and NoneType in get_args(hint):
            return None
        hint = get_args(hint)[0]
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return given
    if hint is bool:
        return given is True
    if hint is int or hint is float:
        kinds, size, word = (int, 2**31, "whole number") if hint is int else (int | float, 1e30, "number")
        is_number = isinstance(given, kinds) and not isinstance(given, bool)
        _check(is_number and abs(given) < size, given, what, f"give a {word}")
        return hint(given)
    if hint is str:
        _check(isinstance(given, str), given, what, "give a text")
        if len(given) > (limit or LONGEST):
            raise ConfigError(
                f"{what} has {len(given):,} characters", hint=f"at most {limit or LONGEST:,} are read here"
            )
        return given
    if origin is Literal or isinstance(hint, EnumType):
        words = parts or [one.value for one in hint]
        _check(given in words, given, what, did_you_mean(str(given)[:40], words))
        return hint(given) if isinstance(hint, EnumType) else given
    if origin is tuple:
        is_list = isinstance(given, list) and len(given) <= (limit or MOST)
        _check(is_list, given, what, f"give a list of at most {limit or MOST}")
        _check(parts[-1] is Ellipsis or len(given) == len(parts), given, what, f"give a list of {len(parts)}")
        return tuple(read(parts[0], one, f"a part of {what}") for one in given)
    if is_dataclass(hint):
        return _read_fields(hint, given, what)
    names, value = parts  # of a dict
    _check_object(given, what, get_args(names) or given)
    return {name: read(value, part, name) for name, part in given.items() if part is not None or value is Any}


def _read_fields(cls: Any, given: Any, what: str) -> Any:
    known = {one.name: one for one in fields(cls)}
    _check_object(given, what, known)
    hints = get_type_hints(cls, include_extras=True)
    needed = [name for name, one in known.items() if one.default is MISSING and one.default_factory is MISSING]
    return cls(**{name: read(hints[name], given.get(name), name) for name in dict.fromkeys([*given, *needed])})


def _check(fits: bool, given: Any, what: str, advice: str) -> None:
    """Refuse what does not fit."""
    if not fits:
        raise ConfigError(f"{what} is {_shown(given)}", hint=advice)


def _check_object(given: Any, what: str, known: Any) -> None:
    """Refuse what is no object, and names that are not known."""
    _check(isinstance(given, dict), given, what, "give an object")
    for name in given:
        if name not in known:
            hint = did_you_mean(str(name)[:40], known)
            raise ConfigError(f"{what} has an unknown part {_shown(name)}", hint=hint)


def _shown(given: Any) -> str:
    """Return a value, shortened for a message."""
    text = repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."
