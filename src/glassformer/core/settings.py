"""Settings, options and arguments by name: checks that they exist and what they are, and what each one means.

The docstring of the dataclass or function that takes a setting explains it, in one line for each setting, or for
several that mean the same:

    width             features per token
    heads             attention heads; a longer explanation
                      goes on below, further to the right
    train, held_out   how many examples there are
"""

import functools
import inspect
import math
import numbers
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import (
    Any,
    Literal,
    NamedTuple,
    SupportsFloat,
    SupportsIndex,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

from .errors import ConfigError, DataError, did_you_mean

T = TypeVar("T")

_NUMBERS: dict[Any, Any] = {int: SupportsIndex, float: SupportsFloat}
_WORDS = {int: "whole number", float: "number", bool: "true, false", str: "text", tuple: "list"}


@dataclass(frozen=True)
class Setting:
    """One setting.

    name      its name
    default   its default; dataclasses.MISSING if it must be given
    takes     its choices, or the type of its values
    meaning   what it does
    """

    name: str
    default: Any
    takes: str
    meaning: str


def check_known(fact: str, word: Any, known: Iterable[str], *, listed: str | None = None) -> None:
    """Refuse an unknown word.

    `fact` begins the message, such as "there is no engine". `listed` says where to find all words if they are many.
    """
    words = list(known)
    if word not in words:
        raise ConfigError(f"{fact} {word!r:.80}", hint=did_you_mean(str(word), words, listed=listed))


def check_count(name: str, value: Any, *, least: int, most: int | None = None) -> None:
    """Refuse a value that is not a whole number of at least `least` and at most `most`."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or int(value) < least or (most is not None and int(value) > most):
        limits = f"of at least {least}" if most is None else f"from {least:,} to {most:,}"
        raise ConfigError(f"{name} is {value!r}", hint=f"use a whole number {limits}")


def check_types(owner: Any, of: str = "") -> None:
    """Refuse values of a dataclass that are not what its annotations say.

    NumPy's numbers become Python's, and lists become tuples.

    of   what messages call the dataclass: " of LoRA"
    """
    cls: Any = type(owner)
    for name, hint in _hints(cls).items():
        value = getattr(owner, name)
        if isinstance(value, list) or (hasattr(value, "dtype") and not value.ndim):
            value = tuple(value) if isinstance(value, list) else value.item()
            object.__setattr__(owner, name, value)
        if not fits(value, hint, is_exact=True):
            raise ConfigError(f"{name}{of} is {value!r}", hint=f"{name} takes: {_takes(hint, None)}")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {name: hints[name] for name in setting_names(cls)}


def fits(value: Any, hint: Any, *, is_exact: bool = False) -> bool:
    """Return whether a value is what an annotation says; where that cannot be told, it is.

    is_exact   only Python's own numbers are numbers, True and False are none, and a tuple is a tuple, as settings are
               stored; else whatever can be used as one
    """
    origin, inner = get_origin(hint), get_args(hint)
    check = functools.partial(fits, is_exact=is_exact)
    if origin in (Union, types.UnionType):
        return any(check(value, option) for option in inner)
    if origin is Literal:
        return isinstance(value, str | int) and value in inner
    if hint in _NUMBERS:
        if is_exact:
            return isinstance(value, int | hint) and not isinstance(value, bool)
        return isinstance(value, _NUMBERS[hint]) and getattr(value, "ndim", 0) == 0
    kind: Any = origin or hint
    if kind is Any or not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind is tuple and is_exact and isinstance(value, tuple):
        hints = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return not inner or (len(value) == len(hints) and all(map(check, value, hints)))
    if kind in (Iterable, Sequence, list, tuple) and not is_exact:
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
            return False
        is_read_once = iter(value) is value
        return is_read_once or len(inner) != 1 or all(check(option, inner[0]) for option in value)
    if kind is dict and is_exact and inner:
        return isinstance(value, dict) and all(check(part, inner[1]) for part in value.values())
    return isinstance(value, kind)


class Within(NamedTuple):
    """The range of an option that is a whole number; it stands in the annotation of the option."""

    least: int
    most: int | None = None


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse values of a function's options that are of other types than their defaults."""
    known = inspect.signature(function).parameters
    words = {int: "a whole number", str: "text", tuple: 'a list, such as ["de", "en"]'}
    for name, value in options.items():
        wanted = type(known[name].default) if name in known else None
        if wanted in words and not fits(tuple(value) if isinstance(value, list) else value, wanted, is_exact=True):
            raise ConfigError(f"{name} is {value!r}", hint=f"{name} takes {words[wanted]}")


def check_limits(name: str, value: Any, annotation: Any) -> None:
    """Refuse a value that is outside the range in an option's annotation, or no truth value where it must be one."""
    if annotation is bool and not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}", hint="use true or false")
    for part in (annotation, *get_args(annotation)):  # `Count`, or the first part of `Count | None`
        for limits in getattr(part, "__metadata__", ()):
            if isinstance(limits, Within):
                check_count(name, value, least=limits.least, most=limits.most)


