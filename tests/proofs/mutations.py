"""The table of bugs that the suite must catch, all of them made by someone somewhere before."""

from typing import NamedTuple

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


TABLES = (OP_BUGS, MODEL_BUGS, COMPILED_BUGS, KERNEL_BUGS)
MUTANTS = [Mutant(file, *bug) for table in TABLES for file, bugs in table.items() for bug in bugs]
