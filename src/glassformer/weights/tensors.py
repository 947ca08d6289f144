"""Tensors in safetensors and other files, one or many, mapped into memory instead of read.

    8 bytes: the length of the header · the header, JSON: name → type, shape, where the bytes lie · the bytes

A float32 model is used where it lies: the system loads the pages that are touched, and nothing is copied. Other types
are converted when an array is asked for. Nothing in a file is believed before it is checked. While it is in use it must
not be shortened or written to in place, which ends the process; replacing it by another file is safe.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open

from ..core.arrays import Array
from ..core.errors import WeightsError
from ..core.files import explained
from ..core.quantized import FORMS, Quantized, read_rows
from .fields import MOST_BYTES, inside, parse_json, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MOST_FILES = 1024
MOST_AXES = 8

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64", "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper() or 'I'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""The names of the types of arrays in safetensors."""
BLOCKS = {
    "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24), "Q8_0": (32, 34), "Q2_K": (256, 84),
    "Q3_K": (256, 110), "Q4_K": (256, 144), "Q5_K": (256, 176), "Q6_K": (256, 210),
}  # fmt: skip
"""The numbers and the bytes of a block."""


@dataclass(frozen=True)
class TensorEntry:
    """The type of one tensor, its shape, and the range of its bytes in a file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def write_tensors(path: Path, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, array by array, its bytes a function of what it holds.

    The library's own writer copies all arrays first, and puts the metadata into another order in each process.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    # In the library's order, in which every array begins where its type may.
    ordered = dict(sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])))
    end = 0
    for name, array in ordered.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in ordered.values():
            file.write(array.reshape(-1).view(np.uint8).data)


@dataclass(frozen=True)
class Tensors:
    """The tensors of one or many files by name.

    kept    the types of matrices that are to stay in the blocks of their file (see `quantized.FORMS`)
    """

    stored: dict[str, TensorEntry]
    kept: Collection[str] = ()
    _maps: dict[Path, Array] = field(default_factory=dict)
    _dequantized: dict[tuple[str, Any], Array] = field(default_factory=dict)

    def read(self, name: str, dtype: Any = np.float32) -> Array:
        """Return one tensor: where it lies if it has the type that is asked for, else converted."""
        entry = self.stored[name]
        if entry.dtype in BLOCKS:
            if (name, dtype) not in self._dequantized:  # the last one is kept, for the other parts of a fused matrix
                self._dequantized.clear()
                numbers = dequantize(self._bytes(name), entry.shape, entry.dtype)
                self._dequantized[name, dtype] = numbers.astype(dtype, copy=False)
            return self._dequantized[name, dtype]
        if entry.dtype not in FLOATS:
            fact = f"the tensor {name} in {entry.file} holds {entry.dtype}, not numbers of a known floating-point type"
            raise WeightsError(fact, hint=f"use weights in {', '.join(FLOATS)}")
        data = self._bytes(name).view(FLOATS[entry.dtype]).reshape(entry.shape)
        if entry.dtype == "BF16":
            # The upper half of a float32: shifted into place, nothing is rounded.
            data = (data.astype(np.uint32) << 16).view(np.float32)
        data = data.astype(dtype, copy=False)
        return data if data.flags.aligned else data.copy()

    def keeps_blocks(self, name: str) -> bool:
        """Return whether a matrix stays in its blocks; float16 numbers must be finite for products with them."""
        form = self.stored[name].dtype
        return form in self.kept and (form != "F16" or bool(np.isfinite(self._bytes(name).view(np.float16)).all()))

    def read_blocks(self, name: str, part: tuple[int, int] | None = None) -> Quantized:
        """Return a matrix, or the i-th of n equal parts of its rows, in the blocks in which it is stored."""
        entry = self.stored[name]
        rows, columns = entry.shape
        stored = self._bytes(name).reshape(rows, -1)
        return Quantized.of_rows(entry.dtype, stored if part is None else np.split(stored, part[1])[part[0]], columns)

    def _bytes(self, name: str) -> Array:
        entry = self.stored[name]
        if entry.file not in self._maps:
            with explained(entry.file, WeightsError, "check the file", "mapped into memory"):
                self._maps[entry.file] = np.asarray(np.memmap(entry.file, dtype=np.uint8, mode="r"))
        return self._maps[entry.file][entry.start : entry.stop]


def open_tensors(folder: Path) -> Tensors:
    """Find the safetensors files of a folder and read their headers."""
    if (folder / INDEX).is_file():
        return Tensors(_indexed(folder))
    if (folder / SINGLE).is_file():
        return Tensors(read_header(folder / SINGLE))
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        refuse_pickle(folder / pickles[0])
    raise WeightsError(f"{folder} holds no weights: there is no {SINGLE}", hint=f"get {SINGLE} or {INDEX} as well")


def refuse_pickle(path: Path) -> NoReturn:
    """Refuse a pickle file; the hint converts it."""
    raise WeightsError(
        f"{path} is a pickle file: opening one can run any program that its author put into it",
        hint="convert it where you trust it, with the transformers library: "
        'AutoModel.from_pretrained("FOLDER").save_pretrained("NEW", safe_serialization=True)',
    )


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Return what one file holds; none of the tensors' bytes are read."""
    with explained(path, WeightsError, "check the path", "read"), path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(MOST_BYTES, size - 8):
            _damaged(path, f"its header would be {length:,} of {size:,} bytes, at most {MOST_BYTES:,} are allowed")
        content = file.read(length)
    try:
        # The format's own library checks that every tensor has its bytes, and that all fill the file without gaps.
        with safe_open(path, framework="np"):
            pass
    except (SafetensorError, OSError, ValueError) as error:
        _damaged(path, str(error))
    header = parse_json(content, f"the header of {path}")
    header.pop("__metadata__", None)
    stored = {}
    for name, entry in header.items():
        if len(entry["shape"]) > MOST_AXES:
            _damaged(path, f"the tensor {name[:80]!r} has {len(entry['shape'])} axes")
        start, stop = (8 + length + offset for offset in entry["data_offsets"])
        stored[name] = TensorEntry(path, entry["dtype"], tuple(entry["shape"]), start, stop)
    return stored


