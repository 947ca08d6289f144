"""The promises of the pages: what they name is there, what they show is so."""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import glassformer
from glassformer.cli.commands import load_command
from glassformer.core.registry import SUMMARIES
from glassformer.data import TASKS, build_task
from glassformer.weights.catalog import CATALOG

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "glassformer"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ORDER = (ROOT / "docs" / "guides" / "reading_order.md").read_text(encoding="utf-8")


def site_extension(name: str) -> ModuleType:
    """Return a module that the site is built with; it needs no Sphinx."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_extensions" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_and_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = re.findall(r"`((?:[\w.]+/)+(?:[\w.]+\.(?:py|json|md))?|[a-z_]+\.py)(?:::\w+)?`", text)
    folders = (ROOT, PACKAGE, ROOT / "docs")
    missing = [name for name in named if not any((folder / name).exists() for folder in folders)]
    assert not missing, f"{page_name(page)} names {missing}"

    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing, f"{page_name(page)} links to {missing}"


def test_the_commands_of_the_readme_build_on_each_other():
    """`tests/test_commands.py` runs them in a folder that has it all; a reader begins with a checkout alone."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^(?:\$ )?((?:glassformer|cp|source|echo) .*?)(?:  .*)?$", readme, flags=re.MULTILINE)
    lines = [line.rpartition(" | ")[2] for line in found]
    assert lines[0] == "source .venv/bin/activate"
    made: set[str] = set()
    for line in lines:
        words = shlex.split(line)
        if words[0] == "cp":
            assert (ROOT / words[1]).is_file()
            made.add(words[2])
        needed = {word for word in words if word.startswith("runs/") or word in ("notes.txt", *CATALOG)}
        if words[1] == "pull":
            made |= needed
        assert needed <= made, f"{line}: nothing has made {needed - made}"
        if words[:2] == ["glassformer", "train"] and words[2] in TASKS:
            made.add(f"runs/{words[2]}")
        if "--resume" in words and "--steps" in words:
            task = Path(words[words.index("--resume") + 1]).name
            assert int(words[words.index("--steps") + 1]) > build_task(task).recipe["steps"]


def test_the_citation_has_the_version_the_license_and_the_authors_of_the_package():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name in ("version", "license", "authors"):
        assert citation[name] == package[name]
    assert citation["abstract"] == package["description"] + "."
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{citation['version']}] - {citation['date-released']}\n" in changes


def test_every_task_is_described_and_every_page_is_in_the_index():
    docs = ROOT / "docs"
    tasks = (docs / "guides" / "tasks.md").read_text(encoding="utf-8")
    assert [name for name in SUMMARIES if f"| [`{name}`](#" not in tasks or f"| `{name}` |" not in tasks] == []
    assert f"lists all {len(SUMMARIES)}." in tasks
    index = (docs / "README.md").read_text(encoding="utf-8")
    pages = {f"{name}/{path.stem}" for name in ("book", "guides", "reference") for path in (docs / name).glob("*.md")}
    assert pages <= set(re.findall(r"\]\(([\w./]+)\.md\)", index))


def test_the_course_names_chapters_labs_and_commands_that_exist():
    page = (ROOT / "docs" / "lecturers.md").read_text(encoding="utf-8")
    rows = [row.split("|") for row in re.findall(r"^\| \d .*$", page, flags=re.MULTILINE)]
    labs = {name for row in rows[:8] for name in re.findall(r"`(\w+)`", row[4])}
    assert labs
    assert labs <= {lab.name for lab in glassformer.labs.list_labs()}
    chapters = {path.name for path in (ROOT / "docs" / "book").glob("*.md")}
    assert {name for row in rows[:8] for name in re.findall(r"book/(\w+\.md)", row[2])} == chapters
    for line in re.findall(r"(?:`|^)glassformer ([^`\n]+)", page, flags=re.MULTILINE):
        name, *words = shlex.split(line)
        load_command(name).make_context(name, words)  # refuses what it does not know


def test_every_public_name_is_on_a_page_of_the_reference():
    reference = site_extension("reference")
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference" / "api").glob("*.md")]
    asked = [match for page in pages for match in reference.LISTING.findall(page)]
    shown = "".join(reference.listing(space, names) for space, names in asked)
    found = {*re.findall(r"^\.\. auto\w+:: (\S+)$", shown, flags=re.MULTILINE)}
    found |= {
        f"{s}.{n}" for n, s in re.findall(r"^\.\. py:data:: (\w+)\n   :module: (\S+)$", shown, flags=re.MULTILINE)
    }
    names = {f"{space}.{name}" for space, names in reference.public_names().items() for name in names}
    assert names == found


def test_docstrings_become_formulas_arguments_and_links():
    to_rst = site_extension("reference").to_rst
    text = to_rst(
        "Gradient of `softmax`, x_hat.\n\n    dx = y · dy\n\nlr, eps   of `Recipe`,\n    or not", "glassformer.ops"
    )
    assert text == (
        "Gradient of :py:obj:`softmax <glassformer.ops.softmax>`, x\\_hat.\n\n::\n\n      dx = y · dy\n\n"
        ":param lr: of :py:obj:`Recipe <glassformer.training.Recipe>`, or not\n"
        ":param eps: of :py:obj:`Recipe <glassformer.training.Recipe>`, or not\n"
    )


def test_words_of_the_glossary_refer_to_its_entries():
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!term|---)(.+?) \| (.+) \|$", glossary, flags=re.MULTILINE)
    entries = {part for term, _ in rows for part in re.sub(r" \(.*?\)", "", term).lower().split(", ")}
    named = {word.lower() for _, meaning in rows for word in re.findall(r"\*([^*]+)\*", meaning)}
    unknown = [word for word in named if not {word, word.removesuffix("s"), word.removesuffix("es")} & entries]
    assert sorted(unknown) == []
    assert len(entries) == sum(len(term.split(", ")) for term, _ in rows), "a term stands twice"


def exercises() -> list[tuple[str, str]]:
    """The lines that the reading order asks to change, each with the files of its chapter."""
    chapters = re.split(r"^## ", ORDER, flags=re.MULTILINE)[1:]
    return [
        (chapter.partition("\n")[0], line)
        for chapter in chapters
        for block in re.findall(r"```diff\n(.*?)```", chapter, flags=re.DOTALL)
        for line in re.findall(r"^-(.*)$", block, flags=re.MULTILINE)
    ]


@pytest.mark.parametrize(("title", "line"), exercises())
def test_the_lines_that_the_reading_order_changes_are_there(title, line):
    files = re.findall(r"`([\w/]+\.py)`", title)
    assert sum((PACKAGE / file).read_text(encoding="utf-8").count(line) for file in files) == 1


def test_the_version_is_one_and_the_changelog_begins_with_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert project["version"] == glassformer.__version__
    assert re.findall(r"^## \[(\d[^\]]*)\]", changes, flags=re.MULTILINE)[0] == glassformer.__version__
