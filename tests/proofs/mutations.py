"""The bugs that the suite must catch, all of them made by someone somewhere before: see `glassformer.bugs.planted`."""

from collections.abc import Iterable
from typing import Any

import pytest

from glassformer.bugs.planted import PlantedBug, planted_bugs

TABLES = ("ops", "models", "jax", "kernels")
MUTANTS = [bug for table in TABLES for bug in planted_bugs(table)]
SELDOM = {bug for number, bug in enumerate([*planted_bugs("jax"), *planted_bugs("kernels")]) if number % 3}
"""Two of three bugs that something has to be compiled for, which takes seconds each: `--all-bugs` tries them, too."""


def engine_of(bug: PlantedBug) -> str:
    """Return the engine that runs the file: what stands in an op is hidden where a kernel stands for it."""
    return "cpu" if bug.file.startswith("engines/cpu/") else "numpy"


def params(mutants: Iterable[PlantedBug]) -> list[Any]:
    """Return what a test takes to be run for each of some bugs."""
    return [pytest.param(one, marks=pytest.mark.seldom if one in SELDOM else (), id=one.title) for one in mutants]


def tried(mutants: Iterable[PlantedBug], config: pytest.Config) -> list[PlantedBug]:
    """Return those of some bugs that are tried."""
    return [one for one in mutants if one not in SELDOM or config.getoption("all_bugs")]