def _indexed(folder: Path) -> dict[str, TensorEntry]:
    """Return the tensors of all files that an index names."""
    index = folder / INDEX
    file_of = read_json(index).get("weight_map")
    if not isinstance(file_of, dict) or not all(isinstance(name, str) for name in file_of.values()):
        _damaged(index, "it has no weight_map from names to files")
    names = sorted(set(file_of.values()))
    if len(names) > MOST_FILES:
        _damaged(index, f"it names {len(names):,} files")
    headers = {name: read_header(_shard(folder, name)) for name in names}
    stored: dict[str, TensorEntry] = {}
    for tensor, name in file_of.items():
        if tensor not in headers[name]:
            fact = f"{index} says that {tensor[:80]} is in {name}, but it is not"
            raise WeightsError(fact, hint="get the index and all files again")
        stored[tensor] = headers[name][tensor]
    return stored


def _shard(folder: Path, name: str) -> Path:
    """Return the path of a file that the index names; refuse names and links that lead out of its folder."""
    index = folder / INDEX
    path = inside(folder, name, index)
    if path.suffix in PICKLES:
        refuse_pickle(path)
    if not path.is_file():
        raise WeightsError(f"{index} names {name[:80]}, which is not there", hint="get all files of the model")
    # In the cache of the hub, a snapshot consists of links to files kept beside it.
    home = folder.resolve()
    allowed = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    if path.resolve().parent not in allowed:
        fact = f"{index} names {name[:80]}, a link that leads outside its folder to {path.resolve()}"
        raise WeightsError(fact, hint="put the file itself into the folder")
    return path


def _damaged(path: Path, reason: str) -> NoReturn:
    raise WeightsError(f"{path} is damaged: {reason}", hint="get the file again")


# --- numbers out of the blocks of a GGUF file -------------------------------------------------------------------------

# A block of 256 numbers (Q2_K … Q6_K) holds one or two float16 scales, a small scale for every 16 or 32 numbers, and
# the bits of the numbers q. `core.quantized` reads the blocks of 32 that are also multiplied as they are stored.
#
#     Q5_0         x = d (q − 16)                  Q5_1    x = d q + m
#     Q2_K         x = (d s) q − (m t)             s and t of 4 bits for every 16 numbers
#     Q4_K, Q5_K   x = (d s) q − (m t)             s and t of 6 bits for every 32 numbers
#     Q3_K, Q6_K   x = (d s) (q − 4), (q − 32)     s of 6 or 8 bits for every 16 numbers
_PART = 4096  # rows at a time, because unpacking takes several times their memory


