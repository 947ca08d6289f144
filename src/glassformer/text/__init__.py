"""Text to ids and back: characters, bytes, words."""

from __future__ import annotations

from .bytes import ByteTokenizer
from .chars import CharTokenizer
from .tokenizer import TOKENIZERS, Tokenizer, printable, tokenizer_from_dict
from .words import WordTokenizer

__all__ = [
    "Tokenizer",
    "CharTokenizer",
    "ByteTokenizer",
    "WordTokenizer",
    "TOKENIZERS",
    "tokenizer_from_dict",
    "printable",
]
