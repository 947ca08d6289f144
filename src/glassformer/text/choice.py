"""A tokenizer for texts: the family that is asked for, or the one that suits their size."""

from collections.abc import Sequence
from typing import Any, Literal

from .. import registry
from ..errors import ConfigError
from ..setting import check_known
from .bpe import BPETokenizer
from .symbols import ByteTokenizer, CharTokenizer
from .tokenizer import Tokenizer
from .wordpiece import WordPieceTokenizer

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


def chosen_family(family: str, texts: Sequence[str]) -> str:
    """Return the family that is asked for; auto: chars for less than two million characters, bpe from there on."""
    check_known("tokenizer is", family, (*FAMILIES, *registry.own("tokenizer")))
    return family if family != "auto" else "bpe" if sum(map(len, texts)) >= LARGE else "chars"


def fit_tokenizer(
    family: str,
    texts: Sequence[str],
    held_out: Sequence[str] = (),
    *,
    size: int | None = None,
    specials: Sequence[str] = (),
) -> Tokenizer:
    """Return a tokenizer of a family that knows texts, held-out ones too; its pieces are learned from the others alone.

    size   tokens that bpe and wordpiece learn; None: 512, and 4,096 from two million characters on
    """
    chosen = chosen_family(family, [*texts, *held_out])
    total = sum(map(len, texts))
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
