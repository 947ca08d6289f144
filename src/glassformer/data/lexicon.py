"""The vocabulary of a model that exists already, for a task that is to be learned with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..arrays import Array
from ..errors import ConfigError
from ..text import PublishedTokenizer, Tokenizer
from .padding import encode_each


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
