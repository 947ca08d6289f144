"""Text to ids and back: characters, bytes, words, BPE, WordPiece, and tokenizers that others published."""

from .learned import BPETokenizer, WordPieceTokenizer
from .published import PublishedTokenizer
from .stream import StreamDecoder
from .symbols import ByteTokenizer, CharTokenizer, WordTokenizer
from .tokenizer import TOKENIZERS, Tokenizer, pieces_of, printable, register_tokenizer, tokenizer_from_dict

__all__ = [
    "Tokenizer", "CharTokenizer", "ByteTokenizer", "WordTokenizer", "BPETokenizer",
    "WordPieceTokenizer", "PublishedTokenizer",
    "StreamDecoder", "TOKENIZERS", "register_tokenizer", "tokenizer_from_dict", "printable",
    "pieces_of",
]  # fmt: skip
