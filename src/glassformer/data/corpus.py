"""Text to learn from: prose and source code that every Python carries, the user's files, and token files.

Text is UTF-8, strictly, or UTF-16 with a byte order mark. Line ends become "\\n" and a byte order mark is dropped, so
that a file learned on one system reads the same on another. A token file is a corpus encoded once, which is mapped into
memory piece by piece:

corpus.bin         the ids, little-endian uint16 or uint32, nothing else
corpus.bin.json    the tokenizer, the type, the number of ids and their SHA-256, and a checksum of all this"""

import hashlib
import io
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.documents import check_document, crc32, damaged, read_json, write_document
from ..core.errors import DataError, GlassformerError
from ..core.files import explained, flush, replacing, sha256_of
from ..core.reporting import report
from ..text.symbols import CharTokenizer
from ..text.tokenizer import Tokenizer, tokenizer_from_dict
from .encodings import UTF16, check_is_text, holds_zero, not_decodable

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


def read_file(path: Path, *, strict: bool = True) -> str:
    """Return the text of one file, which may be empty.

    strict   False: keep bytes that are not UTF-8 as lone surrogates, for the rows that hold them to be refused
    """
    return "".join(_stream_file(path, CHUNK, strict=strict))


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
    location = Path(path)
    if location.exists() and not (location.is_file() or location.is_dir()):
        raise DataError(f"{path} is a pipe or a device, which can be read only once", hint="write it into a file first")


_copies: list[tempfile.TemporaryDirectory[str]] = []


def new_copy(name: str) -> Path:
    """Return the path for a copy of data that has no file, which lasts as long as the process."""
    folder = tempfile.TemporaryDirectory(prefix="glassformer-")
    _copies.append(folder)
    return Path(folder.name) / name


def copied_once(data: str) -> str:
    """Return the path of a copy of stdin (-) or of a pipe, which a run reads more than once; other paths as they are.

    A run folder keeps a copy of its own.
    """
    if data != "-" and not Path(data).is_fifo():
        return data
    copy = new_copy("stdin" if data == "-" else "pipe")
    if data == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise DataError("nothing is piped into stdin", hint="pipe a text in: cat notes.txt | glassformer train …")
    with explained(Path(data), DataError, "check the command that writes it", "read"), copy.open("wb") as file:
        if data == "-":
            shutil.copyfileobj(sys.stdin.buffer, file)
        else:
            with open(data, "rb") as pipe:
                shutil.copyfileobj(pipe, file)
    if not copy.stat().st_size:
        raise DataError(f"{'stdin' if data == '-' else data} is empty", hint="check the command that writes it")
    return str(copy)


def is_copy(data: str) -> bool:
    """Return whether a path is that of such a copy."""
    return any(Path(data).parent == Path(folder.name).resolve() for folder in _copies)


def shown_path(data: str | os.PathLike[str]) -> str:
    """Return a path as short as it can be said here: that of a copy by what it is, others relative to this folder."""
    location = Path(data)
    if is_copy(os.fspath(data)):
        return location.name
    return str(location.relative_to(Path.cwd())) if location.is_relative_to(Path.cwd()) else str(location)


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
        and _is_visible(file, folder)
        and not (suffixes is TEXT_SUFFIXES and _is_binary(file))
    ]
    if not files:
        raise DataError(
            f"the folder {folder} holds no file that ends in {', '.join(sorted(suffixes))}",
            hint="name a file itself if it ends otherwise",
        )
    return files


