"""Checkpoints written by many processes at once: each writes the parts of the arrays that its own devices hold.

    RUN/sharded/00000500/             the state after step 500, written by Orbax
    RUN/sharded/00000500/whole.json   meta, the names, types and shapes of all arrays, the checksums of all files

A checkpoint counts once it has its whole.json, which is written last and appears in one step; a folder without it is
what a lost run left behind, and is ignored. The last two that count are kept. The folder must be on storage that all
workers share. A checkpoint can be read onto any other number of devices, or be turned into a single file and back.
"""

import contextlib
import json
import math
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core import documents
from ...core.arrays import Tree
from ...core.errors import CheckpointError, ConfigError, first_line
from ...core.files import disk_hint, flush, flush_folder, refusal, write_text
from ...core.tree import flatten, rebuilt, unflatten
from ...training.checkpoint import LATEST, checkpoint_path, load_checkpoint, save_checkpoint
from ...training.trainer import COUNTERS, TrainingState
from ..cluster.collective import agreed, check_shared, meet, process, processes
from ..mesh.sharding import stack_blocks, unstack_blocks

SHARDED = "sharded"
MANIFEST = "whole.json"
FORMAT = "glassformer-sharded-checkpoint"
VERSION = 1
KEEP = 2  # complete checkpoints: should the last one be damaged, there is the one before


class ShardedCheckpoint(NamedTuple):
    state: Tree
    meta: dict[str, Any]
    ignored: list[Path]  # incomplete checkpoints that are newer


def list_sharded(folder: str | Path) -> list[int]:
    """Return the steps of the complete sharded checkpoints of a run folder, in order."""
    return sorted(int(path.name) for path in _folders(folder) if _is_complete(path))


def incomplete_sharded(folder: str | Path) -> list[Path]:
    """Return what lost runs left behind: checkpoints that were never finished."""
    return sorted(path for path in _folders(folder) if not _is_complete(path))


def remove_sharded(path: Path) -> None:
    """Remove a checkpoint as far as the system lets; from the first moment on, it no longer counts as complete."""
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def sharded_path(folder: str | Path, step: int) -> Path:
    return Path(folder) / SHARDED / f"{step:08d}"


def _folders(folder: str | Path) -> Iterator[Path]:
    """Yield the folders that were made for checkpoints; whatever else lies there is someone else's."""
    root = Path(folder) / SHARDED
    for path in root.iterdir() if root.is_dir() else ():
        match = re.fullmatch(r"([0-9]{8,})(\.orbax-checkpoint-tmp.*)?", path.name)
        if match is not None and match[1] == f"{int(match[1]):08d}" and path.is_dir():
            yield path


def _is_complete(path: Path) -> bool:
    return path.name.isdigit() and (path / MANIFEST).is_file()


def _newer_leftovers(folder: str | Path, step: int) -> list[Path]:
    """Return incomplete checkpoints of later steps: what a run lost, beside the checkpoint it goes on from."""
    return [path for path in incomplete_sharded(folder) if int(path.name.partition(".")[0]) > step]


def _known_step(folder: str | Path, step: int | None) -> int:
    """Return the latest step that has a complete checkpoint, or `step` if that one has."""
    steps = list_sharded(folder)
    if steps and step in (None, *steps):
        return steps[-1] if step is None else step
    hint = "the run ended before its first one, or was not trained on several processes"
    if steps:
        hint = "there are those of steps " + ", ".join(f"{known:,}" for known in steps)
    elif incomplete_sharded(folder):
        hint = "the run was lost while it wrote its first one; start it again"
    which = "" if step is None else f" of step {step:,}"
    raise CheckpointError(f"{folder} has no complete sharded checkpoint{which}", hint=hint)


def _remedy(path: Path) -> str:
    """Return the hint for a damaged checkpoint: the one to go on from instead."""
    others = [step for step in list_sharded(path.parent.parent) if f"{step:08d}" != path.name]
    return f"to go on from step {others[-1]:,}, remove {path}" if others else documents.RESTORE


# --- writing ---------------------------------------------------------------------------------------------------------


def save_sharded(folder: str | Path, state: Tree, meta: Mapping[str, Any]) -> Path:
    """Write a state of JAX arrays; all processes must call this. `meta["step"]` says which step it follows.

    When it returns, the checkpoint is complete; when it raises, those of other steps are as they were.
    """
    _libraries()
    path = sharded_path(folder, meta["step"])
    arrays = _arrays(state)
    with _explained(path, sum(array.nbytes for array in arrays.values())):
        if process() == 0:
            for leftover in [*incomplete_sharded(folder), path]:  # another checkpoint of the same step, too
                remove_sharded(leftover)
            path.parent.mkdir(parents=True, exist_ok=True)
        meet(f"checkpoint: begin {path.name}")
        check_shared(path.parent)
        with _checkpointer() as (orbax, checkpointer):
            some = {name: array for name, array in arrays.items() if array.size}  # Orbax refuses arrays of nothing
            checkpointer.save(path.resolve(), args=orbax.args.PyTreeSave(some))
        check_shared(path)
        names = _share(files_of(path))
        for name in names:
            flush(path / name)  # Orbax leaves that to the system
        write_text(path / f"files.{process()}", json.dumps({name: checksum(path / name) for name in names}))
        meet(f"checkpoint: written {path.name}")
        if process() == 0:
            _commit(path, _content(arrays, meta))
            for step in [step for step in list_sharded(folder) if step < meta["step"]][: 1 - KEEP]:
                remove_sharded(sharded_path(folder, step))
        meet(f"checkpoint: complete {path.name}")
    return path


