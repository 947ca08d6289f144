"""Weights of other people's models, by a table of names: `gf.from_arrays` shows one.

A * stands for the number of a block on both sides. Nothing is left to chance: what is missing, what is left over and
what does not fit is named.

State dicts of PyTorch are read without running a pickle. A .pt file is a zip archive: data.pkl says which tensor lies
where, and data/0, data/1, … are the numbers. A pickle is a program for a stack machine that may call any function. The
machine here has the instructions and the three functions that a dict of tensors needs: an ordered dict, a tensor over
some numbers, a parameter. At anything else it stops. Time and memory are bounded by the size of the file: nothing is
compressed, tensors have at most four numbers for each byte in all, keys are texts or numbers, and dicts that stand in
each other are gone through at most once per byte.
"""

import io
import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config import TransformerConfig
from ..core.arrays import Array, Tree
from ..core.errors import WeightsError, did_you_mean, first_line, some
from ..core.tree import flatten, rebuilt
from ..models import build
from .family import Foreign, Names, general_name, numbered_name
from .tensors import FLOATS, MOST_AXES, PICKLES, Tensors, read_header


def params_from(
    config: TransformerConfig,
    arrays: Mapping[str, Any],
    table: Names,
    *,
    ignored: Sequence[str] = (),
    dtype: Any = np.float32,
) -> Tree:
    """Return the parameters of a model from arrays of another program.

    table     our dotted names to theirs
    ignored   patterns of names that hold nothing the model needs, such as masks: "blocks.*.attn.mask"
    """
    specs = flatten(build(config).specs())
    chosen = {ours: entry for ours in specs if (entry := _entry(table, arrays, ours)) is not None}
    _check_names(specs, chosen, arrays, table, ignored)
    leaves = {}
    for ours, foreign in chosen.items():
        shape, theirs = tuple(specs[ours].shape), arrays[foreign.name]
        array = foreign.read(theirs, shape)
        if array.shape != shape:
            was = "" if array.shape == np.shape(theirs) else f", which becomes {array.shape}"
            raise WeightsError(
                f"{foreign.name} has shape {np.shape(theirs)}{was}, but {ours} has shape {shape}",
                hint='it is transposed: use Foreign(name, "a b -> b a")'
                if array.shape == shape[::-1]
                else "say in a Foreign how its axes are to be ordered, or change the sizes in the config",
            )
        if array.dtype.kind not in "fiu":
            raise WeightsError(f"{foreign.name} holds {array.dtype}, not numbers", hint="convert it first")
        leaves[ours] = np.array(array, dtype=dtype, order="C")
    return rebuilt(build(config).specs(), leaves)


