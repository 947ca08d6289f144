"""What the command does around a check: start files, open hints one at a time, remember tries, grade a class."""

from __future__ import annotations

import ast
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError, DataError, GlassformerError, first_line
from ..files import write_new
from .check import check_file, read_source
from .lab import ORDER, Lab, get_lab, notebook
from .sandbox import SECONDS

DIARY = ".glassformer-labs.json"
"""The file beside a learner's files that remembers tries and hints."""


def start(name: str, path: str | Path | None = None, *, as_notebook: bool = False) -> Path:
    """Write the file of a lab to fill in, and return its path; a file that is there already is never replaced."""
    lab = get_lab(name)
    target = Path(path) if path is not None else Path(f"{lab.name}{'.ipynb' if as_notebook else '.py'}")
    if target.is_dir():
        target = target / f"{lab.name}{'.ipynb' if as_notebook else '.py'}"
    if target.exists():
        hint = "go on with it, or name another file by --out"
        raise ConfigError(f"{target} is there already", hint=hint)
    text = json.dumps(notebook(lab), ensure_ascii=False, indent=1) + "\n" if as_notebook else lab.start
    write_new(target, text.encode())
    return target


def hint(name: str, number: int | None = None, *, folder: str | Path = ".") -> list[str]:
    """Return the hints of a lab that are open: one more with each call, or the first `number` of them."""
    lab = get_lab(name)
    if number is not None and number < 1:
        raise ConfigError(f"there is no hint {number}", hint="hints are counted from 1")
    diary = read_diary(folder)
    entry = diary.setdefault(lab.name, {})
    opened = min(len(lab.hints), number if number is not None else int(entry.get("hints", 0)) + 1)
    if opened > int(entry.get("hints", 0)):
        entry["hints"] = opened
        write_diary(folder, diary)
    return list(lab.hints[:opened])


def solution(name: str, *, anyway: bool = False, folder: str | Path = ".") -> str:
    """Return the filled-in file of a lab; refuse before the first check unless `anyway`."""
    lab = get_lab(name)
    if not anyway and not read_diary(folder).get(lab.name, {}).get("checks"):
        advice = f"check a try first: glassformer lab check {lab.name}.py; or see it with --anyway"
        raise ConfigError(f"you have not tried {lab.name} here yet", hint=advice)
    return lab.solution


def read_diary(folder: str | Path) -> dict[str, dict[str, Any]]:
    """Return what was tried in a folder; a damaged diary counts as an empty one."""
    try:
        found = json.loads((Path(folder) / DIARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: row for name, row in found.items() if isinstance(row, dict)} if isinstance(found, dict) else {}


def write_diary(folder: str | Path, diary: dict[str, dict[str, Any]]) -> None:
    """Remember what was tried; a folder that cannot be written to remembers nothing."""
    with contextlib.suppress(OSError):
        (Path(folder) / DIARY).write_text(json.dumps(diary, indent=1) + "\n", encoding="utf-8")


def note_check(folder: str | Path, lab: Lab, *, is_right: bool) -> None:
    """Count a check of something that was written in the diary of a folder."""
    diary = read_diary(folder)
    entry = diary.setdefault(lab.name, {})
    entry["checks"] = int(entry.get("checks", 0)) + 1
    entry["right"] = bool(entry.get("right")) or is_right
    write_diary(folder, diary)


COLUMNS = ("file", "lab", "right", "kind", "finding", "imports_glassformer", "seconds")


def grade(
    folder: str | Path,
    *,
    lab: str | None = None,
    seconds: float = SECONDS,
    report: Callable[[int, int, str], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield one row for each Python file and notebook below a folder: which lab, right or not, and what is wrong."""
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}", hint="pass the folder with the files of a class")
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".ipynb") and path.is_file())
    files = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    if not files:
        raise DataError(
            f"{folder} holds no Python file and no notebook", hint="pass the folder with the files of a class"
        )
    for number, path in enumerate(files):
        if report is not None:
            report(number, len(files), "files")
        yield {"file": path.relative_to(folder).as_posix(), **_graded(path, lab, seconds)}


def _graded(path: Path, lab: str | None, seconds: float) -> dict[str, Any]:
    start = time.monotonic()
    try:
        verdict = check_file(path, lab, seconds=seconds)
        row = {"lab": get_lab(verdict.lab).name, "right": verdict.ok, "kind": verdict.kind}
        words = "; ".join(finding.words for finding in verdict.findings)
    except GlassformerError as error:
        row, words = {"lab": lab or "", "right": False, "kind": "unreadable"}, first_line(error)
    return {
        **row,
        "finding": words,
        "imports_glassformer": _imports(path),
        "seconds": round(time.monotonic() - start, 2),
    }


def _imports(path: Path) -> bool:
    """Tell whether a file uses Glassformer, whose own functions would pass; the checker does not count."""
    try:
        nodes = list(ast.walk(ast.parse(read_source(path))))
    except (GlassformerError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    named = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    ours = {alias.asname or alias.name for alias in named if alias.name.partition(".")[0] == "glassformer"}
    if any(isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glassformer") for node in nodes):
        return True
    used = [ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)]
    return any(text.startswith(f"{name}.") and not text.startswith(f"{name}.labs") for text in used for name in ours)


def progress(folder: str | Path) -> list[dict[str, Any]]:
    """Return our labs in the order of the book, with what was tried in a folder."""
    diary = read_diary(folder)
    rows = []
    for number, name in enumerate(ORDER, start=1):
        lab, entry = get_lab(name), diary.get(name, {})
        state = "right" if entry.get("right") else "tried" if entry.get("checks") else ""
        rows.append({"number": number, "name": name, "chapter": lab.chapter, "title": lab.title, "state": state})
    return rows
