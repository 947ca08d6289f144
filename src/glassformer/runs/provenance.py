"""Where a run began: engine, versions, cores, platform, the data with its hash, and the model it started from.

Sums are cut into parts by the number of cores, which decides the order of additions. A run therefore keeps the number
that it began with: fewer cores take turns, and of more, some are idle.
"""

import contextlib
import inspect
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..core.arrays import Tree
from ..core.documents import digest, read_json
from ..core.files import sha256_of
from ..core.settings import check_range, check_types
from ..core.threads import blas, computing_with, cores
from ..core.tree import named_leaves
from ..data import TASKS, Lexicon
from ..data.corpus import CARRIED, check_path, copied_once, is_token_file, sidecar, text_files
from ..data.examples import Dataset
from ..data.pairs import PAIR_SUFFIXES
from ..data.tables import table_files
from ..text import tokenizer_from_dict
from ..training.recipe import Recipe
from ..training.trainable import LoRA
from ..weights.loaded_model import LoadedModel
from ..weights.stores import split_adapter

_ONLY_OF = {"numba": "cpu", "jax": "jax"}
"""Libraries that one engine alone computes with."""


@dataclass(frozen=True)
class DataProvenance:
    """The data that a run read.

    source   a path, or the name of a text that Python carries
    sha256   of the file, as `sha256sum` prints it; of a folder, of its files' names and hashes; of a carried text, of
             its UTF-8; of a token file, of its tokens
    """

    source: str
    sha256: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Provenance:
    """Where a run began, on what, and with what.

    started    the time, in UTC
    versions   of Python and the libraries that compute
    cores      that compiled kernels share their work among, and `blas` the threads of large matrix products
    products   the library that multiplies matrices on a CPU, with its version
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
    blas: int | None
    products: str | None
    platform: str
    processor: str | None
    examples: int
    first: str
    preset: str | None = None
    data: DataProvenance | None = None
    changes: tuple[dict[str, Any], ...] = ()

    @classmethod
    def now(cls, engine: str, train: Dataset, recipe: Recipe, preset: str | None = None) -> Self:
        """Describe this moment, process and machine, and what training reads."""
        first = train.batch(0, recipe.batch, recipe.seed)
        return cls(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            engine=engine,
            versions=versions(engine),
            cores=cores(),
            blas=blas().get("num_threads"),
            products=products(engine),
            platform=system(),
            processor=processor(engine),
            examples=len(train),
            first=digest(*(np.asarray(array) for array in first if array is not None)),
            preset=preset,
        )

    def computing(self) -> Callable[[], Any]:
        """Return the context in which this process computes with the cores and BLAS threads that the run began with."""
        same = self.cores == cores() and self.blas in (None, blas().get("num_threads"))
        return contextlib.nullcontext if same else partial(computing_with, self.cores, self.blas)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Build what `to_dict` described."""
        data = DataProvenance(**content["data"]) if "data" in content else None
        blanks = {"blas": None, "products": None, "processor": None}
        made = cls(**{**blanks, **content, "data": data, "changes": tuple(content.get("changes", ()))})
        check_types(made, " of the record")
        if data is not None:
            check_types(data, " of the record")
        check_range(made, "cores", "blas", least=1, of=" of the record")
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is known, ready for JSON."""
        known = {**asdict(self), "changes": list(self.changes) or None}
        return {name: value for name, value in known.items() if value is not None}


def system() -> str:
    """Return the system and the family of processors that this process runs on."""
    return f"{platform.system()} {platform.machine()}"


def processor(engine: str) -> str | None:
    """Return which processor computes: the device of JAX, or the core as NumPy's BLAS calls it, if it does."""
    if engine != "jax":
        return blas().get("architecture")
    import jax

    return str(jax.devices()[0].device_kind)