def read_arrays(path: str | Path) -> dict[str, Array]:
    """Return all arrays of floating-point numbers of a safetensors or .npz file, or of a state dict of PyTorch.

    No pickle is run.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"there is no file {path}", hint="name a .safetensors, .npz or .pt file")
    if path.suffix in PICKLES:
        return read_state_dict(path)
    if path.suffix == ".npz":
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except Exception as error:  # a damaged archive ends in nearly any of Python's errors
            fact = f"{path} cannot be read: {first_line(error)}"
            raise WeightsError(fact, hint="get it again, or write it with numpy.savez") from error
        return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}
    tensors = Tensors(read_header(path))
    return {name: tensors.read(name) for name, stored in tensors.stored.items() if stored.dtype in FLOATS}


def _entry(table: Names, arrays: Mapping[str, Any], ours: str) -> Foreign | None:
    """Return where one of our parameters comes from, None where the table does not say."""
    entry = table.get(ours, table.get(general_name(ours)))
    foreign = Foreign(entry) if isinstance(entry, str) else entry
    if foreign is None:
        return None
    name, twin = (numbered_name(name, ours) for name in (foreign.name, foreign.twin))
    return replace(foreign, name=twin if name not in arrays and twin in arrays else name)


def _check_names(
    specs: Mapping[str, Any],
    chosen: Mapping[str, Foreign],
    arrays: Mapping[str, Any],
    table: Names,
    ignored: Sequence[str],
) -> None:
    known = {*specs, *map(general_name, specs)}
    used = {foreign.name for foreign in chosen.values()}
    patterns = [re.compile(".*".join(map(re.escape, pattern.split("*")))) for pattern in ignored]
    left = sorted(n for n in arrays if n not in used and not any(pattern.fullmatch(n) for pattern in patterns))
    for ours in table:
        if ours not in known:
            fact = f"the table names {ours!r}, which this model does not have"
            raise WeightsError(fact, hint=did_you_mean(ours, known))
    if specs.keys() - chosen.keys():
        raise WeightsError(
            f"the table does not say where {some(sorted(specs.keys() - chosen.keys()))} come from",
            hint="add them; what the other model does not have, the config can leave out (attention_bias=False, …)",
        )
    for ours, foreign in chosen.items():
        if foreign.name not in arrays:
            fact = f"there is no array {foreign.name!r} for {ours}"
            raise WeightsError(fact, hint=did_you_mean(foreign.name, arrays))
    if left:
        hint = "add them to the table, or name them in ignored if nothing needs them"
        raise WeightsError(f"{some(left)} would be left over", hint=hint)


# --- state dicts of PyTorch ------------------------------------------------------------------------------------------

LARGEST_PICKLE = 1 << 25
NUMBERS_PER_BYTE = 4
DEEPEST = 64
_STORAGES = {
    "DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": "<u2", "LongStorage": "<i8",
    "IntStorage": "<i4", "ShortStorage": "<i2", "CharStorage": "<i1", "ByteStorage": "<u1", "BoolStorage": "|b1",
}  # fmt: skip
_INSTRUCTIONS = """
    PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BINUNICODE SHORT_BINUNICODE BININT BININT1 BININT2 LONG1 BINFLOAT
    SHORT_BINBYTES BINBYTES EMPTY_LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 BINPUT LONG_BINPUT MEMOIZE BINGET
    LONG_BINGET GLOBAL STACK_GLOBAL SETITEM SETITEMS APPEND APPENDS BINPERSID REDUCE
"""
_CODES = [getattr(pickle, name)[0] for name in _INSTRUCTIONS.split()]
_Machine: Any = pickle._Unpickler  # the one written in Python can be restricted


class _RefusalError(Exception):
    """A file holds more than a dict of tensors needs."""


class _Storage(NamedTuple):
    """The numbers of a tensor, before they are read."""

    type: str
    key: str = ""


class _Dict(dict[Any, Any]):
    """A dict whose keys are texts or numbers: to compare keys that hold others could take any time."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]] = ()) -> None:
        for key, value in pairs:
            self[key] = value

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, str | int | float):
            raise _RefusalError("a key of its dict is neither a text nor a number")
        super().__setitem__(key, value)


class _Dispatch(dict[int, Any]):
    def __missing__(self, code: int) -> Any:
        name = next(op.name for op in pickletools.opcodes if ord(op.code) == code)
        raise _RefusalError(f"it has the instruction {name}, which no dict of tensors needs")


def read_state_dict(path: str | Path) -> dict[str, Array]:
    """Return the tensors of floating-point numbers in a .pt file by their dotted names; others are left out."""
    path = Path(path)
    try:
        if not zipfile.is_zipfile(path):
            raise _RefusalError("it is no zip archive: it is damaged, or was written before PyTorch 1.6")
        with zipfile.ZipFile(path) as archive:
            return _StateDictReader(archive, path.stat().st_size).read()
    except _RefusalError as error:
        raise WeightsError(
            f"{path} is not opened: {error}",
            hint="if you trust it, convert it with PyTorch: "
            f'safetensors.torch.save_file(torch.load("{path.name}", weights_only=True), "{path.stem}.safetensors")',
        ) from None
    except Exception as error:  # a damaged archive or pickle ends in nearly any of Python's errors
        raise WeightsError(f"{path} cannot be read: {first_line(error)}", hint="get the file again") from error


