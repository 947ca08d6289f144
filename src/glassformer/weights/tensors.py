"""Weights in safetensors files, one or many, mapped into memory instead of read.

    8 bytes: the length of the header · the header, JSON: name → type, shape, where the bytes lie · the bytes

A float32 model is used where it lies: the system loads the pages that are touched, and nothing is copied. Other types
are converted when an array is asked for. Nothing in a file is believed before it is checked. While it is in use it must
not be shortened or written to in place, which ends the process; replacing it by another file is safe.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..arrays import Array
from ..errors import WeightsError
from ..files import explained
from .fields import MOST_BYTES, parse_json, read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MOST_FILES = 1024
MOST_AXES = 8

_CODES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_FLOATS = {name: np.dtype(code) for name, code in _CODES.items()}


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies: its type, its shape, and its bytes from the start of the file."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def write_tensors(path: Path, arrays: dict[str, Array], metadata: dict[str, str]) -> None:
    """Write a safetensors file; what the system refuses is an OSError, as it is for all other files."""
    try:
        save_file(arrays, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error


class Tensors:
    """The tensors of one or many files by name."""

    def __init__(self, stored: dict[str, TensorEntry]) -> None:
        self.stored = stored
        self._maps: dict[Path, Array] = {}

    def read(self, name: str, dtype: Any = np.float32) -> Array:
        """Return one tensor: where it lies if it has the type that is asked for, else converted."""
        found = self.stored[name]
        if found.dtype not in _FLOATS:
            fact = f"the tensor {name} in {found.file} holds {found.dtype}, not numbers of a known floating-point type"
            raise WeightsError(fact, hint=f"use weights in {', '.join(_FLOATS)}")
        if found.file not in self._maps:
            self._maps[found.file] = _mapped(found.file)
        data = self._maps[found.file][found.start : found.stop].view(_FLOATS[found.dtype]).reshape(found.shape)
        if found.dtype == "BF16":
            # The upper half of a float32: shifted into place, nothing is rounded.
            data = (data.astype(np.uint32) << 16).view(np.float32)
        data = data.astype(dtype, copy=False)
        return data if data.flags.aligned else data.copy()


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
    """Say why a pickle file is not opened, and how to convert it."""
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
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        _damaged(index, "it has no weight_map from names to files")
    names = sorted(set(places.values()))
    if len(names) > MOST_FILES:
        _damaged(index, f"it names {len(names):,} files")
    headers = {name: read_header(_inside(folder, name)) for name in names}
    stored: dict[str, TensorEntry] = {}
    for tensor, name in places.items():
        if tensor not in headers[name]:
            fact = f"{index} says that {tensor[:80]} is in {name}, but it is not"
            raise WeightsError(fact, hint="get the index and all files again")
        stored[tensor] = headers[name][tensor]
    return stored


def _inside(folder: Path, name: str) -> Path:
    """Return the path of a file of the folder; refuse names and links that lead out of it."""
    index = folder / INDEX
    if not name or "\0" in name or Path(name).name != name or "\\" in name or name in (".", ".."):
        raise WeightsError(f"{index} points outside its folder: {name[:80]!r}", hint="do not use this model")
    path = folder / name
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


def _mapped(path: Path) -> Array:
    try:
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="r"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be mapped into memory: {error}", hint="check the file") from None


def _damaged(path: Path, reason: str) -> NoReturn:
    raise WeightsError(f"{path} is damaged: {reason}", hint="get the file again")
