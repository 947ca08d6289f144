"""The GGUF file format: what the model is, and where its tensors lie.

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
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..core.arrays import Array
from ..core.errors import WeightsError
from ..core.files import explained
from .fields import naming
from .tensors import BLOCKS, FLOATS, TensorEntry

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32

# Far above what published files hold; they only keep a damaged count from filling the memory.
MOST_SETTINGS = 1 << 14
MOST_TENSORS = 1 << 16
MOST_STRINGS = 1 << 20
MOST_NUMBERS = 1 << 24
MOST_HEADER = 1 << 27
LONGEST_KEY = 1 << 16
DIMENSIONS = 4
LARGEST_ALIGNMENT = 1 << 16

TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
    13: "Q5_K", 14: "Q6_K", 30: "BF16",
}  # fmt: skip
_OTHER_TYPES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0",
    35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
_NUMBERS = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_LENGTH = struct.Struct("<Q")
_DAMAGED = "the file is damaged: get it again"


@dataclass(frozen=True)
class Header:
    """The header of a GGUF file.

    settings    by key; numbers and strings as Python's, arrays of numbers as NumPy's, arrays of strings as lists
    tensors     by name
    """

    settings: dict[str, Any]
    tensors: dict[str, TensorEntry]


def read_header(path: str | Path) -> Header:
    """Read the header of a GGUF file; none of the tensors' data is touched."""
    path = Path(path)
    with explained(path, WeightsError, "check the path", "read"), path.open("rb") as file:
        size = file.seek(0, 2)
        content: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    with naming(path):
        return parse_header(content, path)


def parse_header(content: Any, path: Path = Path()) -> Header:
    """Read the header of a GGUF file from its content: bytes, or a memory map."""
    reader = _ByteReader(content)
    if reader.take(4) != MAGIC:
        raise WeightsError("this is no GGUF file: it does not begin with GGUF", hint="check which file it is")
    version = reader.number(4)
    if version not in VERSIONS:
        big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        what = "is stored in big-endian order" if big_endian else f"has version {version}"
        fact = f"the GGUF file {what}; versions 2 and 3 in little-endian order can be read"
        raise WeightsError(fact, hint="convert it with a current llama.cpp")
    tensors = reader.count(MOST_TENSORS, smallest=24, what="tensors")
    values: dict[str, Any] = {}
    for _ in range(reader.count(MOST_SETTINGS, smallest=13, what="settings")):
        key = reader.string(LONGEST_KEY)
        if key in values:
            raise WeightsError(f"the setting {key!r:.80} is there twice", hint=_DAMAGED)
        values[key] = reader.value(reader.number(4))
    entries = [_read_tensor(reader, path) for _ in range(tensors)]
    alignment = values.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    # Eight bytes at least, so that every type of number stands where the processor wants it.
    if type(alignment) is not int or not 8 <= alignment <= LARGEST_ALIGNMENT or alignment & (alignment - 1):
        fact = f"{ALIGNMENT} is {alignment!r:.80}"
        raise WeightsError(fact, hint=f"it must be a power of two from 8 to {LARGEST_ALIGNMENT}")
    start = -(-reader.offset // alignment) * alignment
    return Header(values, _placed(entries, start, alignment, reader.size))


class _ByteReader:
    """Bytes from front to back, never past their end."""

    def __init__(self, content: Any) -> None:
        self.content = content  # a slice of a map is bytes, which are decoded sooner than a memoryview
        self.size = len(content)
        self.offset = 0
        self.strings_left = MOST_STRINGS

    def take(self, length: int) -> bytes:
        end = self.offset + length
        if end > self.size:
            self.ends(length)
        if end > MOST_HEADER:
            raise WeightsError(f"the header is larger than {MOST_HEADER:,} bytes", hint=_DAMAGED)
        part: bytes = self.content[self.offset : end]
        self.offset = end
        return part

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "little")

    def count(self, most: int, *, smallest: int, what: str) -> int:
        """Read how many things follow, each of at least `smallest` bytes."""
        count = self.number(8)
        if count > most:
            raise WeightsError(f"the header claims {count:,} {what}; {most:,} are read at most", hint=_DAMAGED)
        if count * smallest > self.size - self.offset:
            self.ends(count * smallest)
        return count

    def string(self, longest: int | None = None) -> str:
        (length,) = _LENGTH.unpack(self.take(8))
        if longest is not None and length > longest:
            raise WeightsError(f"a name is {length:,} bytes long; {longest:,} are read at most", hint=_DAMAGED)
        part = self.take(length)
        try:
            return part.decode()
        except UnicodeDecodeError:
            raise WeightsError(f"a name is not UTF-8: {part[:40]!r}", hint=_DAMAGED) from None

    def value(self, code: int) -> Any:
        """Read a string, a number, a truth value, or an array of them."""
        if code == _STRING:
            return self.string()
        if code != _ARRAY:
            return self.numbers(code, 1)[0].item()
        code = self.number(4)
        if code != _STRING:
            return self.numbers(code, None)
        count = self.count(self.strings_left, smallest=8, what="strings")
        self.strings_left -= count
        return self.strings(count)

    def strings(self, count: int) -> list[str]:
        """Read strings one behind the other, without a call for each: a tokenizer has a hundred thousand."""
        content, offset, end, texts = self.content, self.offset, min(self.size, MOST_HEADER), []
        length_at = _LENGTH.unpack_from
        with suppress(struct.error, UnicodeDecodeError):
            for _ in range(count):
                start = offset + 8
                stop = start + length_at(content, offset)[0]
                if stop > end:
                    break
                texts.append(content[start:stop].decode())
                offset = stop
        self.offset = offset
        return texts + [self.string() for _ in range(count - len(texts))]  # which refuses what is damaged

    def numbers(self, code: int, count: int | None) -> Any:
        """Read `count` numbers or truth values; None: as many as the file says."""
        if code not in _NUMBERS:
            raise WeightsError(f"a value has the unknown type {code}", hint=_DAMAGED)
        dtype = np.dtype(_NUMBERS[code])
        if count is None:
            count = self.count(MOST_NUMBERS, smallest=dtype.itemsize, what="numbers")
        part = self.take(count * dtype.itemsize)
        if code == _BOOL and count and max(part) > 1:
            raise WeightsError("a truth value is neither 0 nor 1", hint=_DAMAGED)
        return np.frombuffer(part, dtype)

    def ends(self, length: int) -> NoReturn:
        left = self.size - self.offset
        fact = f"the file ends too soon: {length:,} bytes should follow byte {self.offset:,}, but {left:,} do"
        raise WeightsError(fact, hint="it is damaged or was not downloaded completely: get it again")


