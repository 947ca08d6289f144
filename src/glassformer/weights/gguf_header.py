"""The header of a GGUF file: what the model is, and where its tensors lie.

    magic "GGUF" · version · how many tensors · how many settings
    settings    key, type, value                              such as llama.block_count = 30
    tensors     name, sizes (the innermost first), type, offset
    padding up to the alignment, then the data

Nothing in the file is believed: every length is checked against what is left of the file before it is used, every
count against a limit, and the tensors must lie inside the file without touching each other. A damaged file is thus
refused before anything large is read or allocated.
"""

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import WeightsError
from ..files import explained

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32

# Far above what published files hold; they only keep a damaged count from filling the memory.
MOST_SETTINGS = 1 << 14
MOST_TENSORS = 1 << 16
MOST_STRINGS = 1 << 20
MOST_NUMBERS = 1 << 24
MOST_ARRAYS = 1 << 12
MOST_HEADER = 1 << 27
LONGEST_KEY = 1 << 16
DEEPEST = 3
DIMENSIONS = 4
LARGEST_ALIGNMENT = 1 << 16

TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
"""How numbers are stored: the name, and how many numbers make a block of how many bytes."""
_OTHER_TYPES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip

_NUMBERS = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_SCALARS = {code: np.dtype(name) for code, name in _NUMBERS.items()}
_STRING, _ARRAY, _BOOL = 8, 9, 7
_LENGTH = struct.Struct("<Q")


class TensorInfo(NamedTuple):
    """Where one tensor lies: its shape with the innermost axis last, and its bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type: str
    start: int
    size: int


@dataclass(frozen=True)
class Header:
    """What a GGUF file says about itself.

    settings    by key; numbers and strings as Python's, arrays of numbers as NumPy's, arrays of strings as lists
    tensors     by name
    """

    version: int
    settings: dict[str, Any]
    tensors: dict[str, TensorInfo]


def read_header(path: str | Path) -> Header:
    """Read the header of a GGUF file; none of the tensors' data is touched."""
    path = Path(path)
    with explained(path, WeightsError, "check the path", "read"), path.open("rb") as file:
        size = file.seek(0, 2)
        content: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    try:
        return parse_header(content)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error.fact}", hint=error.hint) from None


def parse_header(content: Any) -> Header:
    """Read the header of a GGUF file from its content: bytes, or a memory map."""
    reader = _ByteReader(content)
    if bytes(reader.take(4)) != MAGIC:
        raise WeightsError("this is no GGUF file: it does not begin with GGUF", hint="check which file it is")
    version = reader.number(4)
    if version not in VERSIONS:
        big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        what = "is stored in big-endian order" if big_endian else f"has version {version}"
        fact = f"the GGUF file {what}; versions 2 and 3 in little-endian order can be read"
        raise WeightsError(fact, hint="convert it with a current llama.cpp")
    tensors = reader.count(MOST_TENSORS, smallest=24, what="tensors")
    settings = reader.count(MOST_SETTINGS, smallest=13, what="settings")
    values = _read_settings(reader, settings)
    found = [_read_tensor(reader) for _ in range(tensors)]
    alignment = _alignment(values)
    start = -(-reader.place // alignment) * alignment
    return Header(version, values, _placed(found, start, alignment, reader.size))


class _ByteReader:
    """Bytes from front to back, never past their end."""

    def __init__(self, content: Any) -> None:
        self.content = memoryview(content)
        self.size = len(self.content)
        self.place = 0
        self.strings = self.numbers = self.arrays = 0

    def take(self, length: int) -> memoryview:
        end = self.place + length
        if end > self.size:
            self.ends(length)
        if end > MOST_HEADER:
            raise WeightsError(f"the header is larger than {MOST_HEADER:,} bytes", hint="the file is damaged")
        part = self.content[self.place : end]
        self.place = end
        return part

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "little")

    def count(self, most: int, *, smallest: int, what: str) -> int:
        """Read how many things follow, each of at least `smallest` bytes."""
        count = self.number(8)
        if count > most:
            raise WeightsError(f"the header claims {count:,} {what}; {most:,} are read at most", hint=_DAMAGED)
        if count * smallest > self.size - self.place:
            self.ends(count * smallest)
        return count

    def string(self, longest: int | None = None) -> str:
        (length,) = _LENGTH.unpack(self.take(8))
        if longest is not None and length > longest:
            raise WeightsError(f"a name is {length:,} bytes long; {longest:,} are read at most", hint=_DAMAGED)
        return _text(self.take(length))

    def value(self, code: int, depth: int = 0) -> Any:
        if code == _STRING:
            return self.string()
        if code == _ARRAY:
            return self.array(depth + 1)
        return self.scalars(code, 1)[0].item()

    def array(self, depth: int) -> Any:
        code = self.number(4)
        if code == _STRING:
            count = self.count(MOST_STRINGS - self.strings, smallest=8, what="strings")
            self.strings += count
            return self.string_array(count)
        if code == _ARRAY:
            if depth >= DEEPEST:
                raise WeightsError(f"arrays are nested more than {DEEPEST} deep", hint=_DAMAGED)
            count = self.count(MOST_ARRAYS - self.arrays, smallest=12, what="arrays")
            self.arrays += count
            return [self.array(depth + 1) for _ in range(count)]
        return self.scalars(code)

    def string_array(self, count: int) -> list[str]:
        """Read many short strings: what `string` does, without its calls, because vocabularies hold 100,000s."""
        content, place, limit, unpack = self.content, self.place, min(self.size, MOST_HEADER), _LENGTH.unpack_from
        found = []
        for _ in range(count):
            first = place + 8
            place = first + (unpack(content, place)[0] if first <= limit else limit)
            if place > limit:
                self.place = first
                self.take(place - first)
            found.append(_text(content[first:place]))
        self.place = place
        return found

    def scalars(self, code: int, count: int | None = None) -> Any:
        """Read `count` numbers or truth values; None: as many as the file says."""
        if code not in _SCALARS:
            raise WeightsError(f"a value has the unknown type {code}", hint=_DAMAGED)
        dtype = _SCALARS[code]
        if count is None:
            count = self.count(MOST_NUMBERS - self.numbers, smallest=dtype.itemsize, what="numbers")
            self.numbers += count
        part = self.take(count * dtype.itemsize)
        if code == _BOOL and count and max(part) > 1:
            raise WeightsError("a truth value is neither 0 nor 1", hint=_DAMAGED)
        return np.frombuffer(part, dtype)

    def ends(self, length: int) -> NoReturn:
        left = self.size - self.place
        fact = f"the file ends too soon: {length:,} bytes should follow byte {self.place:,}, but {left:,} do"
        raise WeightsError(fact, hint="it is damaged or was not downloaded completely: get it again")


