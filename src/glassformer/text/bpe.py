"""Byte-pair encoding trained here: bytes, and the pairs that stand together most often merged into longer pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ..core.errors import ConfigError
from .published import ROLES, PublishedTokenizer, check_characters
from .symbols import check_specials

BYTES = 256
LONGEST = 64
"""How many characters of one kind count as one word. Merging takes longer than in proportion to a word's length."""

# GPT-2's rule for cutting text into words, with a bound on their length: an English contraction, or letters, digits or
# other signs, each with the space before it, or white space up to the one that belongs to the next word.
WORDS = (
    r"'(?:[sdmt]|ll|ve|re)"
    rf"| ?\p{{L}}{{1,{LONGEST}}}| ?\p{{N}}{{1,{LONGEST}}}| ?[^\s\p{{L}}\p{{N}}]{{1,{LONGEST}}}"
    rf"|\s{{1,{LONGEST}}}(?!\S)|\s{{1,{LONGEST}}}"
)


class BPETokenizer(PublishedTokenizer):
    """Byte-level BPE: the special tokens first, then the 256 bytes, then the merged pieces in the order of learning.

    Every text comes back unchanged, whatever its language. Saved as a `tokenizer.json` that other libraries read.
    """

    kind: ClassVar[str] = "bpe"

    @classmethod
    def train(cls, texts: str | Iterable[str], *, size: int = 512, specials: Sequence[str] = ()) -> BPETokenizer:
        """Learn the merges from a text, or from the parts of a long one, such as `stream_text(path)` yields.

        size        how many ids there will be; fewer where the text has no pair left that occurs twice
        specials    names of special tokens; <bos>, <eos>, <pad> and <unk> get these roles
        """
        from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

        names = check_specials(specials)
        least = BYTES + len(names)
        if type(size) is not int or size < least:
            raise ConfigError(
                f"the size of a BPE vocabulary is {size!r}, but it begins with {BYTES} bytes and {len(names)} specials",
                hint=f"use a size of at least {least}",
            )
        tokenizer = Tokenizer(models.BPE())
        words = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, letters])
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            special_tokens=list(names),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        parts = [texts] if isinstance(texts, str) else texts
        tokenizer.train_from_iterator(map(check_characters, parts), trainer)
        roles = {role: f"<{role}>" for role in ROLES if f"<{role}>" in names}
        return cls(tokenizer.to_str(), roles=roles)