def _read_tensor(reader: _ByteReader, path: Path) -> tuple[str, TensorEntry]:
    """Read the name of a tensor and where it lies, counted from where the data begin."""
    name = reader.string(LONGEST_KEY)
    dimensions = reader.number(4)
    if not 1 <= dimensions <= DIMENSIONS:
        raise WeightsError(f"tensor {name!r:.80} has {dimensions} dimensions", hint=f"1 to {DIMENSIONS} can be read")
    shape = tuple(reader.number(8) for _ in range(dimensions))[::-1]
    code, start = reader.number(4), reader.number(8)
    if code not in TYPES:
        fact = f"tensor {name!r:.80} is stored as {_OTHER_TYPES.get(code, code)}, which is not supported"
        raise WeightsError(fact, hint=f"known: {', '.join(TYPES.values())}")
    form = TYPES[code]
    numbers, size = BLOCKS[form] if form in BLOCKS else (1, np.dtype(FLOATS[form]).itemsize)
    if min(shape) < 1 or shape[-1] % numbers:
        fact = f"tensor {name!r:.80} has shape {shape}, but {form} stores rows of blocks of {numbers}"
        raise WeightsError(fact, hint=_DAMAGED)
    return name, TensorEntry(path, form, shape, start, start + prod(shape) // numbers * size)


def _placed(entries: list[tuple[str, TensorEntry]], first: int, alignment: int, size: int) -> dict[str, TensorEntry]:
    """Return the tensors by name, with offsets in the file; refuse those outside it, and those that overlap."""
    tensors: dict[str, TensorEntry] = {}
    end, before = first, ""
    for name, entry in sorted(entries, key=lambda pair: pair[1].start):
        if name in tensors:
            raise WeightsError(f"tensor {name!r:.80} is there twice", hint=_DAMAGED)
        if entry.start % alignment:
            fact = f"tensor {name!r:.80} is at offset {entry.start:,}, no multiple of {alignment}"
            raise WeightsError(fact, hint=_DAMAGED)
        if first + entry.start < end:
            raise WeightsError(f"tensors {before!r:.80} and {name!r:.80} overlap", hint=_DAMAGED)
        end, before = first + entry.stop, name
        if end > size:
            fact = f"tensor {name!r:.80} ends at byte {end:,}, but the file has {size:,}"
            raise WeightsError(fact, hint="it is damaged or was not downloaded completely: get it again")
        tensors[name] = TensorEntry(entry.file, entry.dtype, entry.shape, first + entry.start, end)
    return {name: tensors[name] for name, _ in entries}


# --- writing ---------------------------------------------------------------------------------------------------------


def write_gguf(path: Path, settings: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...], Array]]) -> None:
    """Write a file with settings by key and, by name, the type, shape and bytes of each tensor."""
    codes = {name: code for code, name in TYPES.items()}
    header = MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(settings))
    header += b"".join(_string(key) + _value(value) for key, value in settings.items())
    offset = 0
    for name, (form, shape, stored) in tensors.items():
        header += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], codes[form], offset)
        offset += stored.nbytes + _padding(stored.nbytes)
    with path.open("wb") as file:
        file.write(header + bytes(_padding(len(header))))
        for _, _, stored in tensors.values():
            stored.tofile(file)
            file.write(bytes(_padding(stored.nbytes)))


def _padding(size: int) -> int:
    return -size % DEFAULT_ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _value(value: Any) -> bytes:
    """Return the type and the bytes of a value; whole numbers are unsigned, but not in lists."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if not value or isinstance(value[0], str):  # llama.cpp insists on a list of merges, even an empty one
        code, content = _STRING, b"".join(map(_string, value))
    else:
        code = _FLOAT32 if isinstance(value[0], float) else _INT32
        content = np.asarray(value, _NUMBERS[code]).tobytes()
    return struct.pack("<IIQ", _ARRAY, code, len(value)) + content
