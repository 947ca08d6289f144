"""The process in which a learner's file runs. It is started as a script and knows the standard library and NumPy only.

It reads requests and writes replies as frames: a length, a header in JSON, then the bytes of plain arrays. Nothing is
pickled. Before the first file runs it sets the limits of the process and a hook that refuses what reaches outside.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

MOST_PRINTED = 4_000
MOST_RETURNED = 1 << 26
OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
Tree = Any


class UnreadableError(Exception):
    """A returned value, or a frame, that is not plain."""


def pack(header: Tree) -> bytes:
    """Return a frame: the header, with its arrays taken out into the bytes that follow it."""
    parts: list[bytes] = []
    text = json.dumps(_encode(header, parts)).encode()
    body = b"".join(parts)
    if len(body) > MOST_RETURNED:
        raise UnreadableError(f"arrays of {len(body):,} bytes")
    return struct.pack("<QQ", len(text), len(body)) + text + body


def unpack(text: bytes, body: bytes) -> Tree:
    """Return the header with its arrays in their places."""
    at = 0

    def decode(tree: Tree) -> Tree:
        nonlocal at
        if isinstance(tree, list):
            return [decode(part) for part in tree]
        if not isinstance(tree, dict):
            return tree
        if "array" in tree:
            shape, dtype = tuple(tree["array"]), np.dtype(tree["dtype"])
            count = int(np.prod(shape, dtype=np.int64))
            size = count * dtype.itemsize
            if dtype.kind not in "biufc" or count < 0 or at + size > len(body):
                raise UnreadableError("a damaged array")
            values = np.frombuffer(body, dtype, count, at).reshape(shape).copy()
            at += size
            return values
        if "tuple" in tree:
            return tuple(decode(part) for part in tree["tuple"])
        return {name: decode(part) for name, part in tree["dict"].items()}

    try:
        return decode(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnreadableError(str(error)) from None


def _encode(tree: Tree, parts: list[bytes]) -> Tree:
    if isinstance(tree, np.ndarray | np.generic):
        values = np.ascontiguousarray(tree)
        if values.dtype.kind not in "biufc":
            raise UnreadableError(f"an array of dtype {values.dtype}")
        parts.append(values.tobytes())
        return {"array": np.shape(tree), "dtype": values.dtype.str}
    if isinstance(tree, dict):
        return {"dict": {str(name): _encode(part, parts) for name, part in tree.items()}}
    if isinstance(tree, tuple):
        return {"tuple": [_encode(part, parts) for part in tree]}
    if isinstance(tree, list):
        return [_encode(part, parts) for part in tree]
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise UnreadableError(f"a value of type {type(tree).__name__}")


# --- running a function -----------------------------------------------------------------------------------------------


def run_program(sources: list[str], function: str, examples: list[Any], file: str) -> Iterator[Tree]:
    """Run sources one after the other in one namespace, then yield that they ran, and one outcome for each example."""
    namespace: dict[str, Any] = {"__name__": "lab", "__file__": file}
    try:
        for number, source in enumerate(sources):
            exec(compile(source, file if number == 0 else "<ours>", "exec"), namespace)
    except BaseException as error:
        yield {"stage": "load", **describe(error, file)}
        return
    call = namespace.get(function)
    if not callable(call):
        yield {"stage": "load", "error": "missing", "words": f"there is no function {function}", "line": 0}
        return
    yield {"loaded": True}
    for args in examples:
        yield call_once(call, args, file)


def call_once(call: Callable[..., Any], args: tuple[Any, ...], file: str, *, is_own: bool = False) -> Tree:
    """Return what a call gives: its value, or how it failed; and which arguments it wrote to."""
    frame = pack(list(args))
    size = struct.unpack_from("<Q", frame)[0]
    given = unpack(frame[16 : 16 + size], frame[16 + size :])
    try:
        with np.errstate(all="ignore"):
            value = call(*given)
    except BaseException as error:
        if is_own and isinstance(error, KeyboardInterrupt):
            raise
        return {"stage": "call", **describe(error, file)}
    try:
        pack([value])
    except (UnreadableError, ValueError, RecursionError) as error:
        return {"stage": "call", "error": "unreadable", "words": str(error), "line": 0}
    wrote = [at for at, (now, then) in enumerate(zip(given, args, strict=True)) if not same(now, then)]
    return {"value": value, "wrote": wrote}


def same(a: Tree, b: Tree) -> bool:
    """Tell whether two arguments are equal, NaN included."""
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    return bool(a == b)


def describe(error: BaseException, file: str) -> Tree:
    """Return how a call failed: the kind of error, its words and the last line of the learner's file."""
    rows = traceback.extract_tb(error.__traceback__)
    lines = [row.lineno for row in rows if row.filename == file]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else (lines or [0])[-1]
    try:
        words = str(error)[:400]
    except Exception:
        words = ""
    calls_ours = any(row.filename.startswith(OURS) and row.filename != __file__ for row in rows)
    name = "ours" if calls_ours and isinstance(error, PermissionError) else type(error).__name__
    return {"error": name, "words": words, "line": line or 0}


# --- the process ------------------------------------------------------------------------------------------------------


class Printed(io.TextIOBase):
    """What the learner's file prints; only its beginning is kept."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text = (self.text + text[:MOST_PRINTED])[:MOST_PRINTED]
        return len(text)


def set_limits(limits: dict[str, int]) -> None:
    """Limit what this process may use; what a system does not know is left out."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is not None:
            try:
                resource.setrlimit(kind, (most, most))
            except (ValueError, OSError):
                continue


