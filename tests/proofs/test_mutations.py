"""The suite notices mistakes: every bug of a table of typical ones, planted in a copy of the package, is caught."""

import ast
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

import glassformer
from glassformer.engines.cpu.kept import mark
from oracles import refuse
from proofs.hunt import BROKEN, RIGHT, SKIPPED, WRONG, Found, hunt
from proofs.mutations import MUTANTS
from proofs.swap import can_be_planted

SOURCE = Path(glassformer.__file__).parent
MATHEMATICS = ("ops/", "layers/", "models/")
"""Bugs of these are planted in functions that are loaded; others, and those of constants, in a copy of the package."""


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
    """Let what is compiled already serve again, except for what was changed and what calls it.

    What is compiled anew runs once, and need not run fast. Were too much kept, a bug would not show.
    """
    kept = package / "engines" / "cpu" / "kept.py"
    more = f'def mark() -> str:\n    return "{mark()}"\n\n\nnumba.config.OPT = type(numba.config.OPT)(0)\n'
    rewrite(kept, f"{kept.read_text(encoding='utf-8')}\n\n{more}")
    stale = callers(changed, (package / changed).read_text(encoding="utf-8"))
    for path in package.rglob(f"kernels-{mark()}/*"):
        file, function = path.name.split(".")[:2]
        home = path.parents[2].relative_to(package) / f"{file}.py"
        if (home.as_posix(), function.partition("-")[0]) in stale:
            path.unlink()


def parts(text):
    """The functions, classes and constants of a file by name, each with its code and the names that it uses."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own = [node.name]
        else:
            own = [name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
        used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        for name in own:
            code, names = found.get(name, ("", set()))
            found[name] = (code + ast.dump(node), names | used)
    return found


@cache
def users():
    """Which parts of which files of the engine use a name, whoever it belongs to."""
    found = defaultdict(set)
    for path in (SOURCE / "engines" / "cpu").rglob("*.py"):
        file = path.relative_to(SOURCE).as_posix()
        text = path.read_text(encoding="utf-8")
        for name, (_, used) in parts(text).items():
            for other in used:
                found[other].add((file, name))
        for node in ast.parse(text).body:
            # What a function is overloaded by is called where the function is.
            for decorator in getattr(node, "decorator_list", ()):
                for argument in getattr(decorator, "args", ()):
                    if isinstance(argument, ast.Name):
                        found[node.name].add((file, argument.id))
    return found


def callers(file, text):
    """The parts of a file that differ from another text of it, and all that use them, directly or through others."""
    before, after = parts((SOURCE / file).read_text(encoding="utf-8")), parts(text)
    found, new = set(), {(file, name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert new
    while new:
        found |= new
        new = set().union(*(users()[name] for _, name in new)) - found
    return found


@cache
def caught(mutant, copy: Path) -> Found:
    """How the hunt for a bug ends."""
    path, text = SOURCE / mutant.file, planted(mutant)
    if mutant.file.startswith(MATHEMATICS) and can_be_planted(path, text):
        return hunt(SOURCE.parent, [mutant.caught_by], engine="numpy", bug=(path, text))
    with copy_with(mutant, copy) as folder:
        return hunt(folder, [mutant.caught_by], engine=engine_for(mutant))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_the_suite_catches(mutant, copy):
    found = caught(mutant, copy)
    if found.status == SKIPPED:
        refuse(found.words)
    assert found.status == WRONG, found.words


@pytest.mark.parametrize("engine", sorted({engine_for(mutant) for mutant in MUTANTS}))
def test_without_a_bug_nothing_is_caught(engine, copy):
    """What has caught a bug, case by case and test by test, finds nothing in the package as it is.

    Tests of the engine jax compile for long; the suite runs them as they are run here.
    """
    found = [caught(mutant, copy) for mutant in MUTANTS if engine_for(mutant) == engine]
    catchers = {one.by for one in found if one.status == WRONG and "engines/jax" not in one.by}
    assert len(catchers) > 10
    again = hunt(SOURCE.parent, sorted(catchers), engine=engine)
    assert again.status == RIGHT, again.words


def test_the_table_names_many_different_bugs_that_are_still_possible():
    files = {(mutant.file, planted(mutant)) for mutant in MUTANTS}
    assert len(files) == len({mutant.bug for mutant in MUTANTS}) == len(MUTANTS) >= 100


def test_a_crash_or_another_package_is_no_catch(tmp_path, copy):
    crash = MUTANTS[0]._replace(new="raise RuntimeError")
    with copy_with(crash, copy) as folder:
        assert hunt(folder, [crash.caught_by], engine="numpy").status not in (RIGHT, WRONG, SKIPPED)
    found = hunt(tmp_path, ["softmax"], engine="numpy")
    assert found.status == BROKEN
    assert "is not in" in found.words


def test_a_text_that_is_not_in_the_file_is_named():
    stale = MUTANTS[0]._replace(old="no such line")
    with pytest.raises(AssertionError, match=r"has 'no such line' 0 times: bring the table up to date"):
        planted(stale)
