"""Text to ids and back: characters, bytes, words, byte-pair encoding, and tokenizers that others published."""

from .bpe import BPETokenizer
from .bytes import ByteTokenizer
from .chars import CharTokenizer
from .published import PublishedTokenizer
from .stream import StreamDecoder
from .tokenizer import TOKENIZERS, Tokenizer, pieces_of, printable, register_tokenizer, tokenizer_from_dict
from .words import WordTokenizer

__all__ = [
    "Tokenizer", "CharTokenizer", "ByteTokenizer", "WordTokenizer", "BPETokenizer", "PublishedTokenizer",
    "StreamDecoder", "TOKENIZERS", "register_tokenizer", "tokenizer_from_dict", "printable",
    "pieces_of",
]  # fmt: skip