def left_out_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the files below a folder that do not count as text: pictures, programs and other binaries."""
    if not Path(folder).is_dir():
        return []
    kept = set(text_files(folder))
    return [file for file in sorted(Path(folder).rglob("*")) if _is_visible(file, Path(folder)) and file not in kept]


def _is_visible(file: Path, folder: Path) -> bool:
    return file.is_file() and not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _is_binary(file: Path) -> bool:
    """Return whether a file begins with zero bytes among others, as no text but UTF-16 does."""
    with explained(file, DataError, "check its permissions", "read"), file.open("rb") as raw:
        head = raw.read(1 << 13)
    return b"\0" in head and not head.startswith(UTF16)


def _stream_file(path: Path, chunk: int, *, strict: bool = True) -> Iterator[str]:
    """Yield the characters of one file; refuse other encodings with the location of the first wrong byte."""
    with explained(path, DataError, "check its permissions", "read"), path.open("rb") as raw:
        head = raw.read(16)
        check_is_text(path, head)
        encoding = "utf-16" if head[:2] in UTF16 else "utf-8-sig"
        raw.seek(0)
        with io.TextIOWrapper(raw, encoding=encoding, errors="strict" if strict else "surrogateescape") as file:
            try:
                while piece := file.read(chunk):
                    if "\0" in piece:
                        raise holds_zero(path, head)
                    yield piece
            except UnicodeDecodeError as error:
                # The last bytes that were read are the ones that could not be decoded.
                offset, byte = raw.tell() - len(error.object) + error.start, error.object[error.start]
                raise not_decodable(path, offset, encoding.removesuffix("-sig").upper(), byte) from None


FORMAT = "glassformer tokens 1"
AGAIN = "write the token file again"
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
    sha, count, done = hashlib.sha256(), 0, 0
    total = sum(file.stat().st_size for file in text_files(source))
    with explained(path, DataError):
        with replacing(path) as partial:
            with partial.open("wb") as file:
                for text in cut_between_words(stream_text(source, chunk=chunk), most=chunk):
                    report(done, total, "bytes of text")
                    done += len(text.encode())
                    ids = tokenizer.encode(text).astype(_DTYPES[dtype])
                    sha.update(ids.data)
                    count += len(ids)
                    file.write(ids.data)
            # The description goes first out and last in: a file without one is not taken for a token file.
            flush(partial)
            sidecar(path).unlink(missing_ok=True)
        about: dict[str, Any] = {"format": FORMAT, "dtype": dtype, "count": count, "sha256": sha.hexdigest()}
        about["tokenizer"] = tokenizer.to_dict()
        write_document(sidecar(path), about, field="checksum", checksum=crc32(about))
    return open_tokens(path, check=False)


def encode_long(tokenizer: Tokenizer, text: str, *, chunk: int = CHUNK) -> Array:
    """Return the ids of a text; those of a long one, encoded piece by piece, in two or four bytes each."""
    if len(text) <= chunk:
        return tokenizer.encode(text)
    dtype = _DTYPES["uint16" if tokenizer.size <= 1 << 16 else "uint32"]
    parts, done = [], 0
    for piece in cut_between_words((text[at : at + chunk] for at in range(0, len(text), chunk)), most=chunk):
        report(done, len(text), "characters encoded")
        parts.append(tokenizer.encode(piece).astype(dtype))
        done += len(piece)
    return np.concatenate(parts)


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
    """Return whether a path names a token file: a file with a description beside it."""
    return Path(path).is_file() and sidecar(Path(path)).is_file()


def cut_between_words(pieces: Iterable[str], *, most: int) -> Iterator[str]:
    """Yield the same text in pieces that end before white space, except for words longer than `most` characters."""
    rest = ""
    for piece in pieces:
        text = rest + piece
        words = _UP_TO_LAST_WORD.match(text)
        cut = words.end() if words else 0
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
    if not file.is_file():
        raise DataError(f"{path} has no description {file.name} beside it", hint=AGAIN)
    about = read_json(file, DataError, AGAIN)
    if about.get("format") != FORMAT:
        raise DataError(f"{file} is not the description of a token file", hint=AGAIN)
    if not check_document(file, about, DataError, field="checksum", checksum=crc32, remedy=AGAIN):
        raise damaged(file, "it has no checksum", AGAIN, DataError)
    try:
        about["tokenizer"] = tokenizer_from_dict(about.get("tokenizer"))
    except GlassformerError as error:
        raise DataError(f"{file} holds no usable tokenizer: {error.fact}", hint=AGAIN) from error
    return about
