"""The names of the ids of a model, and the id that a text names."""

from collections.abc import Callable
from functools import partial
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import ConfigError, TokenError, did_you_mean
from .tokenizer import Tokenizer

CLS = "[CLS]"
"""The label of the learned vector that an encoder may put before a sequence."""


class Labels(NamedTuple):
    """Names for the ids of a model.

    tokens      what an encoder or a decoder reads and predicts
    source      what the encoder of an encoder-decoder reads; None: as `tokens`
    classes     what an encoder predicts; None: the number
    tokenizer   of what the model predicts, so that a text can name a token; None: ids alone can
    """

    tokens: Callable[[int], str] = str
    source: Callable[[int], str] | None = None
    classes: Callable[[int], str] | None = None
    tokenizer: Tokenizer | None = None


NUMBERS = Labels()
"""Every id is called by its number."""


def token_labels(tokenizer: Tokenizer) -> Callable[[int], str]:
    """Return a function from an id to its text, or to "#id" where the id alone is no text (part of a character)."""
    return partial(_label, tokenizer)


def _label(tokenizer: Tokenizer, number: int) -> str:
    text = tokenizer.decode([int(number)])
    # Bytes that are only part of a character decode to one of two stand-ins.
    is_part = any(letter == "\N{REPLACEMENT CHARACTER}" or 0xD800 <= ord(letter) <= 0xDFFF for letter in text)
    return f"#{int(number)}" if is_part or not text else text


def check_token(token: Any) -> None:
    """Refuse what names no token: neither a whole number nor a text."""
    if isinstance(token, bool) or not isinstance(token, Integral | str):
        raise TokenError(f"{token!r:.80} names no token", hint='give its id, or its text: 7, " Paris" or "#7"')


def id_of(labels: Labels, token: int | str, size: int, *, is_class: bool = False) -> int:
    """Return the id of one of `size` tokens, or the number of one of `size` classes: by itself, as #id, by its text."""
    check_token(token)
    if isinstance(token, str) and token.startswith("#") and token[1:].isascii() and token[1:].isdigit():
        token = int(token[1:])
    if not isinstance(token, str):
        if not 0 <= token < size:
            raise TokenError(f"there is no logit {token}", hint=f"the model has {size:,}, from 0 to {size - 1}")
        return int(token)
    if is_class:
        names = {(labels.classes or str)(number): number for number in range(size)}
        if token not in names:
            raise TokenError(f"there is no class {token!r}", hint=did_you_mean(token, names))
        return names[token]
    if labels.tokenizer is None:
        raise ConfigError(
            f"there is no tokenizer to read {token!r} with",
            hint="name the token by its id, or watch a model that has a tokenizer: model.watch(text)",
        )
    return _id_of_text(labels.tokenizer, token)


def _id_of_text(tokenizer: Tokenizer, text: str) -> int:
    """Return the id of a text that is one token, or of a special token by its name."""
    if text in tokenizer.specials:
        return tokenizer.specials[text]
    ids = np.asarray(tokenizer.encode(text)).reshape(-1).tolist()
    if len(ids) != 1:
        pieces = ", ".join(f"{_label(tokenizer, i)!r} #{i}" for i in ids)
        raise TokenError(
            f"{text!r} is {len(ids)} tokens: {pieces or 'none'}", hint="name one of them; a space may belong to it"
        )
    if ids[0] in tokenizer.specials.values():
        raise TokenError(f"the tokenizer does not know {text!r}: it reads {_label(tokenizer, ids[0])}",
                         hint="name another token, or this one as #id")  # fmt: skip
    return int(ids[0])
