"""Token files: a corpus encoded once, stored as plain integers, and mapped into memory piece by piece.

corpus.bin         the ids, little-endian uint16 or uint32, nothing else
corpus.bin.json    the tokenizer, the type, the number of ids and their SHA-256, and a checksum of all this
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import DataError, GlassformerError
from ..files import explained, flush, replacing, sha256_of, write_text
from ..text.chars import CharTokenizer
from ..text.tokenizer import Tokenizer, tokenizer_from_dict
from .corpus import CHUNK, stream_text

FORMAT = "glassformer tokens 1"
_UP_TO_LAST_WORD = re.compile(r".*\S(?=\s)", re.DOTALL)
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


class TokenFile(NamedTuple):
    """A token file, opened: the ids as a read-only memory map, and what turns them back into text."""

    ids: Array
    tokenizer: Tokenizer


def write_tokens(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    tokenizer: Tokenizer | None = None,
    *,
    chunk: int = CHUNK,
) -> TokenFile:
    """Encode a text file or a folder of them into a token file, in memory bounded by `chunk`.

    Without a tokenizer, a first pass over the text collects its characters. Pieces end where words do, so that
    tokenizers with longer tokens yield what they would yield for the whole text; only those that put a space before
    whatever they are given do so once for each piece.
    """
    if tokenizer is None:
        tokenizer = CharTokenizer(chain.from_iterable(stream_text(source, chunk=chunk)))
    dtype = "uint16" if tokenizer.size <= 1 << 16 else "uint32"
    path = Path(path)
    sha, count = hashlib.sha256(), 0
    with explained(path, DataError):
        with replacing(path) as partial:
            with partial.open("wb") as file:
                for text in cut_between_words(stream_text(source, chunk=chunk), most=chunk):
                    data = tokenizer.encode(text).astype(_DTYPES[dtype]).tobytes()
                    sha.update(data)
                    count += len(data) // _DTYPES[dtype].itemsize
                    file.write(data)
            # The description goes first out and last in: a file without one is not taken for a token file.
            flush(partial)
            sidecar(path).unlink(missing_ok=True)
        about: dict[str, Any] = {"format": FORMAT, "dtype": dtype, "count": count, "sha256": sha.hexdigest()}
        about["tokenizer"] = tokenizer.to_dict()
        write_text(sidecar(path), json.dumps({**about, "checksum": _checksum(about)}, indent=1) + "\n")
    return open_tokens(path, check=False)


def open_tokens(path: str | os.PathLike[str], *, check: bool = True) -> TokenFile:
    """Map a token file into memory; refuse one that is damaged or does not fit its description.

    `check` reads the file once to compare its SHA-256; without it only its size is compared.
    """
    path = Path(path)
    about = _read_sidecar(path)
    dtype, count = _DTYPES[about["dtype"]], about["count"]
    size = path.stat().st_size if path.is_file() else -1
    if size < 0:
        raise DataError(f"there is no token file {path}", hint="write it again from its text")
    if size != count * dtype.itemsize:
        raise DataError(
            f"{path} has {size:,} bytes, but its description speaks of {count:,} tokens of {dtype.itemsize} bytes",
            hint="one of the two is damaged; write it again from its text",
        )
    if check and sha256_of(path) != about["sha256"]:
        raise DataError(f"{path} does not match the checksum in its description", hint="write it again from its text")
    return TokenFile(np.memmap(path, dtype=dtype, mode="r", shape=(count,)), about["tokenizer"])


def is_token_file(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path names a token file: a file with a description beside it."""
    return Path(path).is_file() and sidecar(Path(path)).is_file()


def cut_between_words(pieces: Iterable[str], *, most: int) -> Iterator[str]:
    """Yield the same text in pieces that end before white space, except for words longer than `most` characters."""
    rest = ""
    for piece in pieces:
        text = rest + piece
        found = _UP_TO_LAST_WORD.match(text)
        cut = found.end() if found else 0
        if not cut and len(text) >= most:
            cut = len(text)
        if cut:
            yield text[:cut]
        rest = text[cut:]
    if rest:
        yield rest


def sidecar(path: Path) -> Path:
    """Return where the description of a token file stands."""
    return path.with_name(path.name + ".json")


def _read_sidecar(path: Path) -> dict[str, Any]:
    file = sidecar(path)
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} has no description {file.name} beside it", hint="write the token file again") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {error}", hint="write the token file again") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise DataError(f"{file} is not the description of a token file", hint="write the token file again")
    if about.pop("checksum", None) != _checksum(about):
        raise DataError(f"{file} does not match its own checksum", hint="write the token file again")
    try:
        about["tokenizer"] = tokenizer_from_dict(about.get("tokenizer"))
    except GlassformerError as error:
        raise DataError(f"{file} holds no usable tokenizer: {error.fact}", hint="write the token file again") from error
    return about


def _checksum(about: dict[str, Any]) -> int:
    """Return the CRC-32 of a description, as it reads once it was written."""
    return zlib.crc32(json.dumps(json.loads(json.dumps(about)), sort_keys=True).encode())
