"""Checkpoints that survive a crash: one file, one rename, one checksum.

A checkpoint is a safetensors file. Everything that is not an array (step, settings, the state of random generators)
is JSON in the header of the same file, so there are no two files that could disagree. It replaces the previous one in
a single step (see `files.replacing`). A SHA-256 over all names, types, shapes, bytes and the JSON is kept in the header
and checked when loading, so damage that comes later, on the disk or in a copy, is noticed too. The same state is
always the same bytes: whether two runs came to the same end, a hash of their files tells.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from ..arrays import Array
from ..errors import CheckpointError, ConfigError, DTypeError
from ..files import disk_hint, refusal, replacing

FORMAT = "glassformer-checkpoint"
VERSION = "1"
LATEST = "latest"
BEST = "best"

_ENDING = ".safetensors"
_FLOATS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64"}
_TYPES = {
    **_FLOATS,
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper() or 'I'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""What safetensors calls the types of arrays."""


class Checkpoint(NamedTuple):
    arrays: dict[str, np.ndarray]  # by dotted name, in the order in which they were saved
    meta: dict[str, Any]  # as JSON returns it: tuples are lists, keys are strings


def checkpoint_path(folder: str | Path, name: str = LATEST) -> Path:
    """Return where the checkpoint `name` of a run folder is kept."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise ConfigError(f"{name!r} cannot name a checkpoint", hint="use letters, digits, - and _")
    return Path(folder) / (name + _ENDING)


def list_checkpoints(folder: str | Path) -> list[str]:
    """Return the names of the complete checkpoints in a run folder."""
    return sorted(path.name.removesuffix(_ENDING) for path in Path(folder).glob("*" + _ENDING))


def save_checkpoint(
    folder: str | Path, name: str, arrays: Mapping[str, Array], meta: Mapping[str, Any], *, make_folder: bool = True
) -> Path:
    """Write arrays by dotted name, and `meta`, as the checkpoint `name`, in place of the previous one.

    When it returns, the checkpoint is on the disk. When it raises, the previous one is as it was. A folder that is not
    there is made, or refused without `make_folder`: it may have been moved away just now.
    """
    path = checkpoint_path(folder, name)
    plain = {key: _plain(key, array) for key, array in arrays.items()}
    text = _as_json(meta)
    names = json.dumps(list(plain))  # the largest types go first in the file
    header = {"format": FORMAT, "version": VERSION, "meta": text, "names": names, "sha256": _digest(plain, text)}
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            save_file(plain, partial, metadata=header)
    except OSError as error:
        raise _not_written(path, error, sum(array.nbytes for array in plain.values())) from error
    return path


def save_file(arrays: Mapping[str, np.ndarray], path: Path, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, array by array, its bytes a function of what it holds.

    The library's own writer copies all arrays first, and puts the metadata into another order in each process.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    # In the library's order, in which every array begins where its type may.
    ordered = dict(sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])))
    end = 0
    for name, array in ordered.items():
        start, end = end, end + array.nbytes
        code = _TYPES[array.dtype.name]
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in ordered.values():
            file.write(array.reshape(-1).view(np.uint8).data)


def load_checkpoint(folder: str | Path, name: str = LATEST) -> Checkpoint:
    """Read the checkpoint `name` of a run folder; refuse one that is missing, damaged or of another version."""
    path = checkpoint_path(folder, name)
    if not path.is_file():
        raise _missing(path)
    try:
        with safe_open(path, framework="np") as file:
            header = file.metadata() or {}
            _check_header(path, header)
            arrays = file.get_tensors()
    except (CheckpointError, PermissionError) as error:
        if isinstance(error, CheckpointError):
            raise
        hint = "ask its owner for the right to read it"
        raise CheckpointError(f"the checkpoint {path} cannot be read: {refusal(error)}", hint=hint) from error
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, f"it cannot be read ({error})") from error
    arrays = _ordered(arrays, header["names"])
    if _digest(arrays, header["meta"]) != header["sha256"]:
        raise _damaged(path, "its checksum does not match its content")
    return Checkpoint(arrays, json.loads(header["meta"]))


def read_meta(folder: str | Path, name: str = LATEST) -> dict[str, Any]:
    """Return what a checkpoint says beside its arrays, without a look at these; nothing where it cannot be read."""
    try:
        with safe_open(checkpoint_path(folder, name), framework="np") as file:
            return dict(json.loads((file.metadata() or {})["meta"]))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return {}


def _plain(name: str, array: Array) -> np.ndarray:
    """Return any array as a NumPy array in one piece, which is what the writer takes its bytes from."""
    plain = np.asarray(array, order="C")
    if plain.dtype.name not in _TYPES:
        raise DTypeError(
            f"the array {name} has type {plain.dtype}, which a checkpoint cannot hold",
            hint="convert it, or put it into meta if it is not numeric",
        )
    return plain.astype(plain.dtype.newbyteorder("<"), copy=False)


def _as_json(meta: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(meta), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise DTypeError(
            f"meta cannot be written as JSON: {error}",
            hint="keep to numbers, strings, lists and dicts, and pass arrays as arrays",
        ) from None


def _digest(arrays: Mapping[str, np.ndarray], meta: str) -> str:
    """Return the SHA-256 of everything a checkpoint says."""
    shapes = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    digest = hashlib.sha256(json.dumps([meta, shapes]).encode())
    for array in arrays.values():
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _ordered(arrays: dict[str, np.ndarray], names: str) -> dict[str, np.ndarray]:
    """Put the arrays into the order in which they were saved; unreadable names are left to the checksum."""
    try:
        return {name: arrays[name] for name in json.loads(names)}
    except (ValueError, KeyError, TypeError):
        return {}


def _check_header(path: Path, header: Mapping[str, str]) -> None:
    if header.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is not a Glassformer checkpoint",
            hint="it holds tensors only; load it as weights, or name a run folder",
        )
    if header.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {header.get('version')}, this program reads version {VERSION}",
            hint="use the version of Glassformer that wrote it",
        )
    if not {"meta", "names", "sha256"} <= header.keys():
        raise _damaged(path, "its header is incomplete")


def _missing(path: Path) -> CheckpointError:
    others = list_checkpoints(path.parent)
    if others:
        return CheckpointError(f"there is no checkpoint {path}", hint="this folder has: " + ", ".join(others))
    if path.parent.is_dir():
        return CheckpointError(
            f"there is no checkpoint in {path.parent}", hint="the run ended before its first one; start it again"
        )
    return CheckpointError(f"there is no run folder {path.parent}", hint="check the path")


def _damaged(path: Path, reason: str) -> CheckpointError:
    others = [name for name in list_checkpoints(path.parent) if name + _ENDING != path.name]
    remedy = "restore it from a copy"
    if others == [BEST]:  # which has no state of the optimizer
        remedy += f"; {BEST} beside it can be used as a model, and trained anew from: --from {path.parent}"
    elif others:
        remedy += f", or use another one in this folder: {', '.join(others)}"
    return CheckpointError(f"the checkpoint {path} is damaged: {reason}", hint=remedy)


def _not_written(path: Path, error: Exception, size: int) -> CheckpointError:
    """Explain why a checkpoint could not be written, and that nothing was lost."""
    kept = "the previous one is unchanged" if path.is_file() else "there was none before"
    why = refusal(error)
    return CheckpointError(
        f"could not write the checkpoint {path}: {why}; {kept}", hint=disk_hint(why, path.parent, size)
    )
