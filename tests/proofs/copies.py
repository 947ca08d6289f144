"""Copies of the package with a bug, or with an edit, in one file."""

import ast
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import glassformer
from glassformer.bugs.planted import PlantedBug
from glassformer.engines.cpu.compile import source_hash

SOURCE = Path(glassformer.__file__).parent


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
def copy_with(mutant: PlantedBug) -> Iterator[Path]:
    """A folder with a copy of the package that has the bug of a kernel, and all kernels that it does not change."""
    with copied() as folder:
        rewrite(folder / "glassformer" / mutant.file, mutant.wrong)
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
    kept = package / "engines" / "cpu" / "compile.py"
    same_hash = f'def source_hash() -> str:\n    return "{source_hash()}"'
    unoptimized = "numba.config.OPT = type(numba.config.OPT)(0)"
    rewrite(kept, f"{kept.read_text(encoding='utf-8')}\n\n{same_hash}\n\n\n{unoptimized}\n")
    stale = callers(changed, (package / changed).read_text(encoding="utf-8"))
    for path in package.rglob(f"kernels-{source_hash()}/*"):
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
