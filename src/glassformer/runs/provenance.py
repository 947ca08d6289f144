"""What a run folder says about where the run began: engine, versions, cores, platform, and the data with its hash."""

import hashlib
import importlib.metadata
import inspect
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..data import TASKS
from ..data.corpus import CARRIED, TEXT_SUFFIXES, text_files
from ..data.examples import Dataset
from ..data.pair_files import PAIR_SUFFIXES
from ..data.tokens import is_token_file, sidecar
from ..files import sha256_of
from ..training.recipe import Recipe
from .machine import Machine, processor

PACKAGES = ("glassformer", "numpy", "numba", "jax")
"""Whose versions decide about the numbers; those of an engine that is not used are left out."""

_ONLY_OF = {"numba": "cpu", "jax": "jax"}


@dataclass(frozen=True)
class DataProvenance:
    """What a run read.

    source   a path, or the name of a text that Python carries
    sha256   of the file, as `sha256sum` prints it; of a folder, of its files' names and hashes; of a carried text, of
             its UTF-8; of a token file, of its tokens
    files    how many files there were
    bytes    how many bytes they have together
    """

    source: str
    sha256: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Provenance:
    """Where a run began, on what, and with what.

    started    the time, in UTC
    engine     who computes
    versions   of Python and the libraries that compute
    cores      that the process may use, and `blas` the threads of large matrix products
    platform   system and family of processors, and `processor` which of them
    preset     the preset that its model was taken from, if one was
    data       the data, where it is not drawn from the seed
    examples   how many there are to train on
    first      SHA-256 of the first batch
    changes    each time that it went on although something had changed: after which step, when, and what was what
    """

    started: str
    engine: str
    versions: dict[str, str]
    cores: int
    platform: str
    preset: str | None = None
    data: DataProvenance | None = None
    blas: int | None = None
    processor: str | None = None
    examples: int | None = None
    first: str | None = None
    changes: tuple[dict[str, Any], ...] = ()

    @classmethod
    def now(cls, engine: str, *, preset: str | None = None, data: DataProvenance | None = None) -> Self:
        """Describe this moment, process and machine."""
        machine = Machine.here()
        return cls(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            engine=engine,
            versions=versions(engine),
            cores=machine.cores,
            platform=f"{platform.system()} {platform.machine()}",
            preset=preset,
            data=data,
            blas=machine.blas,
            processor=processor(engine),
        )

    def reading(self, train: Dataset, recipe: Recipe) -> Self:
        """Return the same with what training reads, whether from a file or drawn from the seed."""
        batch = train.batch(0, recipe.batch, recipe.seed)
        digest = hashlib.sha256()
        for array in batch:
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return replace(self, examples=len(train), first=digest.hexdigest())

    @property
    def machine(self) -> Machine:
        """The cores it computes with."""
        return Machine(self.cores, self.blas)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Build what `to_dict` described; what a later version noted besides is left out."""
        known = {field.name: content[field.name] for field in fields(cls) if field.name in content}
        data = known.get("data")
        changes = tuple(known.get("changes", ()))
        return cls(**{**known, "data": None if data is None else DataProvenance(**data), "changes": changes})

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is known, ready for JSON."""
        known = {**asdict(self), "changes": list(self.changes) or None}
        return {name: value for name, value in known.items() if value is not None}


def versions(engine: str) -> dict[str, str]:
    """Return the versions of Python and of the libraries that an engine computes with."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        if _ONLY_OF.get(package, engine) == engine:
            with suppress(importlib.metadata.PackageNotFoundError):
                found[package] = importlib.metadata.version(package)
    return found


def data_provenance(task_name: str, data: str | None) -> DataProvenance | None:
    """Return what a task reads, with its hash; None where it draws its data from the seed."""
    if task_name not in TASKS or "data" not in inspect.signature(TASKS[task_name]).parameters:
        return None
    source = "pydoc" if data is None and task_name == "text" else data
    if source is None:
        return None
    path = Path(source)
    if source in CARRIED:
        content = CARRIED[source]().encode()
        return DataProvenance(source, hashlib.sha256(content).hexdigest(), 1, len(content))
    if is_token_file(path):
        about = json.loads(sidecar(path).read_text(encoding="utf-8"))
        return DataProvenance(source, about["sha256"], 1, path.stat().st_size)
    files = text_files(path, PAIR_SUFFIXES if task_name == "pairs" else TEXT_SUFFIXES)
    hashes = {file.relative_to(path).as_posix(): sha256_of(file) for file in files}
    return DataProvenance(source, _joined(hashes), len(files), sum(file.stat().st_size for file in files))


def _joined(hashes: Mapping[str, str]) -> str:
    """Return the hash of one file as it is, and of several the hash of the lines that `sha256sum` prints for them."""
    if list(hashes) == ["."]:
        return hashes["."]
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in hashes.items())
    return hashlib.sha256(lines.encode()).hexdigest()
