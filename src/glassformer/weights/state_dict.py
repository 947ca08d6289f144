"""State dicts of PyTorch, read without running a pickle.

A .pt file is a zip archive: data.pkl says which tensor lies where, and data/0, data/1, … are the numbers. A pickle is a
small program for a stack machine, and the usual machine lets it call any function there is. The machine here knows the
few instructions that a dict of tensors needs, and three functions, none of which it looks up anywhere: an ordered
dict, a tensor over some numbers, a parameter. At anything else it stops and says what the file asked for.

Time and memory are bounded by the size of the file: nothing in it is compressed, as PyTorch writes it; all tensors
together have at most four numbers for each of its bytes; keys are texts or numbers, and dicts that stand in each other
are walked through at most as often as there are instructions.
"""

import math
import pickletools
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..arrays import Array
from ..errors import WeightsError

MOST_INSTRUCTIONS = 5_000_000
NUMBERS_PER_BYTE = 4
DEEPEST = 64
MOST_AXES = 8
_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2", "LongStorage": "<i8",
    "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1", "BoolStorage": "|b1",
}  # fmt: skip
_TENSORS = ("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor")
_PARAMETER, _DICT = "torch._utils _rebuild_parameter", "collections OrderedDict"
_PUSHED = {
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "UNICODE",
    "INT", "LONG", "FLOAT", "SHORT_BINBYTES", "BINBYTES", "SHORT_BINSTRING", "BINSTRING", "STRING",
}  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_MARK = object()


class _Global(NamedTuple):
    """What a file calls by its name; nothing is looked up."""

    name: str


class _Storage(NamedTuple):
    """The numbers of a tensor, before they are read."""

    kind: str
    key: str


def read_state_dict(path: str | Path) -> dict[str, Array]:
    """Return the tensors of floating-point numbers in a .pt file by their dotted names; others are left out."""
    path = Path(path)
    if not zipfile.is_zipfile(path):
        _refuse(path, "it is no zip archive: it is damaged, or a pickle as PyTorch wrote them before version 1.6")
    try:
        with zipfile.ZipFile(path) as archive:
            return _StateDictReader(path, archive).read()
    except WeightsError:
        raise
    except Exception as error:  # a damaged archive or pickle ends in nearly any of Python's errors
        raise WeightsError(f"{path} cannot be read: {reason(error)}", hint="get the file again") from error


