"""Look for a wrong number in the package with a bug, in a process of its own.

The bug is planted in functions of the package that is loaded already, or stands in a copy of the package: then nothing
of Glassformer is imported but the copy.

A catcher is a row of `glassformer check` ("layer_norm", "decoder (head)"), one of its cases ("layer_norm, no beta"), a
check of the museum ("museum: causality"), or the address of a test ("tests/…::…"). The exit status says what happened;
a crash is no catch, because it says nothing about the numbers.
"""

import gc
import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from proofs.nest import Nest, load_kernels

ROOT = Path(__file__).parents[2]
IMPORTED = ("hypothesis.strategies", "jax.numpy", "pytest")
RIGHT, WRONG, BROKEN, SKIPPED = 0, 10, 11, 12  # 1 is how Python itself ends on an error


class Found(NamedTuple):
    """How a hunt ended."""

    status: int
    by: str
    """The case or the test that found something: the last line of what was said."""
    words: str


def hunt(folder: Path, catchers: list[str], *, engine: str, bug: tuple[Path, str] | None = None) -> Found:
    """Let the catchers look at the package in `folder`, up to the first that finds something.

    A `bug` is a file of the package and the text that it would have.
    """
    with tempfile.TemporaryDirectory() as name:
        said = Path(name) / "said"
        status = nest(engine).run(look, folder, catchers, engine, said, bug)
        words = said.read_text(encoding="utf-8", errors="replace") if said.exists() else ""
        return Found(status, words.rstrip("\n").rpartition("\n")[2], words)


@cache
def nest(engine: str) -> Nest:
    """The process that all hunts on an engine are forked from."""
    return Nest({"numpy": prepare_functions, "cpu": prepare_kernels}[engine])


def prepare_functions() -> None:
    """Import what hunts need, and the package as it is, and make its cases."""
    os.environ["GLASSFORMER_ENGINE"] = "numpy"
    import_all(*IMPORTED, "numba", "torch", "glassformer.proofs", "glassformer.data.tasks")
    loaded()
    from glassformer.proofs import layer_cases, model_cases, op_cases

    for make in (op_cases, layer_cases, model_cases):
        made(make)


def prepare_kernels() -> None:
    """Import what hunts need, but nothing of the package, and load kernels; what a bug changes need not be quick."""
    os.environ["NUMBA_OPT"] = "0"
    import_all(*IMPORTED)
    load_kernels()


def import_all(*names: str) -> None:
    for name in names:
        with suppress(ImportError):  # a test that needs it says so
            importlib.import_module(name)


def look(folder: Path, catchers: list[str], engine: str, said: Path, bug: tuple[Path, str] | None) -> None:
    """Run the catchers in this process, which is theirs alone, and end it."""
    gc.freeze()  # what was imported before the fork stays to the end: nobody need look through it
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(ROOT)
    os.environ.pop("PYTEST_ADDOPTS", None)
    # Plugins are not found by themselves, because some take longer to load than the test to run.
    os.environ |= {"GLASSFORMER_ENGINE": engine, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    if folder not in place_of_package().parents:
        forget_package()
    if folder not in place_of_package().parents:
        stop(BROKEN, f"imported {place_of_package()}, which is not in {folder}")
    if bug is not None:
        from glassformer.bugs.planted import swap

        swap(*bug, loaded())
    tests = {catcher for catcher in catchers if "::" in catcher}
    checks = {catcher for catcher in catchers if catcher.startswith("museum: ")}
    for name in sorted(checks):
        run_museum(name)
    if rows := set(catchers) - tests - checks:
        prove_rows(rows)
        if bug is not None:  # which may show when models and their weights are made
            made.cache_clear()
            prove_rows(rows)
    if tests:
        run_tests(tests)
    stop(RIGHT, "nothing is wrong")


def place_of_package() -> Path:
    return Path(importlib.import_module("glassformer").__file__)


def forget_package() -> None:
    """Let the package be imported anew, from where it is found first now."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "glassformer"]:
        del sys.modules[name]
    made.cache_clear()


def stop(status: int, reason: str, by: str = "") -> None:
    sys.stdout.write(f"{reason}\n{by}\n")
    sys.exit(status)


@cache
def loaded() -> Any:
    """Return the functions of the package that are loaded."""
    from glassformer.bugs.planted import functions

    return functions()


@cache
def made(make: Callable[[], list[Any]]) -> list[Any]:
    """The cases that a function makes."""
    return make()


def prove_rows(rows: set[str]) -> None:
    """Prove the cases of the rows, up to the first that fails."""
    from glassformer.proofs import layer_cases, model_cases, op_cases, prove_case

    proved: set[str] = set()
    for cases in (op_cases, layer_cases, model_cases):
        for case in made(cases) if rows - proved else ():
            if wanted := rows & {case.name, case.name.partition(",")[0]}:
                proved |= wanted
                check = prove_case(case)
                if not check.ok:
                    stop(WRONG, f"error {check.error:.3g}", case.name)
    if rows - proved:
        stop(BROKEN, f"no such rows: {sorted(rows - proved)}")


def run_museum(name: str) -> None:
    """Run a check of the museum."""
    from glassformer.bugs.checks import run_check

    finding = run_check(name.removeprefix("museum: "))
    if not finding.ok:
        stop(WRONG, finding.evidence, name)


class Outcomes:
    """A pytest plugin that notes with which exceptions tests ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, BaseException]] = []

    def pytest_sessionstart(self) -> None:
        """Let hypothesis stop at the first wrong number: to look for the simplest takes many times as long."""
        from hypothesis import Phase, settings

        settings.register_profile("hunt", settings.default, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("hunt")

    def pytest_runtest_makereport(self, item, call) -> None:
        if call.excinfo is not None:
            self.ends.append((item.nodeid, call.excinfo.value))


def run_tests(addresses: set[str]) -> None:
    """Run the tests, up to the first that fails."""
    import pytest

    outcomes = Outcomes()
    options = ["-x", "-q", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    status = pytest.main([*options, *sorted(addresses)], plugins=[outcomes])
    for address, end in outcomes.ends:
        skipped = isinstance(end, pytest.skip.Exception)
        found = SKIPPED if skipped else WRONG if isinstance(end, AssertionError) else BROKEN
        stop(found, f"{type(end).__name__}: {end}", address)
    if status != pytest.ExitCode.OK:
        stop(BROKEN, f"pytest ended with {status!r}")
