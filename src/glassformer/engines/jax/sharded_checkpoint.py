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
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...arrays import Tree
from ...cluster.collective import agreed, check_shared, meet, process, processes
from ...errors import CheckpointError, ConfigError, first_line
from ...files import flush, write_text
from ...mesh.stacking import stack_blocks, unstack_blocks
from ...training.checkpoint import LATEST, checkpoint_path, load_checkpoint, save_checkpoint
from ...training.state import COUNTERS, TrainingState
from ...tree import flatten, rebuilt, unflatten
from . import sharded_files as files
from .sharded_files import describe, known_step, list_sharded, newer_leftovers, sharded_path

KEEP = 2
"""So many complete checkpoints stay: should the last one be damaged, there is the one before."""


class ShardedCheckpoint(NamedTuple):
    state: Tree
    meta: dict[str, Any]
    ignored: list[Path]  # incomplete checkpoints that are newer


# --- writing ---------------------------------------------------------------------------------------------------------


def save_sharded(folder: str | Path, state: Tree, meta: Mapping[str, Any]) -> Path:
    """Write a state of JAX arrays; all processes must call this together. `meta["step"]` says which step it follows.

    When it returns, the checkpoint is complete; when it raises, those of other steps are as they were.
    """
    _libraries()
    path = sharded_path(folder, meta["step"])
    arrays = {name: leaf if hasattr(leaf, "shape") else np.asarray(leaf) for name, leaf in flatten(state).items()}
    with files.explained(path, sum(array.nbytes for array in arrays.values())):
        _make_room(path)
        meet(f"checkpoint: begin {path.name}")
        check_shared(path.parent)
        _write_arrays(path, arrays)
        check_shared(path)
        own = _share(files.files_of(path))
        for name in own:
            flush(path / name)  # Orbax leaves that to the system
        write_text(path / f"files.{process()}", json.dumps({name: files.checksum(path / name) for name in own}))
        meet(f"checkpoint: written {path.name}")
        if process() == 0:
            _commit(path, _content(state, meta))
            for step in [step for step in list_sharded(folder) if step < meta["step"]][: 1 - KEEP]:
                files.remove_sharded(sharded_path(folder, step))
        meet(f"checkpoint: complete {path.name}")
    return path


def _content(state: Tree, meta: Mapping[str, Any]) -> dict[str, Any]:
    leaves = ((name, leaf if hasattr(leaf, "shape") else np.asarray(leaf)) for name, leaf in flatten(state).items())
    return {"meta": dict(meta), "arrays": {name: [str(leaf.dtype), list(leaf.shape)] for name, leaf in leaves}}


def _make_room(path: Path) -> None:
    """Remove what lost runs left behind, and another checkpoint of the same step."""
    if process() == 0:
        for leftover in [*files.incomplete_sharded(path.parent.parent), path]:
            files.remove_sharded(leftover)
        path.parent.mkdir(parents=True, exist_ok=True)


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    _, orbax = _libraries()
    some = {name: array for name, array in arrays.items() if array.size}  # Orbax refuses arrays of nothing
    with contextlib.closing(orbax.Checkpointer(orbax.PyTreeCheckpointHandler())) as checkpointer:
        checkpointer.save(path.resolve(), args=orbax.args.PyTreeSave(some))


def _commit(path: Path, content: dict[str, Any]) -> None:
    """Make a checkpoint count."""
    known: dict[str, Any] = {}
    for part in path.glob("files.*"):
        known |= json.loads(part.read_text(encoding="utf-8"))
        part.unlink()
    # Shared storage may have shown the others not all of the files.
    known |= {name: files.checksum(path / name) for name in files.files_of(path) if name not in known}
    files.flush_folders(path)
    files.write_manifest(path, {**content, "files": known})


def _share(names: list[str]) -> list[str]:
    """Return this process's part of the work on all files."""
    return names[process() :: processes()]


# --- reading ---------------------------------------------------------------------------------------------------------


def load_sharded(folder: str | Path, target: Tree, *, step: int | None = None) -> ShardedCheckpoint:
    """Read the latest complete checkpoint, or that of `step`, onto the devices; all processes must call this together.

    `target` has the names, shapes and types of the state, and says with the `sharding` of each leaf where it goes:
    arrays, or `jax.ShapeDtypeStruct`s. The checkpoint may have been written by other processes on another mesh.
    """
    step = int(agreed(known_step(folder, step) if process() == 0 else None))
    path = sharded_path(folder, step)
    check_shared(path / files.MANIFEST)
    manifest = files.check_files(path, _share)
    wanted = flatten(target)
    _check_fits(path, manifest["arrays"], wanted)
    state = rebuilt(target, _read_arrays(path, wanted))
    return ShardedCheckpoint(state, manifest["meta"], newer_leftovers(folder, step))


