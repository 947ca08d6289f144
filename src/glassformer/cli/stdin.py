"""Texts from stdin."""

import sys

from ..core.errors import DataError


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


def read_lines() -> list[str]:
    """Return the lines of stdin."""
    return read_stdin().splitlines()
