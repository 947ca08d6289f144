"""Failures of the system and of libraries: one sentence, and a remedy."""

import os
import re
import sys
from contextlib import suppress
from typing import NoReturn

from ..errors import CheckpointError, DataError, GlassformerError, first_line

DEBUG = "GLASSFORMER_DEBUG"
_TRACE = f"{DEBUG}=1 shows where it happened"
# Parts of the messages of Python and JAX, which have no exception classes for these.
_NO_THREAD, _NO_DEVICE_MEMORY = "can't start new thread", "RESOURCE_EXHAUSTED"


def exit_with(message: str, code: int, error: BaseException | None = None) -> NoReturn:
    """Print a message on stderr, and a traceback if GLASSFORMER_DEBUG is set; exit."""
    if error is not None and os.environ.get(DEBUG, "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    if message:
        print(re.sub(r"(\S{300})\S{100,}", r"\1…", message), file=sys.stderr)
    flush_stdout()
    sys.exit(code)


def flush_stdout() -> None:
    """Flush stdout; if that fails, redirect it, so that Python does not complain again when it exits."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):  # it has no file descriptor, or is closed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_system_failure(error: BaseException) -> bool:
    """Tell whether an unexpected error comes from the system or the input, not from a bug of ours."""
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] != __package__.partition(".")[0]
    if isinstance(error, RuntimeError) and not isinstance(error, RecursionError):
        return any(words in str(error) for words in (_NO_THREAD, _NO_DEVICE_MEMORY))
    return isinstance(error, (OSError, MemoryError, RecursionError, UnicodeError, SystemError))


def describe(error: BaseException) -> GlassformerError:
    """Return an error of the system as one with a remedy."""
    if isinstance(error, ImportError):
        fact = f"{error.name or 'a library'} cannot be loaded: {first_line(error)}"
        hint = f"allow more memory (`ulimit -v` shows the limit), or else install it again; {_TRACE}"
        return GlassformerError(fact, hint=hint)
    if isinstance(error, RuntimeError) and _NO_DEVICE_MEMORY in str(error):
        fact = f"there is not enough memory on the device: {first_line(error)}"
        hint = "use a smaller batch, or spread the model with --mesh; `glassformer plan` counts what each device takes"
        return GlassformerError(fact, hint=f"{hint}; {_TRACE}")
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        hint = f"allow more memory or processes (`ulimit -v` and `ulimit -u` show the limits); {_TRACE}"
        return GlassformerError("the system refuses to start a thread", hint=hint)
    if isinstance(error, SystemError):  # a library that ran out of memory
        fact = f"a library failed, and says no more than: {first_line(error)}"
        return GlassformerError(fact, hint=f"allow more memory (`ulimit -v` shows the limit); {_TRACE}")
    if isinstance(error, MemoryError):
        more = f": {first_line(error)}" if str(error) else ""
        hint = f"use a smaller batch, context or model; `glassformer params` counts what one takes; {_TRACE}"
        return GlassformerError(f"there is not enough memory{more}", hint=hint)
    if isinstance(error, RecursionError):
        return GlassformerError("the input is nested too deeply to be read", hint=f"make it flatter; {_TRACE}")
    if isinstance(error, UnicodeDecodeError):
        where = f"byte {error.start:,} is 0x{error.object[error.start]:02x}"
        hint = f"convert it first, for example with iconv -t UTF-8; {_TRACE}"
        return DataError(f"the input is not {error.encoding} text: {where}", hint=hint)
    if isinstance(error, UnicodeEncodeError):
        what = ascii(error.object[error.start : error.end][:20])
        fact = f"{what} cannot be written as {error.encoding}: {error.reason}"
        return DataError(fact, hint=f"leave it out, or set PYTHONUTF8=1; {_TRACE}")
    assert isinstance(error, OSError | UnicodeError)
    why = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    name = getattr(error, "filename", None)
    fact = f"the system refuses: {why}" if name is None else f"{os.fsdecode(name)!r:.200} cannot be used: {why}"
    return CheckpointError(fact, hint=f"check the path, its permissions and its disk; {_TRACE}")
