"""Settings by name: the one place that refuses those that do not exist."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from .errors import ConfigError, did_you_mean

T = TypeVar("T")


def check_known(fact: str, word: Any, known: Iterable[str]) -> None:
    """Refuse a word that is not known; it ends the sentence that `fact` begins, such as "there is no engine"."""
    words = list(known)
    if word not in words:
        raise ConfigError(f"{fact} {word!r}", hint=did_you_mean(str(word), words))


def check_settings(fact: str, given: Iterable[str], cls: type) -> None:
    """Refuse settings that a dataclass does not have; `fact` begins a sentence, such as "a recipe has no setting"."""
    known = setting_names(cls)
    for name in given:
        check_known(fact, name, known)


def from_settings(fact: str, given: Mapping[str, Any], cls: type[T]) -> T:
    """Build a dataclass from settings by name; refuse those that it does not have."""
    check_settings(fact, given, cls)
    return cls(**given)


def setting_names(cls: type) -> list[str]:
    """Return the names of a dataclass's settings."""
    return [field.name for field in fields(cls)]