class _StateDictReader(_Machine):
    """The stack machine for one file."""

    dispatch = _Dispatch({code: _Machine.dispatch[code] for code in _CODES})
    # What PyTorch notes about versions of modules is dropped.
    dispatch[pickle.BUILD[0]] = _Machine.load_pop
    dispatch[pickle.EMPTY_DICT[0]] = lambda self: self.append(_Dict())

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self.archive = archive
        self.bytes_left, self.numbers_left = size, NUMBERS_PER_BYTE * size
        self.stored: dict[str, Array] = {}
        programs = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
        if len(programs) != 1:
            raise _RefusalError("it holds no data.pkl, or several")
        self.home = programs[0].removesuffix("data.pkl")
        if self.home + "byteorder" in archive.namelist() and self._member("byteorder").strip() != b"little":
            raise _RefusalError("its numbers are stored in another byte order")
        self.program = self._member("data.pkl")
        if len(self.program) > LARGEST_PICKLE:
            raise _RefusalError(f"its data.pkl is larger than {LARGEST_PICKLE:,} bytes")
        super().__init__(io.BytesIO(self.program))

    def read(self) -> dict[str, Array]:
        """Run the program, and return the floating-point tensors of its dicts and lists by their dotted names."""
        content = self.load()
        if not isinstance(content, dict):
            raise _RefusalError(f"it holds a {type(content).__name__}, not a dict of tensors")
        tensors: dict[str, Array] = {}
        waiting: list[tuple[tuple[str, ...], Any]] = [((), content)]
        steps_left = len(self.program)
        while waiting:
            path, part = waiting.pop()
            if isinstance(part, np.ndarray) and part.dtype.kind == "f":
                tensors[".".join(path)] = part
            elif isinstance(part, dict | list | tuple):
                inner = part.items() if isinstance(part, dict) else enumerate(part)
                waiting += [((*path, str(key)), value) for key, value in inner][::-1]
                steps_left -= len(part)
            if steps_left < 0 or len(path) > DEEPEST:
                raise _RefusalError("its dicts hold each other, over and over")
        return tensors

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name of the program; nothing is looked up."""
        if module == "torch" and name in _STORAGES:
            return _Storage(name)
        known = {
            "collections.OrderedDict": _Dict,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
        }
        if f"{module}.{name}" not in known:
            raise _RefusalError(f"it asks to call {module}.{name}, which no dict of tensors needs")
        return known[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> _Storage:
        """Return which numbers a tensor is about."""
        _, storage, key, *_ = pid
        if not isinstance(storage, _Storage) or not isinstance(key, str | int):
            raise _RefusalError(f"its numbers are of the type {storage!r:.80}")
        return _Storage(storage.type, str(key))

    def _member(self, name: str) -> bytes:
        """Return one of the files in the archive."""
        entry = self.archive.getinfo(self.home + name)
        self.bytes_left -= entry.file_size
        if entry.compress_type != zipfile.ZIP_STORED or self.bytes_left < 0:
            raise _RefusalError(f"{entry.filename[:80]} is compressed, or overlaps with others")
        return self.archive.read(entry)

    def _tensor(self, numbers: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> Array:
        """Return a tensor over some numbers; refuse one that reaches beyond them."""
        if numbers.key not in self.stored:
            self.stored[numbers.key] = np.frombuffer(self._member(f"data/{numbers.key}"), _STORAGES[numbers.type])
        data, sizes = self.stored[numbers.key], (offset, *shape, *strides)
        if len(shape) > MOST_AXES or any(type(size) is not int or not 0 <= size < 1 << 48 for size in sizes):
            raise _RefusalError("a tensor has no sensible shape")
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        self.numbers_left -= math.prod(shape)
        if (0 not in shape and last >= len(data)) or self.numbers_left < 0:
            raise _RefusalError(f"a tensor of shape {shape} reaches beyond its {len(data):,} numbers, or repeats them")
        if 0 in shape:
            return np.zeros(shape, np.float32)
        inner = [stride * data.itemsize for stride in strides]
        array = np.lib.stride_tricks.as_strided(data[offset:], shape, inner, writeable=False).copy()
        # bfloat16 is the upper half of a float32.
        return (array.astype(np.uint32) << 16).view(np.float32) if numbers.type == "BFloat16Storage" else array
