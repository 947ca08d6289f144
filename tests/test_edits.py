"""What is written is what runs: an edit of any op or layer shows on the default engine, as on the engine numpy."""

import multiprocessing
import pickle
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import edits
import glassformer
from proofs.hunt import IMPORTED
from proofs.test_mutations import link

SOURCE = Path(glassformer.__file__).parent
FUNCTIONS = [
    (f"{folder}/{file}", name) for folder in ("ops", "layers") for file, name in edits.functions(SOURCE / folder)
]


@cache
def computed(file: str | None = None, name: str | None = None) -> dict[str, dict[str, np.ndarray]]:
    """What both engines compute where a function is edited, in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        folder, said = Path(place).resolve(), Path(place).resolve() / "said"
        if file is None:
            return ended(SOURCE.parent, said, None)  # what is compiled here serves all copies
        before = computed()["numpy"]
        shutil.copytree(SOURCE, folder / "glassformer", copy_function=link)
        target = folder / "glassformer" / file
        for old in (target, *(target.parent / "__pycache__").glob(f"{target.stem}.cpython*")):
            old.unlink()
        target.write_text(edits.edited((SOURCE / file).read_text(encoding="utf-8"), name), encoding="utf-8")
        return ended(folder, said, before)


def ended(folder: Path, said: Path, before: dict | None) -> dict[str, dict[str, np.ndarray]]:
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=edits.look, args=(folder, said, before))
    process.start()
    process.join()
    assert process.exitcode == 0, f"ended with {process.exitcode}"
    return pickle.loads(said.read_bytes())


@pytest.mark.parametrize(("file", "name"), FUNCTIONS, ids=[name for _, name in FUNCTIONS])
def test_an_edit_shows_on_the_default_engine(file, name):
    found = computed(file, name)
    assert found["cpu"], f"nothing in the panel uses {name}"
    hidden = [what for what, have in found["cpu"].items() if edits.differ(have, found["numpy"][what])]
    assert not hidden, f"an edit of {name} does not show in {hidden}"


def test_without_an_edit_both_engines_agree():
    found = computed()
    assert found["cpu"].keys() == found["numpy"].keys()
    assert not [what for what in found["numpy"] if edits.differ(found["cpu"][what], found["numpy"][what])]


def test_every_room_of_the_mathematics_is_edited():
    assert len(FUNCTIONS) > 60
    assert {Path(file).parent.name for file, _ in FUNCTIONS} == {"ops", "layers"}
