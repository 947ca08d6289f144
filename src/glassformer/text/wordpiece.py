"""WordPiece trained here, as BERT cuts its words: the longest known piece first, ## before those inside a word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from ..core.errors import ConfigError
from .published import ROLES, PublishedTokenizer, check_characters
from .symbols import check_specials

UNKNOWN, INSIDE = "[UNK]", "##"
LEAST = 2
"""How often two pieces must stand side by side to become one."""
LONGEST = 100
"""Characters of a word that is read; a longer one is unknown."""
FIRST_MARK = 0xF0000
"""Private characters from here on stand for letters."""

_NORMALIZER = {
    "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": False,
    "lowercase": True,
}  # fmt: skip


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
        words = {word: count for word, count in every.items() if len(word) <= LONGEST}
        letters = sorted({letter for word in words for letter in _letters(word)})
        least = len(names) + len(letters)
        if type(size) is not int or size < least:
            raise ConfigError(
                f"the size of a WordPiece vocabulary is {size!r}, but the text and the special tokens have "
                f"{least:,} characters",
                hint=f"use a size of at least {least:,}, or bpe, which begins with bytes",
            )
        pieces = dict.fromkeys((*names, *_learned(words, letters, size - len(names))))
        roles = {role: f"<{role}>" for role in ROLES if f"<{role}>" in names}
        return cls(_described({piece: i for i, piece in enumerate(pieces)}, names), roles={"unk": UNKNOWN, **roles})


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
    found = [
        [letters[ord(mark) - FIRST_MARK] for mark in piece] for piece in sorted(vocabulary, key=vocabulary.__getitem__)
    ]
    return [first + "".join(letter.removeprefix(INSIDE) for letter in rest) for first, *rest in found]


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
        "model": {**model, "max_input_chars_per_word": LONGEST, "vocab": vocab},
    })  # fmt: skip