def load_sharded_arrays(folder: str | Path, *, step: int | None = None) -> ShardedCheckpoint:
    """Read the latest complete checkpoint, or that of `step`, as NumPy arrays by dotted name, in this process alone."""
    step = known_step(folder, step)
    path = sharded_path(folder, step)
    manifest = files.check_files(path, lambda names: names)
    jax, _ = _libraries()
    wanted = {name: jax.ShapeDtypeStruct(shape, dtype) for name, (dtype, shape) in manifest["arrays"].items()}
    return ShardedCheckpoint(_read_arrays(path, wanted), manifest["meta"], newer_leftovers(folder, step))


def _read_arrays(path: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    jax, orbax = _libraries()
    targets, how, empty = {}, {}, {}
    for name, leaf in wanted.items():
        sharding = getattr(leaf, "sharding", None)
        if not math.prod(leaf.shape):
            empty[name] = np.zeros(leaf.shape, leaf.dtype)
            continue
        targets[name] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
        how[name] = (
            orbax.RestoreArgs(restore_type=np.ndarray)
            if sharding is None
            else orbax.ArrayRestoreArgs(sharding=sharding, global_shape=leaf.shape, dtype=leaf.dtype)
        )
    if not targets:
        return empty
    try:
        with contextlib.closing(orbax.Checkpointer(orbax.PyTreeCheckpointHandler())) as checkpointer:
            args = orbax.args.PyTreeRestore(item=targets, restore_args=how)
            return empty | dict(checkpointer.restore(path.resolve(), args=args))
    except Exception as error:  # of whichever library below found it
        raise files.damaged(path, f"it cannot be read ({first_line(error)})") from error


def _holds(path: Path, content: Mapping[str, Any]) -> bool:
    """Tell whether a complete checkpoint of just this content is there."""
    with contextlib.suppress(CheckpointError):
        manifest = describe(path)
        return all(manifest[name] == json.loads(json.dumps(part)) for name, part in content.items())
    return False


def _check_fits(path: Path, saved: Mapping[str, list[Any]], wanted: Mapping[str, Any]) -> None:
    expected = {name: [str(leaf.dtype), list(leaf.shape)] for name, leaf in wanted.items()}
    for name in [*saved, *expected]:
        have, want = (
            f"{part[name][0]} {tuple(part[name][1])}" if name in part else "missing" for part in (saved, expected)
        )
        if have != want:
            raise CheckpointError(
                f"{path} does not fit this run: {name} is {have}, the run has {want}",
                hint="resume with the model, the optimizer and the layout of blocks that wrote it",
            )


# --- a state of training ---------------------------------------------------------------------------------------------


def save_sharded_state(folder: str | Path, state: TrainingState) -> Path:
    """Write a state of training as it lies on the devices; that of a step which is there already is the same."""
    fields = state._asdict()
    meta = {name: fields.pop(name) for name in COUNTERS}
    path = sharded_path(folder, state.step)
    return path if agreed(_holds(path, _content(fields, meta))) else save_sharded(folder, fields, meta)


def load_sharded_state(folder: str | Path, like: TrainingState) -> tuple[TrainingState, list[Path]]:
    """Return the latest complete state, on the devices as `like` is, and the incomplete checkpoints after it."""
    fields = like._asdict()
    target = {name: tree for name, tree in fields.items() if name not in COUNTERS}
    loaded = load_sharded(folder, target)
    return TrainingState(**{**loaded.state, **{name: loaded.meta[name] for name in COUNTERS}}), loaded.ignored


# --- one file --------------------------------------------------------------------------------------------------------


def gather(folder: str | Path) -> Path | None:
    """Let the newest state of a run be in its one-file checkpoint `latest`, as all other commands read it.

    Return that file where it had to be written, None where it holds the newest state already.
    """
    newest = max(list_sharded(folder), default=-1)
    alone = checkpoint_path(folder, LATEST)
    if newest < 0 or (alone.is_file() and load_checkpoint(folder, LATEST).meta["step"] >= newest):
        return None
    return to_safetensors(folder)


def to_safetensors(folder: str | Path, *, step: int | None = None) -> Path:
    """Turn the latest sharded checkpoint of a run, or that of `step`, into its one-file checkpoint `latest`.

    One process reads all of it. Stacked blocks become a list again, as every other engine has them.
    """
    arrays, meta, _ = load_sharded_arrays(folder, step=step)
    return save_checkpoint(folder, LATEST, flatten(unstack_blocks(unflatten(arrays))), meta)


def from_safetensors(folder: str | Path, *, scan: bool = False) -> Path:
    """Turn the one-file checkpoint `latest` of a run into a sharded one, its blocks stacked where `scan` says so."""
    arrays, meta = load_checkpoint(folder, LATEST)
    tree = unflatten(arrays)
    return save_sharded(folder, stack_blocks(tree) if scan else tree, meta)


# --- libraries -------------------------------------------------------------------------------------------------------


def _libraries() -> tuple[Any, Any]:
    try:
        import jax
        import orbax.checkpoint as orbax
    except ImportError as error:
        raise ConfigError(
            "sharded checkpoints need JAX and Orbax", hint='install them: pip install "glassformer[jax]"'
        ) from error
    return jax, orbax