def _arrays(state: Tree) -> dict[str, Any]:
    return {name: leaf if hasattr(leaf, "shape") else np.asarray(leaf) for name, leaf in flatten(state).items()}


def _content(arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    return {"meta": dict(meta), "arrays": _shapes(arrays)}


def _shapes(arrays: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: [str(x.dtype), list(x.shape)] for name, x in arrays.items()}


def _commit(path: Path, content: dict[str, Any]) -> None:
    known: dict[str, Any] = {}
    for part in path.glob("files.*"):
        known |= json.loads(part.read_text(encoding="utf-8"))
        part.unlink()
    # Shared storage may have shown the others not all of the files.
    known |= {name: checksum(path / name) for name in files_of(path) if name not in known}
    for folder in [*(inside for inside in path.rglob("*") if inside.is_dir()), path, path.parent]:
        flush_folder(folder)  # the names of all files are on the disk before the checkpoint counts
    manifest = {"format": FORMAT, "version": VERSION, **content, "files": known}
    documents.write_document(path / MANIFEST, manifest, field="checksum", checksum=documents.crc32(manifest))


def _share(names: list[str]) -> list[str]:
    """Return this process's part of the work on all files."""
    return names[process() :: processes()]


@contextlib.contextmanager
def _explained(path: Path, size: int) -> Iterator[None]:
    """Turn whatever keeps a checkpoint from being written into an error that says what is left."""
    try:
        yield
    except (CheckpointError, ConfigError):
        raise
    except Exception as error:  # of whichever library below found it
        steps = ", ".join(f"{step:,}" for step in list_sharded(path.parent.parent))
        kept = f"those of steps {steps} are unchanged" if steps else "there was none before"
        why = refusal(error)
        raise CheckpointError(
            f"could not write the checkpoint {path}: {why}; {kept}", hint=disk_hint(why, path.parent, size)
        ) from error


# --- reading ---------------------------------------------------------------------------------------------------------


def files_of(path: Path) -> list[str]:
    """Return the files of a checkpoint, in an order that all processes agree on."""
    names = (str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return sorted(name for name in names if not name.startswith(("files.", MANIFEST)))


def checksum(path: Path) -> list[int]:
    """Return the size of a file and the CRC-32 of its bytes."""
    size = code = 0
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            size, code = size + len(part), zlib.crc32(part, code)
    return [size, code]


def _describe(path: Path) -> dict[str, Any]:
    """Return what a checkpoint says about itself."""
    file, remedy = path / MANIFEST, _remedy(path)
    manifest = documents.read_json(file, remedy=remedy)
    documents.check_document(file, manifest, field="checksum", checksum=documents.crc32, remedy=remedy)
    parts = [manifest.get(part) for part in ("meta", "arrays", "files")]
    if manifest.get("format") != FORMAT or not all(isinstance(part, dict) for part in parts):
        raise documents.damaged(file, "it describes no checkpoint", remedy)
    if manifest.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {manifest.get('version')}, this program reads version {VERSION}",
            hint="use the version of Glassformer that wrote it",
        )
    return manifest


def check_files(path: Path, share: Callable[[list[str]], list[str]]) -> dict[str, Any]:
    """Return what a checkpoint says about itself, after a look at every byte of a share of its files."""
    manifest = _describe(path)
    missing = sorted(manifest["files"].keys() - set(files_of(path)))
    if missing:
        raise documents.damaged(path, f"{missing[0]} is missing", _remedy(path))
    for name in share(sorted(manifest["files"])):
        try:
            actual = checksum(path / name)
        except OSError as error:
            why = f"{name} cannot be read ({error.strerror or error})"
            raise documents.damaged(path, why, _remedy(path)) from error
        if actual != manifest["files"][name]:
            raise documents.damaged(path, f"the checksum of {name} does not match its content", _remedy(path))
    return manifest


def load_sharded(folder: str | Path, target: Tree, *, step: int | None = None) -> ShardedCheckpoint:
    """Read the latest complete checkpoint, or that of `step`, onto the devices; all processes must call this.

    `target` has the names, shapes and types of the state, and says with the `sharding` of each leaf where it goes:
    arrays, or `jax.ShapeDtypeStruct`s. The checkpoint may have been written by other processes on another mesh.
    """
    step = int(agreed(_known_step(folder, step) if process() == 0 else None))
    path = sharded_path(folder, step)
    check_shared(path / MANIFEST)
    manifest = check_files(path, _share)
    wanted = flatten(target)
    _check_fits(path, manifest["arrays"], wanted)
    state = rebuilt(target, _read_arrays(path, wanted))
    return ShardedCheckpoint(state, manifest["meta"], _newer_leftovers(folder, step))


def load_sharded_arrays(folder: str | Path, *, step: int | None = None) -> ShardedCheckpoint:
    """Read the latest complete checkpoint, or that of `step`, as NumPy arrays by dotted name, in this process alone."""
    step = _known_step(folder, step)
    path = sharded_path(folder, step)
    manifest = check_files(path, lambda names: names)
    jax, _ = _libraries()
    wanted = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (dtype, shape) in manifest["arrays"].items()}
    return ShardedCheckpoint(_read_arrays(path, wanted), manifest["meta"], _newer_leftovers(folder, step))


