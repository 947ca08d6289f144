"""The catalog of studies: one file of this folder each, and the reader's own files."""

import functools
import hashlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import DataError
from ..core.settings import check_known
from ..data.python_files import failing, run_file
from .study import Study


@functools.cache
def studies() -> dict[str, Study]:
    """Return all studies that come with the package, by name."""
    names = sorted(one.name for one in pkgutil.iter_modules([str(Path(__file__).parent)]))
    made = (getattr(importlib.import_module(f"{__package__}.{name}"), "STUDY", None) for name in names)
    return {study.name: study for study in made if study is not None}


def find_study(study: str | Path | Study) -> Study:
    """Return a study by its name, or by the Python file that holds it as `STUDY`."""
    if isinstance(study, Study):
        return study
    if Path(study).suffix == ".py":
        return load_study(Path(study))
    check_known("there is no study", study, studies(), listed="`glassformer study` lists them; yours ends in .py")
    return studies()[str(study)]


def load_study(path: Path) -> Study:
    """Run a Python file, and return the study in it; it may import its neighbors in the same folder."""
    file = path.expanduser().resolve()
    if not file.is_file():
        raise DataError(f"{path} cannot be read: there is no such file", hint="pass a Python file with a study")
    with failing(f"{path} cannot be imported", file):
        module = run_file(file.read_bytes(), file)
    made = [value for value in vars(module).values() if isinstance(value, Study)]
    study = getattr(module, "STUDY", made[0] if len(made) == 1 else None)
    if not isinstance(study, Study):
        hint = 'write STUDY = gf.studies.Study(name="mine", question="…?", grid=…, measure=…)'
        raise DataError(f"{path} holds no study", hint=hint)
    return replace(study, version=f"{study.version}-{digest_of(study.measure)}")


def digest_of(function: Callable[..., Any]) -> str:
    """Return a digest of a function's source, with which the kept rows of another version are told apart."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):  # typed in, or made by a program
        source = getattr(function, "__qualname__", repr(type(function)))
        source += str(getattr(getattr(function, "__code__", None), "co_code", ""))
    return hashlib.sha256(source.encode()).hexdigest()[:12]
