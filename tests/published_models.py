"""The published models that `glassformer pull` knows, fetched once and kept between runs."""

import os
from pathlib import Path

from glassformer.core.errors import WeightsError
from glassformer.weights import catalog
from oracles import refuse

KEPT = Path(__file__).resolve().parent.parent / ".pytest_cache" / "glassformer"
DATA = Path(os.environ.get("GLASSFORMER_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
"""The folder with stories260K.bin and tok512.bin."""


def choose_cache() -> None:
    """Let tests, and processes that they start, find models in the user's cache if it has all, else in `KEPT`."""
    if any(catalog.resolve(name) is None for name in catalog.CATALOG):
        os.environ.setdefault(catalog.CACHE, str(KEPT))


def pulled(name: str) -> Path:
    """Where the model is; the test is skipped, or fails if all are required, when it cannot be had."""
    try:
        return catalog.pull(name)
    except WeightsError as error:
        refuse(f"{name} cannot be pulled: {error.fact}")


def data_file(name: str) -> Path:
    """A file of the data folder, for tests marked `data(name)`."""
    return DATA / name
