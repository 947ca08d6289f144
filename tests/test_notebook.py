"""The notebook of the front door: every cell runs, in order, is short, and imports what is public alone."""

import ast
import contextlib
import io
import json
from pathlib import Path

import pytest

import glassformer as gf
from glassformer.weights import catalog
from own_parts import forgotten
from published_models import pulled

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "front_door.ipynb"
FEWER = {"steps=250": "steps=60", "steps=80": "steps=40"}
"""Steps that are left out here: what is shown is the same, only worse."""


def cells():
    """The code of the notebook, cell by cell."""
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


@pytest.fixture
def desk(monkeypatch, tmp_path):
    """A new folder, and the published models that the notebook fetches, fetched before; its task is forgotten."""
    places = {name: pulled(name) for name in ("smollm2", "minilm")}
    monkeypatch.setattr(catalog, "resolve", lambda name: places.get(name))
    monkeypatch.chdir(tmp_path)
    with forgotten():
        yield tmp_path


def test_nothing_is_imported_that_is_not_public():
    for cell in cells():
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= {"numpy", "glassformer"}
            assert not isinstance(node, ast.ImportFrom)
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_")
                if isinstance(node.value, ast.Name) and node.value.id == "gf":
                    assert node.attr in gf.__all__


def test_every_cell_runs_in_order(desk, coarse_figures):
    namespace: dict = {}
    shown = []
    for number, cell in enumerate(cells()):
        for steps, fewer in FEWER.items():
            cell = cell.replace(steps, fewer)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(cell, f"cell {number}", "exec"), namespace)
        shown.append(out.getvalue())
    assert namespace["classifier"].evaluate().accuracy > 0.9
    assert "Paris" in namespace["answer"].text
    assert namespace["vectors"][0] @ namespace["vectors"][1] > namespace["vectors"][0] @ namespace["vectors"][2]
    assert namespace["tuned"].evaluate().loss < namespace["writer"].evaluate("song.txt", context=32).loss
    assert "ccaabb" in shown[-3]  # the task of one's own is learned
    assert namespace["turned"].evaluate().accuracy > 0.8
    assert (desk / "loss.png").is_file()
    assert (desk / "attention.png").is_file()
    assert sum(map(bool, shown)) >= len(shown) - 2  # all but those that end in a figure say something
