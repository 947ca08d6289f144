"""The process in which a learner's file runs. It is started as a script and knows the standard library and NumPy only.

Both sides write one line of JSON at a time, with the bytes of arrays in hexadecimal. Nothing is pickled. Before the
first file runs, the process imports the packages that the file names, under Landlock already, and then gives up what
reaches outside by limits and an audit hook, too.
"""

import contextlib
import functools
import importlib.util
import io
import json
import os
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

LONGEST = 1 << 24
"""Characters of a line: two for each byte of an array."""
MOST_PRINTED = 4_000
MOST_WRITTEN = 2_000
"""How many times a file may be opened to write; `limits` holds how large each may be."""
OURS = "glassformer"
Tree = Any


def dumps(tree: Tree) -> str:
    """Return arguments or results as a line of JSON; a ValueError names what is no array, number or text."""
    return json.dumps(_plain(tree))


def _plain(tree: Tree) -> Tree:
    if isinstance(tree, np.ndarray | np.generic):
        if tree.dtype.kind not in "biufc" or tree.nbytes > LONGEST // 4:
            raise ValueError(f"an array of dtype {tree.dtype} and {tree.nbytes:,} bytes")
        values = np.ascontiguousarray(tree)
        return {"array": values.tobytes().hex(), "dtype": values.dtype.str, "shape": np.shape(tree)}
    if isinstance(tree, dict):
        return {"dict": [(str(name), _plain(part)) for name, part in tree.items()]}
    if isinstance(tree, tuple):
        return {"tuple": [_plain(part) for part in tree]}
    if isinstance(tree, list):
        return [_plain(part) for part in tree]
    if tree is None or isinstance(tree, float | str) or (isinstance(tree, int) and tree.bit_length() < 64):
        return tree
    raise ValueError(f"a value of type {type(tree).__name__}")


def loads(text: str | bytes) -> Tree:
    """Return what a line of JSON holds; the arrays are new ones."""
    return json.loads(text, object_hook=_tree)


def clean(text: str) -> str:
    """Return a text in which control characters are spelled out, so that a terminal prints them."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _tree(found: dict[str, Any]) -> Tree:
    if "array" not in found:
        return tuple(found["tuple"]) if "tuple" in found else {clean(name): part for name, part in found["dict"]}
    dtype = np.dtype(found["dtype"])
    if dtype.kind not in "biufc":
        raise ValueError(f"an array of dtype {dtype}")
    return np.ndarray(found["shape"], dtype, bytes.fromhex(found["array"])).copy()


# --- running a function -----------------------------------------------------------------------------------------------


_compiled = functools.lru_cache(64)(compile)
"""Changes of a file share all but one function."""


def load(sources: list[str], function: str, file: str, known: dict[str, Any]) -> Any:
    """Run sources one after the other, the learner's file first, and return what they call `function`."""
    for number, source in enumerate(sources):
        exec(_compiled(source, "<ours>" if number else file, "exec"), known)
    return known.get(function)


def call_once(call: Callable[..., Any], given: str, file: str, caught: Any = BaseException) -> Tree:
    """Return what a call gives: its value, or how it failed; and which arguments it wrote to."""
    args = loads(given)
    before = [dumps(x) for x in args]
    try:
        with np.errstate(all="ignore"):
            value = call(*args)
    except caught as error:
        return describe(error, file)
    try:
        if len(dumps(value)) > LONGEST // 2:
            return {"error": "unreadable", "words": f"arrays of more than {LONGEST >> 22} MiB"}
    except ValueError as error:
        return {"error": "unreadable", "words": str(error)}
    except RecursionError:
        return {"error": "unreadable", "words": "lists without end"}
    return {"value": value, "wrote": [at for at, x in enumerate(args) if _differs(x, before[at])]}


def _differs(x: Tree, text: str) -> bool:
    try:
        return dumps(x) != text
    except (ValueError, RecursionError):  # something was put into it
        return True


def describe(error: BaseException, file: str) -> Tree:
    """Return how a call failed: the class of the exception, its words and the last line of the learner's file."""
    line, step = getattr(error, "lineno", 0) if isinstance(error, SyntaxError) else 0, error.__traceback__
    while step is not None:
        line = step.tb_lineno if step.tb_frame.f_code.co_filename == file else line
        step = step.tb_next
    try:
        words = str(error)[:400]
    except BaseException:
        words = ""
    name = str(error.name) if isinstance(error, ImportError) else ""
    is_ours = name.partition(".")[0] == OURS or getattr(error, "obj", None) is sys.modules.get(OURS, error)
    return {"error": "ours" if is_ours else type(error).__name__, "words": words, "line": line or 0}


