"""State dicts of PyTorch, read without running a pickle.

A .pt file is a zip archive: data.pkl says which tensor lies where, and data/0, data/1, … are the numbers. A pickle is a
small program for a stack machine, and the usual machine lets it call any function there is. The machine here knows the
few instructions that a dict of tensors needs, and three functions, none of which it looks up anywhere: an ordered
dict, a tensor over some numbers, a parameter. At anything else it stops and says what the file asked for.
"""

import pickletools
import zipfile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..arrays import Array
from ..errors import WeightsError
from ..tree import flatten

MOST_INSTRUCTIONS = 5_000_000
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


class _Named(NamedTuple):
    """What a file calls by its name; nothing is looked up."""

    name: str


class _Numbers(NamedTuple):
    """The numbers of a tensor, before they are read."""

    kind: str
    key: str


def read_state_dict(path: str | Path) -> dict[str, Array]:
    """Return the tensors of floating-point numbers in a .pt file by their dotted names; others are left out."""
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(path, archive).read()
    except zipfile.BadZipFile:
        _refuse(path, "it is no zip archive, but a pickle as PyTorch wrote them before version 1.6")
    except WeightsError:
        raise
    except (OSError, KeyError, IndexError, ValueError, TypeError, AttributeError, EOFError) as error:
        raise WeightsError(f"{path} cannot be read: {error}", hint="get the file again") from None


class _Reader:
    """The stack machine for one file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        places = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
        if len(places) != 1:
            _refuse(path, "it holds no data.pkl, or several")
        self.home = places[0].removesuffix("data.pkl")
        order = self.home + "byteorder"
        if order in archive.namelist() and archive.read(order).strip() != b"little":
            _refuse(path, "its numbers are stored in another byte order")
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}
        self.stored: dict[str, Array] = {}

    def read(self) -> dict[str, Array]:
        """Run the instructions, and return the tensors."""
        for count, (operation, argument, _) in enumerate(pickletools.genops(self.archive.read(self.home + "data.pkl"))):
            if operation.name == "STOP" or count > MOST_INSTRUCTIONS:
                break
            self._do(operation.name, argument)
        found = self.stack.pop()
        if not isinstance(found, dict):
            _refuse(self.path, f"it holds a {type(found).__name__}, not a dict of tensors")
        leaves = flatten(_with_text_keys(found))
        return {name: x for name, x in leaves.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f"}

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
            stack.append(_Named(argument))
        elif name == "STACK_GLOBAL":
            own, module = stack.pop(), stack.pop()
            stack.append(_Named(f"{module} {own}"))
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
            stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
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

    def _since_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def _numbers(self, found: Any) -> _Numbers:
        """Return which numbers a tensor is about."""
        _, kind, key, *_ = found
        word = kind.name.partition(" ")[2] if isinstance(kind, _Named) else str(kind)
        if word not in _STORAGES:
            _refuse(self.path, f"it holds a {word}, which is not supported")
        return _Numbers(word, str(key))

    def _called(self, function: Any, arguments: tuple[Any, ...]) -> Any:
        name = function.name if isinstance(function, _Named) else repr(function)
        if name == _DICT:
            return dict(*arguments)
        if name in _TENSORS:
            return self._tensor(*arguments[:4])
        if name != _PARAMETER:
            _refuse(self.path, f"it asks to call {name.replace(' ', '.')}, which no dict of tensors needs")
        return arguments[0]

    def _tensor(self, numbers: _Numbers, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """Return a tensor over some numbers; refuse one that reaches beyond them."""
        if numbers.key not in self.stored:
            data = np.frombuffer(self.archive.read(f"{self.home}data/{numbers.key}"), dtype=_STORAGES[numbers.kind])
            self.stored[numbers.key] = data
        data = self.stored[numbers.key]
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        sizes = (offset, *shape, *strides)
        if any(type(size) is not int or size < 0 for size in sizes) or (0 not in shape and last >= len(data)):
            _refuse(self.path, f"a tensor of shape {shape} reaches beyond its {len(data):,} numbers")
        if 0 in shape:
            return np.zeros(shape, np.float32)
        inner = [stride * data.itemsize for stride in strides]
        array = np.lib.stride_tricks.as_strided(data[offset:], shape, inner, writeable=False).copy()
        # bfloat16 is the upper half of a float32.
        return (array.astype(np.uint32) << 16).view(np.float32) if numbers.kind == "BFloat16Storage" else array


def _with_text_keys(tree: Any) -> Any:
    return {str(key): _with_text_keys(part) for key, part in tree.items()} if isinstance(tree, dict) else tree


def _refuse(path: Path, why: str) -> NoReturn:
    raise WeightsError(
        f"{path} is not opened: {why}",
        hint="if you trust it, convert it with PyTorch: "
        f'safetensors.torch.save_file(torch.load("{path.name}", weights_only=True), "{path.stem}.safetensors")',
    )