class _StateDictReader:
    """The stack machine for one file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        places = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
        if len(places) != 1:
            _refuse(path, "it holds no data.pkl, or several")
        self.home = places[0].removesuffix("data.pkl")
        self.bytes_left = path.stat().st_size
        self.numbers_left = NUMBERS_PER_BYTE * self.bytes_left
        if self.home + "byteorder" in archive.namelist() and self._member("byteorder").strip() != b"little":
            _refuse(path, "its numbers are stored in another byte order")
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.stored: dict[str, Array] = {}

    def read(self) -> dict[str, Array]:
        """Run the instructions, and return the tensors."""
        count = 0
        for count, (operation, argument, _) in enumerate(pickletools.genops(self._member("data.pkl"))):
            if count > MOST_INSTRUCTIONS:
                _refuse(self.path, f"it has more than {MOST_INSTRUCTIONS:,} instructions")
            if operation.name != "STOP":
                self._do(operation.name, argument)
        found = self.stack.pop()
        if not isinstance(found, dict):
            _refuse(self.path, f"it holds a {type(found).__name__}, not a dict of tensors")
        return self._tensors(found, count)

    def _member(self, name: str) -> bytes:
        """Return one of the files in the archive."""
        entry = self.archive.getinfo(self.home + name)
        self.bytes_left -= entry.file_size
        if entry.compress_type != zipfile.ZIP_STORED or self.bytes_left < 0:
            _refuse(self.path, f"{entry.filename[:80]} is compressed, or overlaps with others")
        return self.archive.read(entry)

    def _tensors(self, found: dict[Any, Any], most: int) -> dict[str, Array]:
        """Return the floating-point tensors of nested dicts and lists by their dotted names."""
        tensors: dict[str, Array] = {}
        waiting: list[tuple[tuple[str, ...], Any]] = [((), found)]
        while waiting:
            path, part = waiting.pop()
            if isinstance(part, np.ndarray) and part.dtype.kind == "f":
                tensors[".".join(path)] = part
            elif isinstance(part, dict | list | tuple):
                inner = part.items() if isinstance(part, dict) else enumerate(part)
                waiting += [((*path, str(key)), value) for key, value in inner][::-1]
                most -= len(part)
            if most < 0 or len(path) > DEEPEST:
                _refuse(self.path, "its dicts hold each other, over and over")
        return tensors

    def _do(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in ("PROTO", "FRAME"):
            return
        if name in _PUSHED:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self.memory[len(self.memory) if name == "MEMOIZE" else argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self.memory[argument])
        elif name == "GLOBAL":
            stack.append(_Global(argument))
        elif name == "STACK_GLOBAL":
            own, module = stack.pop(), stack.pop()
            stack.append(_Global(f"{module} {own}" if isinstance(own, str) and isinstance(module, str) else "nothing"))
        else:
            self._combine(name)

    def _combine(self, name: str) -> None:
        """Do what takes something off the stack."""
        stack = self.stack
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self._since_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            self._put(stack[-1], pairs[::2], pairs[1::2])
        elif name in ("APPEND", "APPENDS"):
            more = self._since_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(more)
        elif name == "BINPERSID":
            stack.append(self._numbers(stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(self._called(stack.pop(), arguments))
        elif name == "BUILD":
            stack.pop()  # what PyTorch notes about versions of modules
        else:
            _refuse(self.path, f"it has the instruction {name}, which no dict of tensors needs")

    def _put(self, target: dict[Any, Any], keys: list[Any], values: list[Any]) -> None:
        """Fill a dict; a key that holds others could take any time to compare."""
        if not all(isinstance(key, str | int | float) for key in keys):
            _refuse(self.path, "a key of its dict is neither a text nor a number")
        target.update(zip(keys, values, strict=True))

    def _since_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def _numbers(self, found: Any) -> _Storage:
        """Return which numbers a tensor is about."""
        _, kind, key, *_ = found
        word = kind.name.partition(" ")[2] if isinstance(kind, _Global) else ""
        if word not in _STORAGES or not isinstance(key, str | int):
            _refuse(self.path, f"it holds a {word[:80] or type(kind).__name__}, which is not supported")
        return _Storage(word, str(key))

    def _called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        name = function.name if isinstance(function, _Global) else type(function).__name__
        if name == _DICT:
            found: dict[Any, Any] = {}
            pairs = arguments[0] if arguments else []
            self._put(found, [key for key, _ in pairs], [value for _, value in pairs])
            return found
        if name in _TENSORS:
            return self._tensor(*arguments[:4])
        if name != _PARAMETER:
            _refuse(self.path, f"it asks to call {name.replace(' ', '.')}, which no dict of tensors needs")
        return arguments[0]

    def _tensor(self, numbers: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """Return a tensor over some numbers; refuse one that reaches beyond them."""
        if numbers.key not in self.stored:
            data = np.frombuffer(self._member(f"data/{numbers.key}"), dtype=_STORAGES[numbers.kind])
            self.stored[numbers.key] = data
        data = self.stored[numbers.key]
        sizes = (offset, *shape, *strides)
        if len(shape) > MOST_AXES or any(type(size) is not int or not 0 <= size < 1 << 48 for size in sizes):
            _refuse(self.path, "a tensor has no sensible shape")
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        self.numbers_left -= math.prod(shape)
        if (0 not in shape and last >= len(data)) or self.numbers_left < 0:
            _refuse(self.path, f"a tensor of shape {shape} reaches beyond its {len(data):,} numbers, or repeats them")
        if 0 in shape:
            return np.zeros(shape, np.float32)
        inner = [stride * data.itemsize for stride in strides]
        array = np.lib.stride_tricks.as_strided(data[offset:], shape, inner, writeable=False).copy()
        # bfloat16 is the upper half of a float32.
        return (array.astype(np.uint32) << 16).view(np.float32) if numbers.kind == "BFloat16Storage" else array


def reason(error: Exception) -> str:
    """Return what an error of another library says, in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200].removesuffix(": ")


def _refuse(path: Path, why: str) -> NoReturn:
    raise WeightsError(
        f"{path} is not opened: {why}",
        hint="if you trust it, convert it with PyTorch: "
        f'safetensors.torch.save_file(torch.load("{path.name}", weights_only=True), "{path.stem}.safetensors")',
    )