_DAMAGED = "the file is damaged: get it again"


def _text(part: memoryview) -> str:
    try:
        return str(part, "utf-8")
    except UnicodeDecodeError:
        raise WeightsError(f"a name is not UTF-8: {bytes(part[:40])!r}", hint=_DAMAGED) from None


def _read_settings(reader: _ByteReader, count: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for _ in range(count):
        key = reader.string(LONGEST_KEY)
        if key in values:
            raise WeightsError(f"the setting {key!r:.80} is there twice", hint=_DAMAGED)
        values[key] = reader.value(reader.number(4))
    return values


def _read_tensor(reader: _ByteReader) -> TensorInfo:
    """Read where a tensor lies; `start` still counts from where the data begin."""
    name = reader.string(LONGEST_KEY)
    dimensions = reader.number(4)
    if not 1 <= dimensions <= DIMENSIONS:
        raise WeightsError(f"tensor {name!r:.80} has {dimensions} dimensions", hint=f"1 to {DIMENSIONS} can be read")
    shape = tuple(reader.number(8) for _ in range(dimensions))[::-1]
    code, start = reader.number(4), reader.number(8)
    if code not in TYPES:
        what = _OTHER_TYPES.get(code, code)
        known = ", ".join(entry[0] for entry in TYPES.values())
        raise WeightsError(f"tensor {name!r:.80} is stored as {what}, which is not supported", hint=f"known: {known}")
    type_name, numbers, bytes_ = TYPES[code]
    if min(shape) < 1 or shape[-1] % numbers:
        fact = f"tensor {name!r:.80} has shape {shape}, but {type_name} stores rows of blocks of {numbers}"
        raise WeightsError(fact, hint=_DAMAGED)
    return TensorInfo(name, shape, type_name, start, prod(shape) // numbers * bytes_)


def _alignment(values: dict[str, Any]) -> int:
    alignment = values.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    # Eight bytes at least, so that every type of number stands where the processor wants it.
    powers = {1 << bits for bits in range(3, LARGEST_ALIGNMENT.bit_length())}
    if type(alignment) is not int or alignment not in powers:
        fact = f"{ALIGNMENT} is {alignment!r:.80}"
        raise WeightsError(fact, hint=f"it must be a power of two from 8 to {LARGEST_ALIGNMENT}")
    return alignment


def _placed(found: list[TensorInfo], start: int, alignment: int, size: int) -> dict[str, TensorInfo]:
    """Return the tensors by name, with places in the file; refuse those outside it, and those that overlap."""
    tensors: dict[str, TensorInfo] = {}
    end, before = start, ""
    for tensor in sorted(found, key=lambda tensor: tensor.start):
        name, first = tensor.name, start + tensor.start
        if name in tensors:
            raise WeightsError(f"tensor {name!r:.80} is there twice", hint=_DAMAGED)
        if tensor.start % alignment:
            fact = f"tensor {name!r:.80} is at offset {tensor.start:,}, no multiple of {alignment}"
            raise WeightsError(fact, hint=_DAMAGED)
        if first < end:
            raise WeightsError(f"tensors {before!r:.80} and {name!r:.80} overlap", hint=_DAMAGED)
        end, before = first + tensor.size, name
        if end > size:
            fact = f"tensor {name!r:.80} ends at byte {end:,}, but the file has {size:,}"
            raise WeightsError(fact, hint="it is damaged or was not downloaded completely: get it again")
        tensors[name] = tensor._replace(start=first)
    return {tensor.name: tensors[tensor.name] for tensor in found}
