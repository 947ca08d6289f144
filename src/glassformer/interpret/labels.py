"""Names for ids, so that tables and pictures speak of tokens instead of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

CLS = "[CLS]"
"""The label of the learned vector that an encoder may put before a sequence."""


class Decoder(Protocol):
    """Anything that turns ids into text: every tokenizer does."""

    def decode(self, ids: list[int]) -> str: ...


class Labels(NamedTuple):
    """How to call the ids of a model.

    tokens    what an encoder or a decoder reads and predicts
    source    what the encoder of an encoder-decoder reads; None: as `tokens`
    classes   what an encoder predicts; None: the number
    """

    tokens: Callable[[int], str] = str
    source: Callable[[int], str] | None = None
    classes: Callable[[int], str] | None = None


NUMBERS = Labels()
"""Every id is called by its number."""


def token_labels(tokenizer: Decoder) -> Callable[[int], str]:
    """Return a function from an id to its text, or to "#id" where the id alone is no text (part of a character)."""

    def label(number: int) -> str:
        text = tokenizer.decode([int(number)])
        return text if text and all(map(_is_character, text)) else f"#{int(number)}"

    return label


def _is_character(character: str) -> bool:
    """Tell a character from the two stand-ins for bytes that are only part of one."""
    return character != "\N{REPLACEMENT CHARACTER}" and not 0xD800 <= ord(character) <= 0xDFFF