def dequantize(raw: Array, shape: tuple[int, ...], form: str) -> Array:
    """Return the numbers of a tensor: float32, from its bytes (N,)."""
    numbers, columns = np.empty(shape, np.float32).reshape(-1, shape[-1]), shape[-1]
    rows = raw.reshape(len(numbers), -1)
    # Damaged numbers may be infinite; NumPy need not warn about them.
    with np.errstate(all="ignore"):
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            if form in FORMS:
                numbers[start : start + _PART] = read_rows(form, part, columns)
            else:
                blocks = part.reshape(-1, BLOCKS[form][1])
                numbers[start : start + _PART] = _UNPACKED[form](blocks).reshape(len(part), columns)
    return numbers.reshape(shape)


def _spread(stored: Array, bits: int, run: int) -> Array:
    """Cut bytes (N, n) into numbers of `bits` bits: of every run, the lowest bits of all bytes first, then the next."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return (stored.reshape(len(stored), -1, 1, run) >> shifts & np.uint8((1 << bits) - 1)).reshape(len(stored), -1)


def _float16(stored: Array) -> Array:
    return np.ascontiguousarray(stored).view(np.float16).astype(np.float32)


def _scaled(d: Array, scales: Array, q: Array) -> Array:
    """Return (d s) q, each scale for an equal share of a block's numbers."""
    return ((d * scales)[..., None] * q.reshape(*scales.shape, -1)).reshape(len(q), -1)


def _q5_0(b: Array) -> Array:
    q = _spread(b[:, 6:], 4, 16) | np.unpackbits(b[:, 2:6], axis=-1, bitorder="little") << 4
    return _float16(b[:, :2]) * (q.astype(np.int8) - np.int8(16))


def _q5_1(b: Array) -> Array:
    q = _spread(b[:, 8:], 4, 16) | np.unpackbits(b[:, 4:8], axis=-1, bitorder="little") << 4
    return _float16(b[:, :2]) * q + _float16(b[:, 2:4])


def _q2_k(b: Array) -> Array:
    scales, q = b[:, :16], _spread(b[:, 16:80], 2, 32)
    least = _scaled(_float16(b[:, 82:]), scales >> 4, np.ones_like(q))
    return _scaled(_float16(b[:, 80:82]), scales & 15, q) - least


def _q3_k(b: Array) -> Array:
    q = _spread(b[:, 32:96], 2, 32) | _spread(b[:, :32], 1, 32) << 2
    scales = _spread(b[:, 96:104], 4, 8) | _spread(b[:, 104:108], 2, 4) << 4
    return _scaled(_float16(b[:, 108:]), scales.astype(np.int8) - np.int8(32), q.astype(np.int8) - np.int8(4))


def _with_least(b: Array, q: Array) -> Array:
    """Return (d s) q − (m t): s and t are four times 6 bits, then four times 4 bits and 2 bits of those before."""
    s, t, high = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scales = np.concatenate((s & 63, (high & 15) | (s >> 2 & 48)), axis=-1)
    least = np.concatenate((t & 63, (high >> 4) | (t >> 2 & 48)), axis=-1)
    return _scaled(_float16(b[:, :2]), scales, q) - _scaled(_float16(b[:, 2:4]), least, np.ones_like(q))


def _q6_k(b: Array) -> Array:
    q = _spread(b[:, :128], 4, 64) | _spread(b[:, 128:192], 2, 32) << 4
    return _scaled(_float16(b[:, 208:]), b[:, 192:208].view(np.int8), q.astype(np.int8) - np.int8(32))


_UNPACKED = {
    "Q5_0": _q5_0, "Q5_1": _q5_1, "Q2_K": _q2_k, "Q3_K": _q3_k, "Q6_K": _q6_k,
    "Q4_K": lambda b: _with_least(b, _spread(b[:, 16:], 4, 32)),
    "Q5_K": lambda b: _with_least(b, _spread(b[:, 48:], 4, 32) | _spread(b[:, 16:48], 1, 32) << 4),
}  # fmt: skip
