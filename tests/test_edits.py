"""What is written is what runs: an edit of any op or layer shows on the default engine, as on the engine numpy."""

import pickle
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import visible_edits
from proofs.copies import SOURCE, changed, copied
from proofs.nest import Nest, load_kernels

FUNCTIONS = [
    (f"{folder}/{file}", name)
    for folder in ("ops", "layers")
    for file, name in visible_edits.functions(SOURCE / folder)
]


@cache
def nest() -> Nest:
    """The process that all others are forked from."""
    return Nest(load_kernels)


@cache
def unedited() -> dict[str, dict[str, np.ndarray]]:
    """What both engines compute with the package as it is; what this compiles serves all copies."""
    found = computed(SOURCE.parent, None)
    nest().share(load_kernels)
    return found


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """A folder with a copy of the package and all that it needs compiled, for one edit after the other."""
    unedited()
    with copied() as folder:
        yield folder


def computed(folder: Path, before: dict | None) -> dict[str, dict[str, np.ndarray]]:
    """What both engines compute with the package in a folder, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        said = Path(place) / "said"
        status = nest().run(visible_edits.look, folder, said, before)
        assert status == 0, f"ended with {status}"
        return pickle.loads(said.read_bytes())


@pytest.mark.parametrize(("file", "name"), FUNCTIONS, ids=[name for _, name in FUNCTIONS])
def test_an_edit_shows_on_the_default_engine(copy, file, name):
    text = visible_edits.edited((SOURCE / file).read_text(encoding="utf-8"), name)
    with changed(copy, file, text):
        found = computed(copy, unedited()["numpy"])
    assert found["cpu"], f"nothing in the panel uses {name}"
    hidden = [what for what, have in found["cpu"].items() if visible_edits.differ(have, found["numpy"][what])]
    assert not hidden, f"an edit of {name} does not show in {hidden}"


def test_without_an_edit_both_engines_agree():
    found = unedited()
    assert found["cpu"].keys() == found["numpy"].keys()
    assert not [what for what in found["numpy"] if visible_edits.differ(found["cpu"][what], found["numpy"][what])]
