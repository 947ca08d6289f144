"""The table of bugs that the suite must catch, all of them made by someone somewhere before."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from proofs.compiled_bugs import COMPILED_BUGS
from proofs.kernel_bugs import KERNEL_BUGS
from proofs.model_bugs import MODEL_BUGS
from proofs.op_bugs import OP_BUGS


class Mutant(NamedTuple):
    """One bug to plant."""

    file: str
    """Below src/glassformer."""
    bug: str
    caught_by: str
    """A row of `glassformer check`, or the address of a test."""
    old: str
    """The text to replace; it stands in the file exactly once."""
    new: str

    @property
    def engine(self) -> str:
        """The engine that runs the file: what stands in an op is hidden where a kernel stands for it."""
        return "cpu" if self.file.startswith("engines/cpu/") else "numpy"


def _mutants(*tables: str) -> list[Mutant]:
    """Read tables of bugs: "# file", "what is wrong | what catches it", and a diff of right and wrong lines."""
    found = []
    for table in tables:
        for part in re.split(r"^# ", table, flags=re.MULTILINE)[1:]:
            file, _, bugs = part.partition("\n")
            for bug, right, wrong in re.findall(
                r"((?:^[^-+].*\n)+)((?:^-.*\n)+)((?:^\+.*\n)+)", bugs, flags=re.MULTILINE
            ):
                what, caught_by = re.split(r"\s\| ", bug.rstrip("\n"))
                old, new = ("\n".join(line[1:] for line in lines.splitlines()) for lines in (right, wrong))
                found.append(Mutant(file, what, caught_by, old, new))
    return found


MUTANTS = _mutants(OP_BUGS, MODEL_BUGS, COMPILED_BUGS, KERNEL_BUGS)
SELDOM = {mutant for number, mutant in enumerate(_mutants(COMPILED_BUGS, KERNEL_BUGS)) if number % 3}
"""Two of three bugs that something has to be compiled for, which takes seconds each: `--all-bugs` tries them, too."""


def params(mutants: Iterable[Mutant]) -> list[Any]:
    """What a test takes to be run for each of some bugs."""
    return [pytest.param(one, marks=pytest.mark.seldom if one in SELDOM else (), id=one.bug) for one in mutants]


def tried(mutants: Iterable[Mutant], config: pytest.Config) -> list[Mutant]:
    """Those of some bugs that are tried."""
    return [one for one in mutants if one not in SELDOM or config.getoption("all_bugs")]
