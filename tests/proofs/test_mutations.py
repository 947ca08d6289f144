"""The suite notices mistakes: every bug of a table of typical ones, planted in a copy of the package, is caught."""

import ast
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

import glassformer
from glassformer.engines.cpu.kept import mark
from oracles import refuse
from proofs.hunt import BROKEN, RIGHT, SKIPPED, WRONG, hunt
from proofs.mutations import MUTANTS

SOURCE = Path(glassformer.__file__).parent


def engine_for(mutant):
    """The engine that runs the file: what stands in an op is hidden where a kernel stands for it."""
    return "cpu" if mutant.file.startswith("engines/cpu/") else "numpy"


def planted(mutant):
    """The text of a file with the bug in it."""
    path = SOURCE / mutant.file
    assert path.is_file(), f"{mutant.bug}: there is no {mutant.file}: bring the table up to date"
    text = path.read_text(encoding="utf-8")
    places = text.count(mutant.old)
    assert places == 1, f"{mutant.bug}: {mutant.file} has {mutant.old!r} {places} times: bring the table up to date"
    return text.replace(mutant.old, mutant.new)


def link(source, target):
    """Give a file a second name, or copy it to where it cannot have one; nobody writes into it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextmanager
def copied(*left_out: str) -> Iterator[Path]:
    """A folder with a copy of the package, but for some files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        ignored = shutil.ignore_patterns(*left_out)
        shutil.copytree(SOURCE, folder / "glassformer", ignore=ignored, copy_function=link)
        yield folder


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """A copy without compiled kernels, for all bugs that are none of theirs, one after the other."""
    with copied("kernels-*") as folder:
        yield folder


@contextmanager
def changed(folder: Path, file: str, text: str) -> Iterator[Path]:
    """The copy in a folder with another text in one of its files."""
    path = folder / "glassformer" / file
    rewrite(path, text)
    try:
        yield folder
    finally:
        path.unlink()
        link(SOURCE / file, path)


@contextmanager
def copy_with(mutant, copy: Path) -> Iterator[Path]:
    """A folder with a copy of the package that has the bug."""
    text = planted(mutant)
    if engine_for(mutant) == "numpy":
        with changed(copy, mutant.file, text):
            yield copy
    else:
        with copied() as folder:
            rewrite(folder / "glassformer" / mutant.file, text)
            keep_kernels(folder / "glassformer", mutant.file)
            yield folder


def rewrite(path, text):
    """Change a file that may be linked to another."""
    path.unlink()
    path.write_text(text, encoding="utf-8")


def keep_kernels(package, changed):
    """Let what is compiled already serve again, except for the changed file and those that call it.

    What is compiled anew runs once, and need not run fast.
    """
    kept = package / "engines" / "cpu" / "kept.py"
    more = f'def mark() -> str:\n    return "{mark()}"\n\n\nnumba.config.OPT = type(numba.config.OPT)(0)\n'
    rewrite(kept, f"{kept.read_text(encoding='utf-8')}\n\n{more}")
    stale = callers(changed)
    for path in package.rglob(f"kernels-{mark()}/*"):
        if path.parents[2] / f"{path.name.partition('.')[0]}.py" in {package / file for file in stale}:
            path.unlink()


@cache
def imports():
    """Which files of the engine each of them imports."""
    found = {}
    for path in (SOURCE / "engines" / "cpu").rglob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
                names |= {base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)}
        found[path] = names
    return found


def callers(file):
    """A file of the engine, and all that import it, directly or through others."""
    found, new = set(), {SOURCE / file}
    while new:
        found |= new
        new = {path for path, names in imports().items() if names & found} - found
    return {path.relative_to(SOURCE) for path in found if path.stem != "__init__"}


@pytest.mark.parametrize("engine", sorted({engine_for(mutant) for mutant in MUTANTS}))
def test_without_a_bug_every_catcher_passes(engine):
    catchers = sorted({mutant.caught_by for mutant in MUTANTS if engine_for(mutant) == engine})
    status, words = hunt(SOURCE.parent, catchers, engine=engine)
    if status == SKIPPED:
        refuse(words)
    assert status == RIGHT, words


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_the_suite_catches(mutant, copy):
    with copy_with(mutant, copy) as folder:
        status, words = hunt(folder, [mutant.caught_by], engine=engine_for(mutant))
    if status == SKIPPED:
        refuse(words)
    assert status == WRONG, words


def test_the_table_names_many_different_bugs_that_are_still_possible():
    files = {(mutant.file, planted(mutant)) for mutant in MUTANTS}
    assert len(files) == len({mutant.bug for mutant in MUTANTS}) == len(MUTANTS) >= 100


def test_a_crash_or_another_package_is_no_catch(tmp_path, copy):
    crash = MUTANTS[0]._replace(new="raise RuntimeError")
    with copy_with(crash, copy) as folder:
        assert hunt(folder, [crash.caught_by], engine="numpy")[0] not in (RIGHT, WRONG, SKIPPED)
    status, words = hunt(tmp_path, ["softmax"], engine="numpy")
    assert status == BROKEN
    assert "is not in" in words


def test_a_text_that_is_not_in_the_file_is_named():
    stale = MUTANTS[0]._replace(old="no such line")
    with pytest.raises(AssertionError, match=r"has 'no such line' 0 times: bring the table up to date"):
        planted(stale)
