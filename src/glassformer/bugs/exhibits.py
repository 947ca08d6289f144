"""The exhibits of the museum: a planted bug, its story, where it happened, and the check that catches it."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import ndiff
from functools import cache
from pathlib import Path
from types import MappingProxyType

from .checks import Finding, run_check
from .planted import PACKAGE, PlantedBug, plant, planted_bugs
from .training import Curves, kept_curves, right_curves, train_curves

TABLE = Path(__file__).parent / "museum.toml"


@dataclass(frozen=True)
class Exhibit:
    """A mistake that was made.

    name      how commands call it
    kind      "attention", "masks", "gradients", "positions", "training", "writing" or "published weights"
    story     what goes wrong, and why it is easy to miss
    sources   where it happened, if that is public
    check     what catches it: a name in `CHECKS`, or "gradients: ROW" of `glassformer check`
    setup     what it is trained on; "none" where training does not meet it
    bug       the lines that are wrong
    """

    name: str
    kind: str
    story: str
    sources: tuple[str, ...]
    check: str
    setup: str
    bug: PlantedBug

    @property
    def title(self) -> str:
        """The mistake in a few words."""
        return self.bug.title

    def run_check(self) -> Finding:
        """Plant the bug, and return what its check finds."""
        with plant(self.bug):
            return run_check(self.check)

    def curves(self) -> Curves | None:
        """Return the loss curves with this bug that come with the package; None where training does not meet it."""
        return None if self.setup == "none" else kept_curves(self.name)

    def effect(self) -> str:
        """Return what training shows of the bug; nothing where training does not meet it."""
        curves = self.curves()
        return "" if curves is None else curves.effect(right_curves(self.setup))

    def train(self, seeds: Sequence[int] = (0, 1, 2)) -> Curves:
        """Plant the bug, train, and return the loss curves."""
        with plant(self.bug):
            return train_curves(self.setup, seeds)

    def diff(self) -> str:
        """Return the right and the wrong lines as a diff."""
        right = (PACKAGE / self.bug.file).read_text(encoding="utf-8").splitlines()
        changed = [line for line in ndiff(right, self.bug.wrong.splitlines()) if line[0] in "+-" and line[2:].strip()]
        margin = min(len(line) - len(line[2:].lstrip()) for line in changed)
        return "\n".join([f"--- {self.bug.file}", *(f"{line[0]} {line[margin:]}" for line in changed)])


@cache
def museum() -> MappingProxyType[str, Exhibit]:
    """Return the exhibits by name, in the order of their rooms."""
    bugs = {bug.title: bug for table in ("ops", "models") for bug in planted_bugs(table)}
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    exhibits = [
        Exhibit(name, row["kind"], row["story"], tuple(row["sources"]), row["check"], row["setup"], bugs[row["bug"]])
        for name, row in rows.items()
    ]
    return MappingProxyType({one.name: one for one in exhibits})