def confine(folder: str) -> bool:
    """Let the kernel refuse what the hook refuses, too, where it can (Landlock, Linux 5.13 and later).

    From here on the process writes below `folder` only, executes nothing, and, if the kernel is new enough, opens no
    TCP connection and sends no signal to processes outside. Whatever runs in it cannot undo that.
    """
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).syscall
        version = call(444, None, 0, 1) if sys.platform == "linux" else -1
        if version < 1:
            return False
        rights = 0b1111111110011 | (1 << 13 if version > 1 else 0) | (1 << 14 if version > 2 else 0)
        words = (rights, 3, 3)[: 1 if version < 4 else 2 if version < 6 else 3]  # files, network, scope
        attributes = struct.pack(f"<{len(words)}Q", *words)
        rules = call(444, attributes, len(attributes), 0)
        place = os.open(folder, os.O_PATH)
        is_set = call(445, rules, 1, struct.pack("<Qi", rights & ~1, place), 0) == 0
        is_set = is_set and ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0 and call(446, rules, 0) == 0
        os.close(place)
        os.close(rules)
        return is_set
    except (ImportError, OSError, AttributeError):
        return False


WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED_EVENTS = (
    "socket.", "subprocess.", "ctypes.", "os.fork", "os.exec", "os.spawn", "os.posix_spawn", "os.system", "os.kill",
    "os.startfile", "signal.", "gc.", "pty.", "syslog.", "shutil.", "mmap.", "fcntl.", "sqlite3.", "winreg.", "msvcrt.",
    "webbrowser.", "ftplib.", "smtplib.", "urllib.", "http.", "code.__new__", "function.__new__", "sys._current_frames",
    "cpython.", "os.chflags", "os.lchflags", "os.lockf", "os.setxattr", "os.removexattr", "setopencodehook",
    "sys.addaudithook",
)  # fmt: skip
PATH_EVENTS = (
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate",
    "os.utime", "os.chdir", "os.listdir", "os.scandir", "os.walk", "tempfile.mkstemp", "tempfile.mkdtemp",
)  # fmt: skip
REFUSED_MODULES = (
    "ctypes", "_ctypes", "_posixsubprocess", "subprocess", "multiprocessing", "_multiprocessing", "socket", "_socket",
    "_testcapi", "_testinternalcapi", "_xxsubinterpreters", "_interpreters", "cffi", "_cffi_backend", "posixshmem",
    "_posixshmem", "mmap", "fcntl", "pty",
)  # fmt: skip


def make_hook(folder: str, readable: tuple[str, ...], hidden: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that refuses what reaches outside the folder.

    It looks up no global name when it is called, so that replacing one does not disarm it.
    """

    def hook(
        event: str, args: tuple[Any, ...], *, names=REFUSED_EVENTS, paths=PATH_EVENTS, modules=REFUSED_MODULES,
        writes=WRITES, real=os.path.realpath, decode=os.fsdecode, is_a=isinstance, text=(str, bytes), number=int,
        string=str, refused=PermissionError, folder=folder, readable=readable, hidden=hidden, any_of=any,
        listing=("os.listdir", "os.scandir", "os.walk"),
    ) -> None:  # fmt: skip
        if event == "import":
            if args[0] in modules:
                raise refused(f"importing {args[0]} is refused in a lab")
        elif event == "open":
            name, mode, flags = args
            if is_a(name, number):
                return
            path = real(decode(name))
            if path == folder or path.startswith(folder + "/"):
                return
            if (is_a(flags, number) and flags & writes) or (is_a(mode, string) and any_of(c in mode for c in "wax+")):
                raise refused(f"writing {path} is refused in a lab")
            if path.startswith(hidden) or not any_of(path.startswith(place) for place in readable):
                raise refused(f"reading {path} is refused in a lab")
        elif event in paths:
            for one in args:
                if is_a(one, text):
                    path = real(decode(one))
                    may_list = event in listing and any_of(path.startswith(place) for place in readable)
                    if path != folder and not path.startswith(folder + "/") and not may_list:
                        raise refused(f"{event}({path}) is refused in a lab")
        elif event.startswith(names):
            raise refused(f"{event} is refused in a lab")

    return hook


def read_frame(source: BinaryIO) -> Tree | None:
    """Return the next frame, or None at the end."""
    sizes = source.read(16)
    if len(sizes) < 16:
        return None
    text, body = struct.unpack("<QQ", sizes)
    return unpack(source.read(text), source.read(body))


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    setup = read_frame(source)
    assert setup is not None
    sys.path[:] = setup["path"]
    sys.dont_write_bytecode = True
    sys.stdin, sys.stdout = io.StringIO(), (printed := Printed())
    sys.stderr = printed
    confine(setup["folder"])
    for name in REFUSED_MODULES:
        sys.modules.pop(name, None)
    for name in ("mkfifo", "mknod", "chroot", "setuid"):  # they raise no event
        for module in (os, sys.modules.get("posix")):
            if hasattr(module, name):
                delattr(module, name)
    set_limits(setup["limits"])
    sys.addaudithook(make_hook(setup["folder"], tuple(setup["readable"]), setup["hidden"]))
    while (request := read_frame(source)) is not None:
        for outcome in run_program(request["sources"], request["function"], request["examples"], request["file"]):
            target.write(pack(outcome))
            target.flush()
        target.write(pack({"done": True, "printed": printed.text}))
        target.flush()


if __name__ == "__main__":
    main()
