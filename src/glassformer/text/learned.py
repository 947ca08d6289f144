"""Tokenizers whose pieces are learned here: what stands side by side most often becomes one piece.

BPE begins with bytes, and every text comes back unchanged. WordPiece cuts words as BERT does: the longest known piece
first, ## before those inside a word.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ..core.errors import ConfigError
from .published import PublishedTokenizer, roles_of
from .symbols import BYTES, check_characters, check_specials

LONGEST_RUN = 64
"""Characters of one kind that count as one word. Merging takes longer than in proportion to a word's length."""

# GPT-2's rule for cutting text into words, with a bound on their length: an English contraction, or letters, digits or
# other signs, each with the space before it, or white space up to the one that belongs to the next word.
WORDS = (
    r"'(?:[sdmt]|ll|ve|re)"
    rf"| ?\p{{L}}{{1,{LONGEST_RUN}}}| ?\p{{N}}{{1,{LONGEST_RUN}}}| ?[^\s\p{{L}}\p{{N}}]{{1,{LONGEST_RUN}}}"
    rf"|\s{{1,{LONGEST_RUN}}}(?!\S)|\s{{1,{LONGEST_RUN}}}"
)


UNKNOWN, INSIDE = "[UNK]", "##"
LEAST = 2
"""Times that two pieces must stand side by side to become one."""
LONGEST_WORD = 100
"""Characters of a word that is read; a longer one is unknown."""
FIRST_MARK = 0xF0000
"""Private characters from here on stand for letters."""

_NORMALIZER = {
    "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": False,
    "lowercase": True,
}  # fmt: skip


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
        return cls(tokenizer.to_str(), roles=roles_of(names))


class WordPieceTokenizer(PublishedTokenizer):
    """Lower-cased words cut into pieces: [UNK] and the special tokens first, then characters, then longer pieces.

    It reads text as BERT does, so white space and case do not come back: made for models that read, not for those
    that write. Saved as a `tokenizer.json` that other libraries read.
    """

    kind: ClassVar[str] = "wordpiece"

    @classmethod
    def train(cls, texts: str | Iterable[str], *, size: int = 512, specials: Sequence[str] = ()) -> WordPieceTokenizer:
        """Learn the pieces from texts: again and again, the two that stand side by side most often become one.

        size        how many ids there will be; fewer where no two pieces stand side by side twice
        specials    names of special tokens; <bos>, <eos>, <pad> and <unk> get these roles
        """
        names = (UNKNOWN, *check_specials(specials))
        reader = cls(_described({name: i for i, name in enumerate(names)}, names))
        every: Counter[str] = Counter()
        for text in [texts] if isinstance(texts, str) else texts:
            normal = reader._inner.normalizer.normalize_str(check_characters(text))
            every.update(word for word, _ in reader._inner.pre_tokenizer.pre_tokenize_str(normal))
        words = {word: count for word, count in every.items() if len(word) <= LONGEST_WORD}
        letters = sorted({letter for word in words for letter in _letters(word)})
        least = len(names) + len(letters)
        if type(size) is not int or size < least:
            raise ConfigError(
                f"the size of a WordPiece vocabulary is {size!r}, but the text and the special tokens have "
                f"{least:,} characters",
                hint=f"use a size of at least {least:,}, or bpe, which begins with bytes",
            )
        pieces = dict.fromkeys((*names, *_learned(words, letters, size - len(names))))
        described = _described({piece: i for i, piece in enumerate(pieces)}, names)
        return cls(described, roles={"unk": UNKNOWN, **roles_of(names)})


def _letters(word: str) -> list[str]:
    return [word[0], *(INSIDE + letter for letter in word[1:])]


def _learned(words: dict[str, int], letters: list[str], size: int) -> list[str]:
    """Return the letters and the pieces that BPE merges them into, where ##a is another letter than a.

    Each letter is one character to the trainer of BPE. That of WordPiece orders its pieces anew in every process.
    """
    from tokenizers import Tokenizer, models, trainers

    marks = {letter: chr(FIRST_MARK + i) for i, letter in enumerate(letters)}
    spelled = {"".join(marks[letter] for letter in _letters(word)): count for word, count in words.items()}
    inner = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=LEAST, show_progress=False)
    inner.train_from_iterator((word for word, count in spelled.items() for _ in range(count)), trainer)
    vocabulary = inner.get_vocab()
    pieces = [
        [letters[ord(mark) - FIRST_MARK] for mark in piece] for piece in sorted(vocabulary, key=vocabulary.__getitem__)
    ]
    return [first + "".join(letter.removeprefix(INSIDE) for letter in rest) for first, *rest in pieces]


def _described(vocab: dict[str, int], names: Sequence[str]) -> str:
    """Return a tokenizer.json."""
    added = [
        {"id": vocab[name], "content": name, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for name in names
    ]  # fmt: skip
    model: dict[str, Any] = {"type": "WordPiece", "unk_token": UNKNOWN, "continuing_subword_prefix": INSIDE}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": _NORMALIZER,
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
        "decoder": {"type": "WordPiece", "prefix": INSIDE, "cleanup": True},
        "model": {**model, "max_input_chars_per_word": LONGEST_WORD, "vocab": vocab},
    })  # fmt: skip