def _read_arrays(path: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    jax, orbax = _libraries()
    targets, how = {}, {}
    empty = {name: np.zeros(leaf.shape, leaf.dtype) for name, leaf in wanted.items() if not math.prod(leaf.shape)}
    for name, leaf in wanted.items():
        sharding = getattr(leaf, "sharding", None)
        if name not in empty:
            target = {"sharding": sharding, "global_shape": leaf.shape, "dtype": leaf.dtype}
            targets[name] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
            on_host = sharding is None
            how[name] = orbax.RestoreArgs(restore_type=np.ndarray) if on_host else orbax.ArrayRestoreArgs(**target)
    if not targets:
        return empty
    try:
        with _checkpointer() as (_, checkpointer):
            args = orbax.args.PyTreeRestore(item=targets, restore_args=how)
            return empty | dict(checkpointer.restore(path.resolve(), args=args))
    except Exception as error:  # of whichever library below found it
        raise documents.damaged(path, f"it cannot be read ({first_line(error)})", _remedy(path)) from error


def _check_fits(path: Path, saved: Mapping[str, list[Any]], wanted: Mapping[str, Any]) -> None:
    both = saved, _shapes(wanted)
    for name in [*saved, *wanted]:
        have, want = (f"{part[name][0]} {tuple(part[name][1])}" if name in part else "missing" for part in both)
        if have != want:
            raise CheckpointError(
                f"{path} does not fit this run: {name} is {have}, the run has {want}",
                hint="resume with the model, the optimizer and the layout of blocks that wrote it",
            )


def save_sharded_state(folder: str | Path, state: TrainingState) -> Path:
    """Write a state of training as it lies on the devices; that of a step which is there already is the same."""
    fields = state._asdict()
    meta = {name: fields.pop(name) for name in COUNTERS}
    path, content, is_there = sharded_path(folder, state.step), _content(_arrays(fields), meta), False
    with contextlib.suppress(CheckpointError):
        manifest = _describe(path)
        is_there = all(manifest[name] == documents.as_read(part) for name, part in content.items())
    return path if agreed(is_there) else save_sharded(folder, fields, meta)


def load_sharded_state(folder: str | Path, like: TrainingState) -> tuple[TrainingState, list[Path]]:
    """Return the latest complete state, on the devices as `like` is, and the incomplete checkpoints after it."""
    fields = like._asdict()
    target = {name: tree for name, tree in fields.items() if name not in COUNTERS}
    loaded = load_sharded(folder, target)
    return TrainingState(**{**loaded.state, **{name: loaded.meta[name] for name in COUNTERS}}), loaded.ignored


# --- one file --------------------------------------------------------------------------------------------------------


def gather(folder: str | Path) -> Path | None:
    """Write the newest state of a run into its one-file checkpoint `latest`; None if that file has it already."""
    newest = max(list_sharded(folder), default=-1)
    alone = checkpoint_path(folder, LATEST)
    if newest < 0 or (alone.is_file() and load_checkpoint(folder, LATEST).meta["step"] >= newest):
        return None
    return to_safetensors(folder)


def to_safetensors(folder: str | Path, *, step: int | None = None) -> Path:
    """Turn the latest sharded checkpoint, or that of `step`, into the one-file checkpoint `latest`, without stacks."""
    arrays, meta, _ = load_sharded_arrays(folder, step=step)
    return save_checkpoint(folder, LATEST, flatten(unstack_blocks(unflatten(arrays))), meta)


def from_safetensors(folder: str | Path, *, scan: bool = False) -> Path:
    """Turn the one-file checkpoint `latest` of a run into a sharded one, its blocks stacked where `scan` says so."""
    arrays, meta = load_checkpoint(folder, LATEST)
    tree = unflatten(arrays)
    return save_sharded(folder, stack_blocks(tree) if scan else tree, meta)


def _libraries() -> tuple[Any, Any]:
    try:
        import jax
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise ConfigError(
            "sharded checkpoints need JAX and Orbax", hint='install them: pip install "glassformer[jax]"'
        ) from error
    return jax, orbax


@contextlib.contextmanager
def _checkpointer() -> Iterator[tuple[Any, Any]]:
    """Give Orbax, and what it writes and reads with."""
    _, orbax = _libraries()
    with contextlib.closing(orbax.Checkpointer(orbax.PyTreeCheckpointHandler())) as checkpointer:
        yield orbax, checkpointer
