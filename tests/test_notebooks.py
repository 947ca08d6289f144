"""The notebooks of the examples: cells are short, count truly, run in order, and show what they hold."""

import ast
import contextlib
import io
import json
import re
from pathlib import Path

import pytest

import glassformer as gf
import notebooks
from glassformer.weights import catalog
from own_parts import forgotten
from published_models import pulled

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
NOTEBOOK = notebooks.read(EXAMPLES / "experiments.ipynb")
PAGES = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "markdown"]
CELLS = ["".join(cell["source"]) for cell in notebooks.code(NOTEBOOK)]
THEIRS = [re.findall(r"<summary>.*: (\d+) lines</summary>\n\n```python\n(.*?)\n```", page, re.DOTALL) for page in PAGES]
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
LEARNED = re.compile(r"^feature +\d+:.*$", re.MULTILINE)  # which features there are, another machine learns otherwise


def test_there_are_fifteen_experiments_of_six_lines_at_most():
    titles = [page.splitlines()[0] for page in PAGES if page.startswith("## ")]
    assert [title.split(". ")[0] for title in titles] == [f"## {n}" for n in range(1, 16)]
    assert len(CELLS) == 16
    assert max(len(notebooks.lines(cell)) for cell in CELLS[1:]) <= 6
    assert not any(";" in line for cell in CELLS for line in notebooks.lines(cell))
    # Every experiment has a sentence that says what is seen.
    assert all(len(page.partition("<details>")[0].strip()) > 40 for page in PAGES[3::2])


def test_lines_are_counted_truly():
    theirs = [found[0] for found in THEIRS if found]
    for cell in [*CELLS, *(code for _, code in theirs)]:
        compile(cell, "cell", "exec")
        assert max(map(len, cell.splitlines())) <= 120
    counts = [len(notebooks.lines(code)) for _, code in theirs]
    assert counts == [int(said) for said, _ in theirs]

    rows = re.findall(r"^\|.*\| (\d+)(?: and (\d+) in .*)? \| (\d+) \|$", PAGES[0], re.MULTILINE)
    assert [int(ours) for ours, _, _ in rows] == [len(notebooks.lines(cell)) for cell in CELLS]
    assert [int(their) for _, _, their in rows] == counts
    _, _, beside = (EXAMPLES / "sparse_autoencoder.py").read_text(encoding="utf-8").partition('"""\n\n')
    assert [int(more) for _, more, _ in rows if more] == [len(notebooks.lines(beside))]


@pytest.mark.timeout(900)  # about a minute alone
def test_every_cell_shows_what_the_notebook_holds(monkeypatch, tmp_path, coarse_figures):
    places = {"smollm2": pulled("smollm2")}
    monkeypatch.setattr(catalog, "resolve", places.get)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for number, cell in enumerate(notebooks.code(NOTEBOOK)):
        outputs = notebooks.execute("".join(cell["source"]), namespace, f"cell {number}"), cell["outputs"]
        shown, kept = ([LEARNED.sub("feature", text) for text in notebooks.texts(part)] for part in outputs)
        # Sums in another order, as on another machine, move the last digits of what was trained.
        assert [NUMBER.sub("", text).split() for text in shown] == [NUMBER.sub("", text).split() for text in kept]
        for mine, theirs in zip(NUMBER.findall("".join(shown)), NUMBER.findall("".join(kept)), strict=True):
            assert float(mine) == pytest.approx(float(theirs), rel=0.1, abs=0.1), f"cell {number}: {shown} {kept}"


def test_the_file_stays_small():
    assert (EXAMPLES / "experiments.ipynb").stat().st_size < 600_000


FRONT_DOOR = Path(__file__).resolve().parents[1] / "examples" / "front_door.ipynb"
FEWER = {"steps=250": "steps=60", "steps=80": "steps=40"}
"""Steps that are left out here: what is shown is the same, only worse."""


def cells():
    """The code of the notebook, cell by cell."""
    content = json.loads(FRONT_DOOR.read_text(encoding="utf-8"))
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
