"""Checkpoints that survive a crash: one file, one rename, one checksum.

A checkpoint is a safetensors file. Everything that is not an array (step, settings, the state of random generators)
is JSON in the header of the same file, so there are no two files that could disagree. It replaces the previous one in
a single step (see `files.replacing`). A SHA-256 over all names, types, shapes, bytes and the JSON is kept in the header
and checked when loading, so damage that comes later, on the disk or in a copy, is noticed too. The same state is
always the same bytes: whether two runs came to the same end, a hash of their files tells.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from ..core.arrays import Array
from ..core.documents import RESTORE, damaged, digest
from ..core.errors import CheckpointError, ConfigError, DTypeError, GlassformerError
from ..core.files import disk_hint, refusal, replacing
from ..weights.tensors import TYPES, write_tensors

FORMAT = "glassformer-checkpoint"
VERSION = "1"
LATEST = "latest"
BEST = "best"

_ENDING = ".safetensors"


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
    try:
        text = json.dumps(dict(meta), sort_keys=True)
    except (TypeError, ValueError) as error:
        hint = "keep to numbers, strings, lists and dicts, and pass arrays as arrays"
        raise DTypeError(f"meta cannot be written as JSON: {error}", hint=hint) from None
    names = json.dumps(list(plain))  # the largest types go first in the file
    header = {"format": FORMAT, "version": VERSION, "meta": text, "names": names, "sha256": _digest(plain, text)}
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            write_tensors(partial, plain, header)
    except OSError as error:
        kept = "the previous one is unchanged" if path.is_file() else "there was none before"
        fact = f"could not write the checkpoint {path}: {refusal(error)}; {kept}"
        size = sum(array.nbytes for array in plain.values())
        raise CheckpointError(fact, hint=disk_hint(refusal(error), path.parent, size)) from error
    return path


def load_checkpoint(folder: str | Path, name: str = LATEST) -> Checkpoint:
    """Read the checkpoint `name` of a run folder; refuse one that is missing, damaged or of another version."""
    path = checkpoint_path(folder, name)
    if not path.is_file():
        raise _missing(path)
    try:
        with safe_open(path, framework="np") as file:
            header = file.metadata() or {}
            _check_header(path, header)
            stored = file.get_tensors()
    except CheckpointError:
        raise
    except PermissionError as error:
        hint = "ask its owner for the right to read it"
        raise CheckpointError(f"the checkpoint {path} cannot be read: {refusal(error)}", hint=hint) from error
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, f"it cannot be read ({error})") from error
    arrays: dict[str, np.ndarray] = {}
    with suppress(ValueError, KeyError, TypeError):  # names that cannot be read are left to the checksum
        arrays = {name: stored[name] for name in json.loads(header["names"])}
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
    if plain.dtype.name not in TYPES:
        raise DTypeError(
            f"the array {name} has type {plain.dtype}, which a checkpoint cannot hold",
            hint="convert it, or put it into meta if it is not numeric",
        )
    return plain.astype(plain.dtype.newbyteorder("<"), copy=False)


def _digest(arrays: Mapping[str, np.ndarray], meta: str) -> str:
    """Return the SHA-256 of everything a checkpoint says."""
    shapes = [(name, array.dtype.name, array.shape) for name, array in arrays.items()]
    return digest([meta, shapes], *arrays.values())


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


def _damaged(path: Path, reason: str) -> GlassformerError:
    others = [name for name in list_checkpoints(path.parent) if name + _ENDING != path.name]
    remedy = RESTORE
    if others == [BEST]:  # which has no state of the optimizer
        remedy += f"; {BEST} beside it can be used as a model, and trained anew from: --from {path.parent}"
    elif others:
        remedy += f", or use another one in this folder: {', '.join(others)}"
    return damaged(f"the checkpoint {path}", reason, remedy)
