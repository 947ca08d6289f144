"""Files that are no text: what they are by the bytes they begin with, and what is wrong with the others."""

import codecs
import zipfile
from contextlib import suppress
from pathlib import Path

from ..core.errors import DataError

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TABLE, _PROSE, _UNPACK = "save its table as CSV (UTF-8)", "save it as plain text (UTF-8)", "unpack it first"
_OTHER = "pass a text file"
BINARY: dict[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("a zip archive", _UNPACK),
    b"\xd0\xcf\x11\xe0": ("an old Excel workbook or Word document", _TABLE),
    b"PAR1": ("a Parquet file", _TABLE),
    b"ARROW1": ("an Arrow file", _TABLE),
    b"SQLite format 3": ("a SQLite database", _TABLE),
    b"%PDF": ("a PDF", _PROSE),
    b"\x1f\x8b": ("compressed by gzip", _UNPACK),
    b"BZh": ("compressed by bzip2", _UNPACK),
    b"\xfd7zXZ": ("compressed by xz", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", _UNPACK),
    b"\x89PNG": ("a PNG picture", _OTHER),
    b"\xff\xd8\xff": ("a JPEG picture", _OTHER),
    b"GIF8": ("a GIF picture", _OTHER),
    b"\x93NUMPY": ("an array of NumPy", _OTHER),
    b"\x89HDF": ("an HDF5 file", _OTHER),
    b"\x80\x04\x95": ("a pickle", _OTHER),
    b"\x80\x05\x95": ("a pickle", _OTHER),
}
"""What files begin with that hold no text, what they are, and what to do about it."""
_MEMBERS = {
    "xl/": ("an Excel workbook", _TABLE),
    "word/": ("a Word document", _PROSE),
    "content.xml": ("an OpenDocument file", _TABLE),
}
"""Members of zip archives that tell what they are."""


def check_is_text(path: Path, head: bytes) -> None:
    """Refuse a file whose first bytes are those of a binary format."""
    known = next((known for start, known in BINARY.items() if head.startswith(start)), None)
    if known is None:
        return
    if head.startswith(b"PK"):
        with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            known = next((kind for start, kind in _MEMBERS.items() if any(m.startswith(start) for m in members)), known)
    raise DataError(f"{path} is {known[0]}, not text", hint=known[1])


def not_decodable(path: Path, offset: int, encoding: str, byte: int) -> DataError:
    """Return the error for a byte that is not of the encoding, which says whether the rest of the file is."""
    hint = "convert it, for example: iconv -f cp1252 -t utf-8"
    wrong, right = _lines_beyond_ascii(path) if encoding == "UTF-8" else (1, 0)
    if right > wrong:
        count = f"{wrong:,} lines of it are" if wrong > 1 else "1 line of it is"
        hint = f"mend the line: {count} not UTF-8, {right:,} with other letters than ASCII's are"
    return _refusal(path, offset, f"not {encoding}: byte 0x{byte:02x}", hint)


def holds_zero(path: Path, head: bytes) -> DataError:
    """Return the error for a zero byte, which no text holds but UTF-16."""
    halves = [head[start::2].strip(b"\0") for start in (0, 1)]
    hint = "remove it, or pass a text file" if all(halves) else "convert it: iconv -f utf-16le -t utf-8"
    return _refusal(path, path.read_bytes().index(b"\0"), "a zero byte, which no text holds", hint)


def _refusal(path: Path, offset: int, what: str, hint: str) -> DataError:
    with path.open("rb") as file:
        line = file.read(offset).count(b"\n") + 1
    return DataError(f"{path}, line {line:,}, offset {offset:,}: {what}", hint=hint)


def _lines_beyond_ascii(path: Path) -> tuple[int, int]:
    """Return how many lines with other bytes than ASCII's are not UTF-8, and how many are."""
    wrong = right = 0
    with path.open("rb") as file:
        for line in file:
            if not line.isascii():
                try:
                    line.decode("utf-8")
                    right += 1
                except UnicodeDecodeError:
                    wrong += 1
    return wrong, right
