"""Text to learn from: prose and source code that every Python carries, and the user's own files.

Text is UTF-8, strictly. Line ends become "\\n" and a byte order mark is dropped, so that a file learned on one system
reads the same on another.
"""

import io
import os
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

from ..errors import DataError

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
