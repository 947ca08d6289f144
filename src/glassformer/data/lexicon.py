"""How texts become ids: by the vocabulary of a model that exists already, and many short ones at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import Array
from ..errors import ConfigError
from ..text import CharTokenizer, PublishedTokenizer, Tokenizer


@dataclass(frozen=True)
class Lexicon:
    """How a model reads and writes text.

    tokenizer          of what it reads; target_tokenizer of what it writes, where that differs
    start_id, end_id   the tokens before and after a text; None where the model has none
    """

    tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None = None
    start_id: int | None = None
    end_id: int | None = None

    @property
    def writer(self) -> Tokenizer:
        """The tokenizer of what the model writes."""
        return self.tokenizer if self.target_tokenizer is None else self.target_tokenizer

    @property
    def borders(self) -> tuple[int, int]:
        """The tokens before and after a text; one that only ends texts stands before them too."""
        if self.end_id is None:
            raise ConfigError(
                "this model has no token that ends a text, so it cannot learn where a line or an answer ends",
                hint="train it on the task 'text', which needs none",
            )
        return self.end_id if self.start_id is None else self.start_id, self.end_id

    def encode_sources(self, texts: Sequence[str]) -> list[Array]:
        """Encode what an encoder reads, with the special tokens around it that a published model was trained with."""
        if isinstance(self.tokenizer, PublishedTokenizer):
            return [self.tokenizer.encode(text, specials=True) for text in texts]
        return encode_each(self.tokenizer, texts)


def encode_each(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Array]:
    """Encode many short texts; where one character is one id, all at once, cut again where the texts end."""
    if not isinstance(tokenizer, CharTokenizer):
        return [tokenizer.encode(text) for text in texts]
    ends = np.cumsum([len(text) for text in texts])
    return np.split(tokenizer.encode("".join(texts)), ends[:-1])
