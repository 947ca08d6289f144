"""The suite notices mistakes: every bug of a table of typical ones, planted in the package, is caught.

Those of kernels are in `test_kernel_mutations.py`.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from oracles import refuse
from proofs.copies import SOURCE, changed, copied
from proofs.hunt import RIGHT, SKIPPED, WRONG, Found, hunt
from proofs.mutations import MUTANTS, engine_of, params, tried

MATHEMATICS = ("ops/", "layers/", "models/")
"""Bugs of these are planted in functions that are loaded; others, and those of constants, in a copy of the package."""
OWN = [mutant for mutant in MUTANTS if engine_of(mutant) == "numpy"]


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """A copy without compiled kernels, for one bug after the other."""
    with copied("kernels-*") as folder:
        yield folder


def outline(text: str) -> str:
    """A file without the bodies of its functions."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = []
    return ast.dump(tree)


@cache
def caught(mutant, copy: Path) -> Found:
    """How the hunt for a bug ends."""
    path, text = SOURCE / mutant.file, mutant.wrong
    if mutant.file.startswith(MATHEMATICS) and outline(path.read_text(encoding="utf-8")) == outline(text):
        return hunt(SOURCE.parent, [mutant.caught_by], engine="numpy", bug=(path, text))
    with changed(copy, mutant.file, text) as folder:
        return hunt(folder, [mutant.caught_by], engine="numpy")


@pytest.mark.parametrize("mutant", params(OWN))
def test_the_suite_catches(mutant, copy):
    found = caught(mutant, copy)
    if found.status == SKIPPED:
        refuse(found.words)
    assert found.status == WRONG, found.words


def test_without_a_bug_nothing_is_caught(copy, pytestconfig):
    """What has caught a bug, case by case and test by test, finds nothing in the package as it is.

    Tests of the engine jax compile for long; the suite runs them as they are run here.
    """
    found = [caught(mutant, copy) for mutant in tried(OWN, pytestconfig)]
    catchers = {one.by for one in found if one.status == WRONG and "engines/jax" not in one.by}
    assert len(catchers) > 10
    again = hunt(SOURCE.parent, sorted(catchers), engine="numpy")
    assert again.status == RIGHT, again.words


def test_the_table_names_many_different_bugs_that_are_still_possible():
    files = {(mutant.file, mutant.wrong) for mutant in MUTANTS}
    assert len(files) == len({mutant.title for mutant in MUTANTS}) == len(MUTANTS) >= 100
