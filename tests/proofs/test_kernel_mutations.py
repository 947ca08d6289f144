"""The suite notices mistakes in kernels: every bug of a table of typical ones, planted in a copy, is caught.

What a bug changes is compiled for it alone, so these come when others have compiled the rest.
"""

from functools import cache

import pytest

from oracles import refuse
from proofs.copies import SOURCE, copy_with
from proofs.hunt import RIGHT, SKIPPED, WRONG, Found, hunt
from proofs.mutations import MUTANTS, engine_of, params, tried

OWN = [mutant for mutant in MUTANTS if engine_of(mutant) == "cpu"]


@cache
def caught(mutant) -> Found:
    """How the hunt for a bug ends."""
    with copy_with(mutant) as folder:
        return hunt(folder, [mutant.caught_by], engine="cpu")


@pytest.mark.parametrize("mutant", params(OWN))
def test_the_suite_catches(mutant):
    found = caught(mutant)
    if found.status == SKIPPED:
        refuse(found.words)
    assert found.status == WRONG, found.words


def test_without_a_bug_nothing_is_caught(pytestconfig):
    """What has caught a bug, case by case and test by test, finds nothing in the package as it is."""
    catchers = {one.by for one in map(caught, tried(OWN, pytestconfig)) if one.status == WRONG}
    assert len(catchers) > 5
    again = hunt(SOURCE.parent, sorted(catchers), engine="cpu")
    assert again.status == RIGHT, again.words
