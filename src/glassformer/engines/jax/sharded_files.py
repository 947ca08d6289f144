"""The files of sharded checkpoints: which there are, which are complete, and whether every byte is as it was."""

import contextlib
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, ConfigError
from ...files import disk_hint, flush_folder, refusal, write_text

SHARDED = "sharded"
MANIFEST = "whole.json"
FORMAT = "glassformer-sharded-checkpoint"
VERSION = 1


def list_sharded(folder: str | Path) -> list[int]:
    """Return the steps of the complete sharded checkpoints of a run folder, in order."""
    return sorted(int(path.name) for path in _folders(folder) if path.name.isdigit() and (path / MANIFEST).is_file())


def incomplete_sharded(folder: str | Path) -> list[Path]:
    """Return what lost runs left behind: checkpoints that were never finished."""
    return sorted(path for path in _folders(folder) if not (path.name.isdigit() and (path / MANIFEST).is_file()))


def remove_sharded(path: Path) -> None:
    """Remove a checkpoint as far as the system lets; from the first moment on, it no longer counts as complete."""
    with contextlib.suppress(OSError):
        (path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(path, ignore_errors=True)


def sharded_path(folder: str | Path, step: int) -> Path:
    """Return where the state after `step` is kept."""
    return Path(folder) / SHARDED / f"{step:08d}"


def _folders(folder: str | Path) -> Iterator[Path]:
    """Yield the folders that were made for checkpoints; whatever else lies there is someone else's."""
    root = Path(folder) / SHARDED
    for path in root.iterdir() if root.is_dir() else ():
        found = re.fullmatch(r"([0-9]{8,})(\.orbax-checkpoint-tmp.*)?", path.name)
        if found is not None and found[1] == f"{int(found[1]):08d}" and path.is_dir():
            yield path


def newer_leftovers(folder: str | Path, step: int) -> list[Path]:
    """Return incomplete checkpoints of later steps: what a run lost, beside the checkpoint it goes on from."""
    return [
        path for path in incomplete_sharded(folder) if (found := re.match(r"\d+", path.name)) and int(found[0]) > step
    ]


def known_step(folder: str | Path, step: int | None) -> int:
    """Return the latest step that has a complete checkpoint, or `step` if that one has."""
    steps = list_sharded(folder)
    if step is None and steps:
        return steps[-1]
    if step is not None and step in steps:
        return step
    what = "no complete sharded checkpoint" if step is None else f"no complete sharded checkpoint of step {step:,}"
    if steps:
        hint = "there are those of steps " + ", ".join(f"{known:,}" for known in steps)
    elif incomplete_sharded(folder):
        hint = "the run was lost while it wrote its first one; start it again"
    else:
        hint = "the run ended before its first one, or was not trained on several processes"
    raise CheckpointError(f"{folder} has {what}", hint=hint)


def write_manifest(path: Path, content: dict[str, Any]) -> None:
    """Say what a checkpoint holds, and that it is complete."""
    manifest = {"format": FORMAT, "version": VERSION, **content}
    write_text(path / MANIFEST, json.dumps({**manifest, "checksum": _json_checksum(manifest)}))


def flush_folders(path: Path) -> None:
    """Wait until the names of all files of a checkpoint are on the disk, and its own: before it counts."""
    for folder in [*(inside for inside in path.rglob("*") if inside.is_dir()), path, path.parent]:
        flush_folder(folder)


def _json_checksum(manifest: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def files_of(path: Path) -> list[str]:
    """Return the files of a checkpoint, in an order that all processes agree on."""
    found = (str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    return sorted(name for name in found if not name.startswith(("files.", MANIFEST)))


def checksum(path: Path) -> list[int]:
    """Return the size of a file and the CRC-32 of its bytes."""
    size = code = 0
    with path.open("rb") as file:
        while part := file.read(1 << 22):
            size, code = size + len(part), zlib.crc32(part, code)
    return [size, code]


def describe(path: Path) -> dict[str, Any]:
    """Return what a checkpoint says about itself."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        known, version = manifest["format"] == FORMAT, manifest["version"]
        complete = all(isinstance(manifest[part], dict) for part in ("meta", "arrays", "files"))
        stated = manifest.pop("checksum", None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(path, f"its {MANIFEST} cannot be read") from error
    if not known or not complete:
        raise damaged(path, f"its {MANIFEST} is not one")
    if version != VERSION:
        raise CheckpointError(
            f"{path} has version {version}, this program reads version {VERSION}",
            hint="use the version of Glassformer that wrote it",
        )
    if stated not in (None, _json_checksum(manifest)):
        raise damaged(path, f"the checksum of {MANIFEST} does not match its content")
    return manifest


def check_files(path: Path, share: Callable[[list[str]], list[str]]) -> dict[str, Any]:
    """Return what a checkpoint says about itself, after a look at every byte of a share of its files."""
    manifest = describe(path)
    missing = sorted(manifest["files"].keys() - set(files_of(path)))
    if missing:
        raise damaged(path, f"{missing[0]} is missing")
    for name in share(sorted(manifest["files"])):
        try:
            found = checksum(path / name)
        except OSError as error:
            raise damaged(path, f"{name} cannot be read ({error.strerror or error})") from error
        if found != manifest["files"][name]:
            raise damaged(path, f"the checksum of {name} does not match its content")
    return manifest


@contextlib.contextmanager
def explained(path: Path, size: int) -> Iterator[None]:
    """Say why a checkpoint could not be written, and what is left."""
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


def damaged(path: Path, reason: str) -> CheckpointError:
    """Return an error that names the checkpoint to go on from instead."""
    others = [step for step in list_sharded(path.parent.parent) if f"{step:08d}" != path.name]
    remedy = f"to go on from step {others[-1]:,}, remove {path}" if others else "restore it from a copy"
    return CheckpointError(f"the checkpoint {path} is damaged: {reason}", hint=remedy)
