"""Texts from stdin and from files of lines."""

import sys
from pathlib import Path

from ..errors import DataError
from ..files import explained


def read_stdin() -> str:
    """Return the text on stdin without its last line end, which `echo` adds."""
    if sys.stdin is None:
        raise no_stdin()
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def no_stdin() -> DataError:
    """Return the error for a stdin that is closed."""
    return DataError("stdin is closed", hint="pass the text as an argument, or through a pipe")


def not_utf8(error: UnicodeDecodeError) -> DataError:
    """Return the error for a stdin that is not text."""
    return DataError(
        f"stdin is not UTF-8 text: byte {error.start:,} is 0x{error.object[error.start]:02x}",
        hint="convert it first, for example with iconv -t UTF-8",
    )


def read_lines(file: Path | None = None) -> list[str]:
    """Return the lines of a file, or of stdin."""
    if file is None:
        return read_stdin().splitlines()
    with explained(file, DataError, "check the path", "read"):
        try:
            return file.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise DataError(f"{file} is not UTF-8 text", hint="convert it first, for example with iconv") from None
