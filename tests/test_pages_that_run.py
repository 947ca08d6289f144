"""Derivations and chapters: their cells run, checks tell right from wrong, symbols are those of the source."""

import ast
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import glassformer as gf
from glassformer import ops
from glassformer.proofs import Check, OpCase
from glassformer.proofs import prove_case as prove_case_as_written
from glassformer.weights import catalog
from published_models import pulled
from test_docs import site_extension

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "derivations"
CHAPTERS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((FOLDER.parent / "book").glob("*.md"))}
GUIDES = [path for path in sorted((FOLDER.parent / "guides").glob("*.md")) if "{code-cell}" in path.read_text("utf-8")]
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")) if path.stem != "README"}


def included(text: str) -> list[tuple[str, ast.AST]]:
    """Return the names and the code of the functions that a page includes from the source."""
    found = []
    for path, name in re.findall(r"\{literalinclude\} (\S+)\n:pyobject: (\S+)", text):
        body: ast.AST = ast.parse((FOLDER / path).resolve().read_text(encoding="utf-8"))
        for part in name.split("."):
            body = next(each for each in ast.iter_child_nodes(body) if getattr(each, "name", None) == part)
        found.append((name, body))
    return found


def run_cells(text: str, scope: dict[str, object]) -> int:
    """Run the cells of a page from top to bottom with their quick settings, and return how many it has."""
    cells = re.findall(r"```\{code-cell\}\n((?::[a-z]+: [^\n]*\n)*)(.*?)```", text, flags=re.DOTALL)
    for options, cell in cells:
        quick = re.findall(r"^:quick: (.*)$", options, flags=re.MULTILINE)
        exec("\n".join([cell, *quick]), scope)
    return len(cells)


def run_glued(text: str) -> dict[str, object]:
    """Run a chapter, and return the values that its cells give to its sentences."""
    values: dict[str, object] = {}
    glue = SimpleNamespace(glue=lambda name, value, display=False: values.update({name: value}))
    places = {name: pulled(name) for name in re.findall(r'gf\.pull\("(\w+)"', text)}
    with pytest.MonkeyPatch.context() as patch:
        if places:
            patch.setattr(gf, "pull", places.__getitem__)
            patch.setattr(catalog, "resolve", places.get)
        patch.setitem(sys.modules, "myst_nb", glue)
        assert run_cells(text, {}) > 4
    return values


@pytest.mark.timeout(900)  # half a minute alone
@pytest.mark.parametrize("name", CHAPTERS)
def test_the_cells_of_a_chapter_run(name):
    values = run_glued(CHAPTERS[name])
    assert {*values} == {*re.findall(r"\{glue:text\}`([^`:]+)", CHAPTERS[name])}
    assert CHAPTERS[name].count("<summary>Solution</summary>") == 3


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.stem)
def test_the_cells_of_a_guide_run(page):
    run_glued(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PAGES)
def test_the_cells_run_and_the_checks_tell_right_from_wrong(name, monkeypatch):
    text, (right, wrong) = PAGES[name], ([], [])
    checks: list[Check] = right

    def prove_case(case: OpCase) -> Check:
        checks.append(prove_case_as_written(case))
        return checks[-1]

    monkeypatch.setattr("glassformer.proofs.prove_case", prove_case)
    monkeypatch.setattr("glassformer.proofs.check.prove_case", prove_case)
    scope: dict[str, object] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        checks = wrong if section.startswith("Usual mistakes") else right
        run_cells(section, scope)
    assert right
    assert all(check.ok for check in right), right
    assert not wrong or not all(check.ok for check in wrong), "no mistake is found"


@pytest.mark.parametrize("name", PAGES)
def test_the_symbols_are_those_of_the_source(name):
    text = PAGES[name]
    words = {
        getattr(node, field)
        for _, body in included(text)
        for node in ast.walk(body)
        for field in ("id", "arg", "attr", "name")
        if isinstance(getattr(node, field, None), str)
    }
    rows = re.findall(r"^\| \$.+?\$ \| (.+?) \|", text, flags=re.MULTILINE)
    symbols = {symbol for row in rows for symbol in re.findall(r"`(\w+)`", row)}
    assert symbols
    assert symbols <= words, symbols - words
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert {"Check", "Usual mistakes"} <= {*headings}


def test_pages_become_notebooks_that_need_glassformer_alone():
    notebooks = site_extension("notebooks")
    for name, text in [*CHAPTERS.items(), *PAGES.items()]:
        values = dict.fromkeys(re.findall(r"\{glue:text\}`([^`:]+)", text), "0.5")
        cells = notebooks.make_notebook(text, values, FOLDER)["cells"]
        code = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "code")
        prose = "\n".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
        assert not {"glue", "myst_nb"} & {
            getattr(node, "id", getattr(node, "module", "")) for node in ast.walk(ast.parse(code))
        }
        assert prose.startswith("# "), name
        assert not re.search(r"\{[a-z:-]+\}`|</?details|\.md\)|^:::", prose, flags=re.MULTILINE), name
        assert all(f"def {part}(" in prose for part in re.findall(r":pyobject: (?:\w+\.)*(\w+)", text))


def test_every_backward_has_a_page_and_every_page_is_listed():
    shown = {name for text in PAGES.values() for name, _ in included(text)}
    assert {name for name in ops.__all__ if name.endswith("_backward")} <= shown
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in PAGES if f"({name}.md)" not in index] == []