def check_range(
    owner: Any,
    *names: str,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    of: str = "",
    hint: str | None = None,
) -> None:
    """Refuse numbers of a dataclass that lie outside a range or are not finite; None passes."""
    limits = {"of at least": least, "above": above, "at most": most, "below": below}
    for name in names:
        value = getattr(owner, name, None)
        if value is not None and not (least <= value <= most and above < value < below):
            words = " and ".join(f"{word} {limit:,}" for word, limit in limits.items() if math.isfinite(limit))
            raise ConfigError(f"{name}{of} is {value!r}", hint=hint or f"use a number {words}")


def check_settings(fact: str, names: Iterable[str], cls: type, *, listed: str | None = None) -> None:
    """Refuse settings that a dataclass does not have. `fact` begins the message, such as "a recipe has no setting"."""
    known = setting_names(cls)
    for name in names:
        check_known(fact, name, known, listed=listed)


def from_settings(fact: str, settings: Mapping[str, Any], cls: type[T], *, listed: str | None = None) -> T:
    """Build a dataclass from settings by name; refuse unknown ones."""
    check_settings(fact, settings, cls, listed=listed)
    return cls(**settings)


def setting_names(cls: type) -> list[str]:
    """Return the names of a dataclass's settings."""
    return [field.name for field in fields(cls)]


def described(owner: Any, choices: Mapping[str, Iterable[str]] | None = None) -> list[Setting]:
    """Return the settings of a dataclass, or the keyword arguments of a function.

    `choices` are the words that a setting takes, if its type does not list them.
    """
    hints = get_type_hints(owner)
    defaults = _defaults(owner)
    explained = meanings(owner, defaults)
    guessed = {name: Any if default in (None, MISSING) else type(default) for name, default in defaults.items()}
    return [
        Setting(name, default, _takes({**guessed, **hints}[name], (choices or {}).get(name)), explained.get(name, ""))
        for name, default in defaults.items()
    ]


def meanings(owner: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the explanation of each name in the docstring of a function, or of a class and its bases."""
    known = set(names)
    texts: dict[str, str] = {}
    for part in reversed(inspect.getmro(owner)) if inspect.isclass(owner) else (owner,):
        current: list[str] = []
        column = 0
        for line in inspect.cleandoc(part.__doc__ or "").splitlines():
            indent = len(line) - len(line.lstrip())
            match = re.match(r"\s*(\w+(?:, \w+)*)\s{2,}(\S.*)", line)
            if match is not None and known.issuperset(match[1].split(", ")):
                current, column = match[1].split(", "), indent
                texts |= dict.fromkeys(current, match[2])
            elif current and line.strip() and indent > column:
                texts |= {name: f"{texts[name]} {line.strip()}" for name in current}
            else:
                current = []
    return texts


def _defaults(owner: Any) -> dict[str, Any]:
    if is_dataclass(owner):
        defaults = {field.name: (field.default, field.default_factory) for field in fields(owner)}
        return {name: plain if make is MISSING else make() for name, (plain, make) in defaults.items()}
    parameters = inspect.signature(owner).parameters.values()
    return {p.name: MISSING if p.default is p.empty else p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def _takes(hint: Any, choices: Iterable[str] | None) -> str:
    """Return the choices of a setting, or the words for its type."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    optional = ["none"] if type(None) in alternatives else []
    (first, *_) = [alternative for alternative in alternatives if alternative is not type(None)] or [Any]
    if choices is None and get_origin(first) is Literal:
        choices = get_args(first)
    if choices is not None:
        return ", ".join([*choices, *optional])
    word = _WORDS.get(get_origin(first) or first, "JSON object" if is_dataclass(first) else "value")
    if word == "list" and get_args(first)[:1] and get_args(first)[0] in _WORDS:
        word = f"list of {_WORDS[get_args(first)[0]]}s"
    return ", ".join([word, *optional]) if first is bool else " or ".join([word, *optional])


def texts_of(inputs: Any) -> list[str]:
    """Return several texts; refuse anything else."""
    texts = list(inputs) if isinstance(inputs, Iterable) else [inputs]
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"{text!r:.80} is no text", hint="pass a text, or a list of texts")
    return texts
