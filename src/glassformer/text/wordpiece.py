"""WordPiece trained here, as BERT cuts its words: the longest known piece first, ## before those inside a word."""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from ..errors import ConfigError
from .published import ROLES, PublishedTokenizer, check_characters
from .symbols import check_specials

UNKNOWN, INSIDE = "[UNK]", "##"
LEAST = 2
"""How often two pieces must stand side by side to become one."""
LONGEST = 100
"""Characters of a word that is read; a longer one is unknown."""

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
        words = Counter({word: count for word, count in every.items() if len(word) <= LONGEST})
        pieces = [*names, *sorted({piece for word in words for piece in _letters(word)})]
        if type(size) is not int or size < len(pieces):
            raise ConfigError(
                f"the size of a WordPiece vocabulary is {size!r}, but the text and the special tokens have "
                f"{len(pieces):,} characters",
                hint=f"use a size of at least {len(pieces):,}, or bpe, which begins with bytes",
            )
        pieces += _merged(words, size - len(pieces), set(pieces))
        roles = {role: f"<{role}>" for role in ROLES if f"<{role}>" in names}
        return cls(_described({piece: i for i, piece in enumerate(pieces)}, names), roles={"unk": UNKNOWN, **roles})


def _letters(word: str) -> list[str]:
    return [word[0], *(INSIDE + letter for letter in word[1:])]


def _merged(words: Counter[str], most: int, known: set[str]) -> list[str]:
    """Return up to `most` longer pieces, in the order of learning; of equally frequent pairs, the first by name."""
    spelled = [(_letters(word), count) for word, count in sorted(words.items())]
    counts: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[int]] = defaultdict(set)  # the words in which a pair occurs, or did
    for number, (pieces, count) in enumerate(spelled):
        for pair in pairwise(pieces):
            counts[pair] += count
            where[pair].add(number)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(heap)
    learned: list[str] = []
    while len(learned) < most and heap:
        count, pair = heapq.heappop(heap)
        if -count != counts[pair]:
            continue  # it has changed since, and its count of now stands in the heap as well
        if -count < LEAST:
            break
        new = pair[0] + pair[1].removeprefix(INSIDE)
        if new not in known:
            known.add(new)
            learned.append(new)
        changed = set()
        for number in where.pop(pair):
            pieces, times = spelled[number]
            joined = _join(pieces, pair, new)
            for old in pairwise(pieces):
                counts[old] -= times
            for made in pairwise(joined):
                counts[made] += times
                where[made].add(number)
            changed |= {*pairwise(pieces), *pairwise(joined)}
            spelled[number] = joined, times
        for each in changed - {pair}:
            heapq.heappush(heap, (-counts[each], each))
    return learned


def _join(pieces: list[str], pair: tuple[str, str], new: str) -> list[str]:
    """Replace a pair of pieces by one, from left to right."""
    joined, place = [], 0
    while place < len(pieces):
        found = tuple(pieces[place : place + 2]) == pair
        joined.append(new if found else pieces[place])
        place += 1 + found
    return joined


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
