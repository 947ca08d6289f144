"""The protocol of tokenizers, their stored form, the tokenizer that suits some texts, and the names of its ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from ..core import registry
from ..core.arrays import Array
from ..core.errors import ConfigError, TokenError, did_you_mean
from ..core.settings import check_known
from .learned import BPETokenizer, WordPieceTokenizer
from .published import PublishedTokenizer
from .symbols import ByteTokenizer, CharTokenizer, WordTokenizer


class Tokenizer(Protocol):
    """Text to ids and back.

    kind          the name under which it is stored
    specials      the ids of the special tokens, such as <bos>, by name; text never encodes to one
    size          how many different ids there are
    """

    kind: ClassVar[str]
    specials: dict[str, int]

    @property
    def size(self) -> int: ...
    def encode(self, text: str) -> Array: ...
    def decode(self, ids: Sequence[int] | Array) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...
    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Tokenizer: ...


_EVERY: tuple[type[Tokenizer], ...] = (
    CharTokenizer, ByteTokenizer, WordTokenizer, BPETokenizer, WordPieceTokenizer, PublishedTokenizer,
)  # fmt: skip
TOKENIZERS = {tokenizer.kind: tokenizer for tokenizer in _EVERY}
"""Every tokenizer by the `kind` in its dict."""


Family = Literal["auto", "chars", "bytes", "bpe", "wordpiece"]
FAMILIES = ("auto", "chars", "bytes", "bpe", "wordpiece")
LEARNED: dict[str, Any] = {"bpe": BPETokenizer, "wordpiece": WordPieceTokenizer}
"""Families whose pieces are learned from text."""

LARGE = 2_000_000
"""Characters from which on `auto` chooses BPE: there is enough text to learn pieces, and sequences get shorter."""
SIZE, LARGE_SIZE = 512, 4096
"""Tokens that are learned from less text than that, and from more."""
MOST = 10_000_000
"""Characters that pieces are learned from; of a longer text, parts of it that lie evenly."""

_ASKED = ("kind", "specials", "size", "encode", "decode", "to_dict", "from_dict")
_Own = TypeVar("_Own", bound=type)


def register_tokenizer(cls: _Own) -> _Own:
    """Register a tokenizer by its `kind`, so that a run folder that stores it can be read again.

        @gf.register_tokenizer
        class Pairs: …

    It has what `Tokenizer` names; `to_dict` returns what `from_dict` needs, ready for JSON, with its `kind`. With a
    class method `from_text(text)`, the task `text` takes it by name as well: --set tokenizer=KIND.
    """
    # Every tokenizer has specials and a size, but its class need not.
    missing = [name for name in _ASKED if not hasattr(cls, name) and name not in ("specials", "size")]
    if missing:
        raise ConfigError(
            f"{cls!r} is no tokenizer: it has no {', '.join(missing)}",
            hint=f"a tokenizer is a class with {', '.join(_ASKED)}",
        )
    known: Any = cls
    registry.register("tokenizer", known.kind, known)
    TOKENIZERS[known.kind] = known
    return cls


def tokenizer_from_dict(data: Any) -> Tokenizer:
    """Build the tokenizer, of whatever kind, that its `to_dict` described."""
    family = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(family, str):
        fact = f"expected the dict of a tokenizer with its kind, got {data!r:.80}"
        raise ConfigError(fact, hint="store it with to_dict()")
    check_known("there is no tokenizer of kind", family, TOKENIZERS)
    return TOKENIZERS[family].from_dict(data)


def pieces_of(tokenizer: Tokenizer, text: str) -> list[tuple[str, int]]:
    """Return what a text is cut into, to look at: the spelling of each piece and its id.

    A lone byte, which is no character, is spelled as an \\x escape.
    """
    if isinstance(tokenizer, PublishedTokenizer):
        return tokenizer.pieces(text)
    ids = tokenizer.encode(text).tolist()
    spelled = [tokenizer.decode([i]).encode("utf-8", "surrogateescape") for i in ids]
    return [(piece.decode("utf-8", "backslashreplace"), i) for piece, i in zip(spelled, ids, strict=True)]


def spans_of(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    """Return for each id of a text, with special tokens around it if there are such, where its characters stand."""
    if isinstance(tokenizer, PublishedTokenizer):
        return tokenizer.spans(text, specials=True)
    letters = [letter.encode("utf-8", "surrogateescape") for letter in text]
    whole, of_byte = b"".join(letters), np.repeat(np.arange(len(text)), [len(each) for each in letters])
    spans, at = [], 0
    for number in tokenizer.encode(text).tolist():
        piece = tokenizer.decode([number]).encode("utf-8", "surrogateescape")
        first = whole.find(piece, at)
        if first < 0 or not piece:
            fact = f"the token #{number} of this tokenizer does not spell a part of the text"
            raise ConfigError(fact, hint="words are explained by tokenizers whose tokens are parts of the text")
        at = first + len(piece)
        spans.append((int(of_byte[first]), int(of_byte[at - 1]) + 1))
    return spans


def printable(text: str) -> str:
    """Return `text` with lone surrogates, which no terminal or UTF-8 file accepts, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- a tokenizer for texts --------------------------------------------------------------------------------------------


def fit_tokenizer(
    family: str,
    texts: Sequence[str],
    held_out: Sequence[str] = (),
    *,
    size: int | None = None,
    specials: Sequence[str] = (),
) -> Tokenizer:
    """Return a tokenizer of a family that knows texts, held-out ones too; its pieces are learned from the others alone.

    family   auto: chars for less than two million characters, bpe from there on
    size     tokens that bpe and wordpiece learn; None: 512, and 4,096 from two million characters on
    """
    check_known("tokenizer is", family, (*FAMILIES, *registry.own("tokenizer")))
    total = sum(map(len, texts))
    automatic = "bpe" if total + sum(map(len, held_out)) >= LARGE else "chars"
    chosen = automatic if family == "auto" else family
    if size is not None and chosen not in LEARNED:
        raise ConfigError(
            f"tokenizer_size is set, but the tokenizer {chosen!r} learns nothing",
            hint="set tokenizer to bpe or wordpiece, or leave tokenizer_size out",
        )
    if chosen in LEARNED:
        usual = LARGE_SIZE if total >= LARGE else SIZE
        return LEARNED[chosen].train(_sample(texts, total), size=usual if size is None else size, specials=specials)
    if chosen == "chars":
        return CharTokenizer(set().union(*texts, *held_out), specials=specials)
    if chosen == "bytes":
        return ByteTokenizer(specials=specials)
    cls = registry.find("tokenizer", chosen)
    if not hasattr(cls, "from_text"):
        raise ConfigError(
            f"the tokenizer {chosen!r} cannot be made from a text", hint="give it a class method from_text(text)"
        )
    if specials:
        raise ConfigError(f"this task needs the special tokens {', '.join(specials)}", hint="use another tokenizer")
    return cls.from_text("".join([*texts, *held_out]))


def _sample(texts: Sequence[str], total: int) -> Sequence[str]:
    """Return the texts, or evenly spread parts of them."""
    if total <= MOST:
        return texts
    if len(texts) > 1:
        return texts[:: -(-total // MOST)]
    length, parts = len(texts[0]), 100
    return [texts[0][at : at + MOST // parts] for at in range(0, length, -(-length // parts))]


# --- names of ids -----------------------------------------------------------------------------------------------------


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