# --- the process ------------------------------------------------------------------------------------------------------


class Printed(io.StringIO):
    """What the learner's file prints; only its beginning is kept."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, MOST_PRINTED - self.tell())])
        return len(text)


READ_FILE, READ_FOLDER, WRITE = 1 << 2, 1 << 3, 1 << 1 | 1 << 8 | 1 << 14
"""Rights of linux/landlock.h: to read a file, to list a folder; to write, make and truncate files."""


def readable_parts(place: str, hidden: str) -> Iterator[tuple[str, int]]:
    """Yield what is at a place, each with the rights to read it; the files below `hidden` are left out."""
    if not os.path.join(hidden, "").startswith(os.path.join(place, "")):
        yield place, READ_FILE | READ_FOLDER if os.path.isdir(place) else READ_FILE
        return
    yield place, READ_FOLDER
    for name in os.listdir(place) if place != hidden else ():
        if not os.path.islink(part := os.path.join(place, name)):
            yield from readable_parts(part, hidden)


def confine(folder: str, readable: list[str], hidden: str) -> bool:
    """Let the kernel refuse what the hook refuses, too, where it can (Landlock, Linux 5.13 and later).

    From here on the process writes files of `folder` only, reads those and `readable` only, executes nothing, and, if
    the kernel is new enough, opens no TCP connection and sends no signal to others. Nothing in it can undo that.
    """
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(444, None, 0, 1) if sys.platform == "linux" else 0
    if version < 1:
        return False
    rights = (1 << (13, 14, 15, 15, 16)[min(version, 5) - 1]) - 1
    handled = (rights, 3, 3)[: 1 if version < 4 else 2 if version < 6 else 3]  # files, network, scope
    rules = library.syscall(444, struct.pack(f"<{len(handled)}Q", *handled), 8 * len(handled), 0)
    parts = [one for place in readable for one in readable_parts(place, hidden)]
    for part, allowed in ((folder, READ_FILE | READ_FOLDER | WRITE), *parts):
        with contextlib.suppress(OSError):  # it is not there
            opened = os.open(part, os.O_PATH)
            library.syscall(445, rules, 1, struct.pack("<Qi", allowed & rights, opened), 0)
            os.close(opened)
    return library.prctl(38, 1, 0, 0, 0) == 0 and library.syscall(446, rules, 0) == 0


WARM_UPS = {
    "jax": "jax.jit(jax.grad(lambda x: x * x))(1.0)",
    "matplotlib": "import matplotlib.pyplot as p; p.subplots()[1].plot([1]); p.savefig('warm.png'); p.close('all')",
    "numba": "import numpy; numba.core.dispatcher.Dispatcher.enable_caching = lambda _: None\n"
    "numba.njit(lambda x: x * x, parallel=True)(numpy.ones(1))",
    "pandas": "",
    "scipy": "",
    "sympy": "",
    "torch": "torch.ones(1, requires_grad=True).sum().backward()",
}
"""Packages that load libraries, list folders or start threads at import or first use, and what makes them do so."""


def prepare(modules: list[str]) -> None:
    """Import public modules of these packages where they are installed, not what somebody calls so.

    One that fails will fail again, and tell the learner's file why.
    """
    for name in modules:
        package = name.partition(".")[0]
        with contextlib.suppress(Exception):
            spec = importlib.util.find_spec(package)
            parts = os.path.normpath(str(spec and spec.origin)).split(os.sep)
            if "._" in name or not {"site-packages", "dist-packages"}.intersection(parts):
                continue
            if package not in sys.modules:
                exec(WARM_UPS[package], {package: importlib.import_module(package)})
            importlib.import_module(name)


QUIET = frozenset({
    "array.__new__", "builtins.id", "builtins.input", "builtins.input/result", "compile", "exec", "marshal.loads",
    "object.__delattr__", "object.__getattr__", "object.__setattr__", "os.putenv", "os.unsetenv", "pickle.find_class",
    "sys._getframe", "sys._getframemodulename", "sys.excepthook", "sys.unraisablehook", "time.sleep",
})  # fmt: skip
"""Audit events of what stays in the process. All others are refused, but for imports and files."""
COMPILING = frozenset({"ctypes.cdata", "ctypes.create_string_buffer", "ctypes.string_at"})
"""Those of each function that Numba compiles: a file that imports it reaches all memory of its process."""
REFUSED_MODULES = frozenset({
    OURS, "_cffi_backend", "_interpreters", "_multiprocessing", "_posixshmem", "_posixsubprocess", "_testcapi",
    "_testinternalcapi", "_testlimitedcapi", "_xxsubinterpreters", "posix",
})  # fmt: skip
"""Modules with functions that raise no audit event."""


class Refused:
    """What starts a process or shares a lock or memory with one."""

    SEM_VALUE_MAX = 1

    def __init__(self, *_: Any) -> None:
        raise PermissionError("other processes are refused in a lab")


STUBS: dict[str, dict[str, Any]] = {
    "_multiprocessing": {"SemLock": Refused, "sem_unlink": Refused},
    "_posixsubprocess": {"fork_exec": Refused},
    OURS: {"__path__": []},
}
REFUSED_FUNCTIONS = ("chroot", "mkfifo", "mknod", "pidfd_open", "sched_setaffinity", "setns", "setpriority", "unshare")
"""Those of os."""


def make_hook(folder: str, readable: tuple[str, ...], hidden: str) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that refuses what reaches outside the folder.

    It holds the functions that it needs: a file that replaces a global name can make it fail, which refuses, too.
    """
    quiet = QUIET | COMPILING if "numba" in sys.modules else QUIET
    modules, left = REFUSED_MODULES, [True] * MOST_WRITTEN
    real, decode, inside = os.path.realpath, os.fsdecode, (folder, os.path.join(folder, ""))
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in quiet or (event == "import" and args[0] not in modules):
            return
        if event == "import":
            raise PermissionError(f"importing {args[0]} is refused in a lab")
        if event not in ("open", "os.listdir", "os.scandir"):
            raise PermissionError(f"{event} is refused in a lab")
        path, is_writing = real(decode(args[0] or ".")), event == "open" and args[2] & writes
        is_mine = path == inside[0] or path.startswith(inside[1])
        if is_writing and not (is_mine and left and left.pop()):
            raise PermissionError(f"writing {path} is refused in a lab")
        if not is_mine and (path.startswith(hidden) or not path.startswith(readable)):
            raise PermissionError(f"reading {path} is refused in a lab")

    return hook