def products(engine: str) -> str | None:
    """Return which library multiplies matrices, with its version; None for JAX, which brings its own."""
    if engine == "jax":
        return None
    if engine == "cpu":
        from ..engines.cpu.products import mkl  # which needs Numba

        if (intel := mkl()) is not None:
            return f"mkl {intel.version}"
    library = blas()
    return f"{library['internal_api']} {library.get('version')}" if library else None


def versions(engine: str) -> dict[str, str]:
    """Return the versions of Python and of the libraries that an engine computes with."""
    from importlib import metadata  # takes as long as a third of NumPy, and only runs that begin need it

    known = {"python": platform.python_version()}
    for package in ("glassformer", "numpy", "numba", "jax"):
        if _ONLY_OF.get(package, engine) == engine:
            with contextlib.suppress(metadata.PackageNotFoundError):
                known[package] = metadata.version(package)
    return known


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
        return DataProvenance(source, digest(content), 1, len(content))
    if is_token_file(path):
        return DataProvenance(source, read_json(sidecar(path))["sha256"], 1, path.stat().st_size)
    if task_name == "classify":
        files = table_files(path)
    else:
        files = text_files(path, PAIR_SUFFIXES) if task_name == "pairs" else text_files(path)
    if files == [path]:
        return DataProvenance(source, sha256_of(path), 1, path.stat().st_size)
    lines = "".join(f"{sha256_of(file)}  {file.relative_to(path).as_posix()}\n" for file in files)
    return DataProvenance(source, digest(lines.encode()), len(files), sum(file.stat().st_size for file in files))


# --- the model that a run started from -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """The model that a run's training started from.

    source               a path, the name of a pulled model or hf:org/name
    sha256               of all its parameters, so that another model in its place is noticed
    family               whose names its files use; empty for a run of our own
    start_id, end_ids    the tokens before and after a text
    lora                 the adapters that are trained beside it; None: all of it is trained
    head                 whether it got a new head, for the classes of the task
    """

    source: str
    sha256: str
    family: str = ""
    start_id: int | None = None
    end_ids: tuple[int, ...] = ()
    lora: LoRA | None = None
    head: bool = False

    @classmethod
    def of(cls, source: str, model: LoadedModel, lora: LoRA | None, *, head: bool = False) -> Self:
        """Describe a model that was read from `source`, and got a new head if `head` says so."""
        return cls(stable(source), fingerprint(model.params), model.family, model.start_id, model.end_ids, lora, head)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Build what `to_dict` described."""
        lora = None if content["lora"] is None else LoRA.from_dict(content["lora"])
        made = cls(**{**content, "end_ids": tuple(content["end_ids"]), "lora": lora})
        check_types(made, " of the base model")
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        lora = None if self.lora is None else self.lora.to_dict()
        return {**vars(self), "end_ids": list(self.end_ids), "lora": lora}

    def lexicon(self, tokenizer: Any, target_tokenizer: Any) -> Lexicon:
        """Return how the model reads and writes text, with its tokenizers in their stored form."""
        target = None if target_tokenizer is None else tokenizer_from_dict(target_tokenizer)
        end = self.end_ids[0] if self.end_ids else None
        return Lexicon(tokenizer_from_dict(tokenizer), target, self.start_id, end)


def stable(source: str) -> str:
    """Return a path as an absolute one, so that a run can go on in any folder; names as they are."""
    if (adapted := split_adapter(source)) is not None:
        return f"{stable(adapted[0])}+{adapted[1].resolve()}"
    return str(Path(source).resolve()) if Path(source).exists() else source


def stable_data(data: str | None) -> str | None:
    """Return data as an absolute path, of a pipe that of a copy; texts that Python carries keep their names."""
    if data is None or data in CARRIED:
        return data
    data = copied_once(data)
    check_path(data)
    return stable(data)


def fingerprint(params: Tree) -> str:
    """Return the SHA-256 of the names, types, shapes and values of all parameters."""
    values = (([name, str(array.dtype), list(array.shape)], np.asarray(array)) for name, array in named_leaves(params))
    return digest(*chain.from_iterable(values))
