"""What the command does around a check: start files, open hints one at a time, remember tries, grade a class."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, DataError, GlassformerError, first_line
from ..core.files import write_new
from .check import judged
from .diary import note, read_diary
from .lab import get_lab, list_labs
from .sandbox import SECONDS

COLUMNS = ("file", "lab", "right", "kind", "finding", "seconds")


def start(name: str, path: str | Path | None = None, *, as_notebook: bool = False) -> Path:
    """Write the file of a lab to fill in, and return its path; a file that is there already is never replaced."""
    lab, target = get_lab(name), Path(path if path is not None else ".")
    if target.is_dir():
        target = target / f"{lab.name}{'.ipynb' if as_notebook else '.py'}"
    if target.exists():
        raise ConfigError(f"{target} is there already", hint="edit that file, or name another one with --out")
    return write_new(target, (lab.notebook if as_notebook else lab.start).encode())


def hint(name: str, number: int | None = None, *, folder: str | Path = ".") -> list[str]:
    """Return the hints of a lab that are open: one more with each call, or the first `number` of them."""
    lab = get_lab(name)
    if number is not None and number < 1:
        raise ConfigError(f"there is no hint {number}", hint="hints are counted from 1")
    opened = read_diary(folder).get(f"{lab.name} hints", 0)
    wanted = min(len(lab.hints), opened + 1 if number is None else number)
    note(folder, {f"{lab.name} hints": max(wanted, opened)})
    return list(lab.hints[:wanted])


def solution(name: str, *, anyway: bool = False, folder: str | Path = ".") -> str:
    """Return the filled-in file of a lab; refuse before the first check unless `anyway`."""
    lab = get_lab(name)
    if not anyway and f"{lab.name} right" not in read_diary(folder):
        advice = f"check a try of your own first: glassformer lab check {lab.name}.py; --anyway shows it now"
        raise ConfigError(f"you have not tried {lab.name} here yet", hint=advice)
    return lab.solution


def progress(folder: str | Path) -> list[dict[str, Any]]:
    """Return our labs in the order of the book, with what was tried in a folder."""
    diary, states = read_diary(folder), {None: "", 0: "tried", 1: "right"}
    return [
        {"number": number, "name": lab.name, "chapter": lab.chapter, "title": lab.title,
         "state": states.get(diary.get(f"{lab.name} right"), "")}
        for number, lab in enumerate(list_labs(), start=1)
    ]  # fmt: skip


def grade(
    folder: str | Path,
    *,
    lab: str | None = None,
    seconds: float = SECONDS,
    report: Callable[[int, int, str], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one row for each Python file and notebook below a folder: which lab, right or not, and what is wrong."""
    folder, advice = Path(folder), "pass the folder with the files of a class"
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}", hint=advice)
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".ipynb") and path.is_file())
    files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not files:
        raise DataError(f"{folder} holds no Python file and no notebook", hint=advice)
    if lab is not None:
        get_lab(lab)
    for number, path in enumerate(files):
        if report is not None:
            report(number, len(files), "files")
        begun = time.monotonic()
        try:
            verdict = judged(path, lab, seconds)
            row = {"lab": get_lab(verdict.lab).name, "right": verdict.ok, "kind": verdict.kind}
            said = [text for one in verdict.findings for text in (one.words, one.remedy) if text]
            row["finding"] = "; ".join(said)
        except Exception as error:  # a file that cannot be checked must not keep the others from it
            is_known = isinstance(error, GlassformerError)
            words = first_line(error) if is_known else f"the check failed: {type(error).__name__}: {first_line(error)}"
            row = {"lab": lab or "", "right": False, "kind": "unreadable", "finding": words}
        name = path.relative_to(folder).as_posix()
        yield {"file": name, **row, "seconds": round(time.monotonic() - begun, 2)}