def serve(request: Tree) -> Iterator[Tree]:
    """Yield how a file was loaded, then one outcome for each example."""
    file = request["file"]
    try:
        call = load(request["sources"], request["function"], file, {"__name__": "lab", "__file__": file})
    except BaseException as error:
        yield describe(error, file)
        return
    yield {} if callable(call) else {"error": "missing"}
    for given in request["examples"] if callable(call) else ():
        yield call_once(call, given, file)


def main() -> None:
    """Give up what reaches outside, say so, and serve requests until the parent closes the pipe."""
    setup = json.loads(sys.argv[1])
    source, target = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing, statm = os.open(os.devnull, os.O_RDWR), "/proc/self/statm"
    memory = os.open(statm, os.O_RDONLY) if os.path.exists(statm) else nothing
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    with contextlib.suppress(ImportError, OSError, AttributeError):
        confine(setup["folder"], setup["readable"], setup["hidden"])
    for module in (os, sys.modules.get("posix")):
        for name in REFUSED_FUNCTIONS:
            vars(module).pop(name, None)
    # Other modules import these, and a notebook imports us: none is of use here.
    for name, holds in STUBS.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(holds)
    sys.stdout = sys.stderr = io.StringIO()
    prepare(setup["modules"])
    with contextlib.suppress(ImportError):  # Windows
        import resource

        # Libraries map much and have used time: what they took is not the learner's.
        pages = int((os.pread(memory, 99, 0) or b"0").split()[0])
        taken = {"AS": pages * resource.getpagesize(), "CPU": int(time.process_time())}
        for name, most in setup["limits"].items():
            most += taken.get(name, 0)
            with contextlib.suppress(AttributeError, ValueError, OSError):  # what this system does not know
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    sys.addaudithook(make_hook(setup["folder"], tuple(setup["readable"]), setup["hidden"]))
    warnings.simplefilter("ignore")
    warnings.filterwarnings("default", module="lab$")  # those about the learner's lines
    target.write(b"ready\n")
    target.flush()
    for line in source:
        sys.stdin, sys.stdout = io.StringIO(), (printed := Printed())
        sys.stderr = printed
        for number, outcome in enumerate(serve(loads(line))):
            target.write(dumps({**outcome, "number": number, "printed": printed.getvalue()}).encode() + b"\n")
            target.flush()


if __name__ == "__main__":
    main()
