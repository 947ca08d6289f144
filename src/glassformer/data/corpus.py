"""Text to learn from: prose and source code that every Python carries, the user's files, and token files.

Text is UTF-8, strictly. Line ends become "\\n" and a byte order mark is dropped, so that a file learned on one system
reads the same on another. A token file is a corpus encoded once, which is mapped into memory piece by piece:

corpus.bin         the ids, little-endian uint16 or uint32, nothing else
corpus.bin.json    the tokenizer, the type, the number of ids and their SHA-256, and a checksum of all this"""

import hashlib
import io
import json
import os
import re
import sysconfig
import tokenize
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..errors import DataError, GlassformerError
from ..files import explained, flush, replacing, sha256_of, write_text
from ..text.symbols import CharTokenizer
from ..text.tokenizer import Tokenizer, tokenizer_from_dict

TEXT_SUFFIXES = frozenset({
    ".txt", ".text", ".md", ".markdown", ".rst", ".tex", ".org", ".adoc",
    ".py", ".pyi", ".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".java", ".js", ".ts", ".sh",
})  # fmt: skip
"""The files of a folder that count as text. A file that is named itself may end in anything."""

CHUNK = 1 << 20
_SKIPPED_STDLIB = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "__pycache__"}


def pydoc_topics() -> str:
    """Return the English prose about Python that `help()` shows, about 465,000 characters, topics in order."""
    try:
        from pydoc_data import topics
    except ImportError:
        raise DataError(
            "this Python carries no pydoc_data.topics",
            hint="install its documentation data, or pass a text of your own",
        ) from None
    texts = getattr(topics, "topics", None)
    if not isinstance(texts, dict) or not texts or not all(isinstance(text, str) for text in texts.values()):
        raise DataError(
            "pydoc_data.topics of this Python has a layout that is not known here", hint="pass a text of your own"
        )
    return "\n".join(texts[name] for name in sorted(texts))


def stdlib_source() -> str:
    """Return the source of the standard library, without its tests: files by name, an empty line between them."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = [path for path in sorted(folder.rglob("*.py")) if not _SKIPPED_STDLIB & set(path.relative_to(folder).parts)]
    texts = []
    for path in files:
        # A few modules declare another encoding in their first lines, which `tokenize` honors.
        try:
            with tokenize.open(path) as file:
                texts.append(file.read())
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue
    if not texts:
        raise DataError(
            "this Python carries no source of its standard library", hint="install it, or pass a text of your own"
        )
    return "\n".join(texts)


CARRIED = {"pydoc": pydoc_topics, "stdlib": stdlib_source}
"""Texts by their names. A file of such a name is meant by its path: ./pydoc."""


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file, or of all text files of a folder and its subfolders."""
    return "".join(stream_text(path))


def stream_text(path: str | os.PathLike[str], *, chunk: int = CHUNK) -> Iterator[str]:
    """Yield the same text as `read_text` in pieces, in bounded memory; refuse a text without any character."""
    empty = True
    for file in text_files(path):
        between = "" if empty else "\n"
        for piece in _stream_file(file, chunk):
            yield between + piece
            empty, between = False, ""
    if empty:
        raise DataError(f"{path} holds no text", hint="pass a file with text in it")


def check_path(path: str | os.PathLike[str]) -> None:
    """Refuse an empty path, pipes and devices."""
    if not os.fspath(path):
        raise DataError("the path of the data is empty", hint="name a file or a folder; . is this folder")
    place = Path(path)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise DataError(
            f"{path} is a pipe or a device, and a run reads its data more than once", hint="write it into a file first"
        )


def text_files(path: str | os.PathLike[str], suffixes: frozenset[str] = TEXT_SUFFIXES) -> list[Path]:
    """Return the file itself, or those below a folder that end in one of `suffixes`, by name, hidden ones left out."""
    if not isinstance(path, str | os.PathLike):
        raise DataError(f"the data is {path!r}, which is no path", hint="name a file or a folder")
    check_path(path)
    folder = Path(path)
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise DataError(f"there is no file or folder {path}", hint="check the path")
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in suffixes
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    if not files:
        raise DataError(
            f"the folder {folder} holds no file that ends in {', '.join(sorted(suffixes))}",
            hint="name a file itself if it ends otherwise",
        )
    return files


def _stream_file(path: Path, chunk: int) -> Iterator[str]:
    """Yield the characters of one UTF-8 file; refuse other encodings with the place of the first wrong byte."""
    try:
        with path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig") as file:
            try:
                while piece := file.read(chunk):
                    yield piece
            except UnicodeDecodeError as error:
                # The last bytes that were read are the ones that could not be decoded.
                offset, byte = raw.tell() - len(error.object) + error.start, error.object[error.start]
                raise DataError(
                    f"{path} is not UTF-8: byte 0x{byte:02x} at offset {offset:,} ({error.reason})",
                    hint="convert it, for example: iconv -f latin1 -t utf-8",
                ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="check its permissions") from error


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
