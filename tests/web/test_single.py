"""The page as one file: how its modules are joined, what is inside, and its policy."""

import base64
import hashlib
import re

import pytest

from browser import TASKS, state
from glassformer.core.errors import ConfigError
from glassformer.web import page_export
from glassformer.web.page_export import (
    IMPORT,
    PAGE,
    ExportedAnswers,
    bundle,
    export_page,
    key_of,
    one_file,
    opening_questions,
    ordered,
    styles,
)
from pages import parse_page

MODULES = sorted(path.name for path in PAGE.glob("*.js"))


def source(name):
    return (PAGE / name).read_text(encoding="utf-8")


def told(architecture, **more):
    return {**state(architecture), "answer": None, "changes": [], "of": {"kind": "loss"}, "steps": [], **more}


def silent(done, total, note):
    """Show nothing."""


@pytest.mark.parametrize("name", MODULES)
def test_modules_import_and_export_in_the_one_way_that_can_be_joined(name):
    text = source(name)
    imports = [line for line in text.splitlines() if re.match(r"\s*import\b", line)]
    assert len(imports) == len(IMPORT.findall(text)), f'not `import {{ a, b }} from "./x.js";`: {imports}'
    exports = [line for line in text.splitlines() if re.match(r"\s*export\b", line)]
    for line in exports:
        assert page_export.EXPORT.match(line), line
    assert "import(" not in text
    assert not re.search(r"^(await|for await)\b", text, flags=re.MULTILINE)
    for word in ("eval(", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "</script", "new Function"):
        assert word not in text, word


def test_what_is_imported_is_exported_and_all_modules_and_styles_are_part_of_the_page():
    for name in MODULES:
        for names, home in IMPORT.findall(source(name)):
            for one in re.split(r",\s+", names.strip()):
                assert re.search(rf"^export (async )?(function|const|class) {re.escape(one)}\b", source(home), re.M)
    order = ordered()
    for name in order:
        for other in page_export.imports_of(source(name)):
            assert order.index(other) < order.index(name), f"{name} imports {other}, which leads back to it"

    assert sorted(ordered()) == MODULES
    assert not re.search(r"^(import|export)\b", bundle(), flags=re.MULTILINE)
    for path in PAGE.glob("*.css"):
        assert source(path.name) in styles()
    assert styles().startswith(source("style.css"))
    assert "url(" not in styles()
    assert "@import" not in styles()


def test_the_policy_allows_the_script_and_the_style_that_are_there_and_nothing_else():
    page = one_file(ExportedAnswers({}, {}))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    for tag in ("script", "style"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r'(src|href)="(?!#)', page)


@pytest.mark.parametrize("architecture", TASKS)
def test_all_tensors_and_what_was_asked_are_in_the_file(architecture, explorer):
    own = told(architecture)
    large = {"state": "@", "what": "value", "name": "logits", "height": 512}
    asked = [{"word": "run", "question": {"state": own}}, {"word": "tile", "question": large, "key": "mine"}]
    page = export_page(
        explorer, {**own, "view": "scene"}, [*asked, *opening_questions(explorer, own)], ("value", "gradient"), silent
    )
    assert len(page.encode()) < page_export.LARGEST
    found = parse_page(page)
    assert found.told["view"] == "scene"
    assert [model["key"] for model in found.answers["models {}"]["models"]] == [architecture]
    run = found.answers['run {"state":"@"}']
    for tensor in [*run["values"], *run["parameters"]]:
        at = [0] * (len(tensor["shape"]) - 2)
        for what in ("value", "gradient"):
            key = key_of("tile", {"state": own, "what": what, "name": tensor["name"], "at": at}, own)
            assert key in found.tiles or "has no gradient" in found.refused[key][0]
    assert "mine" in found.tiles


def test_a_file_that_would_be_too_large_is_refused_and_says_what_to_leave_out(explorer, monkeypatch):
    monkeypatch.setattr(page_export, "LARGEST", 60_000)
    with pytest.raises(ConfigError, match=r"the file would have 0\.\d MB, and at most 0.1 MB are written") as refusal:
        export_page(explorer, told("encoder"), [], ("value", "gradient"), silent)
    assert refusal.value.hint == "leave out the gradients of every tensor or a view, or take a shorter text"


def test_a_larger_model_is_kept_more_coarsely(explorer, monkeypatch):
    fine = parse_page(export_page(explorer, told("encoder"), [], ("value",), silent)).tiles
    monkeypatch.setattr(page_export, "LEVELS", ((8, 8, "<f4"),))
    coarse = parse_page(export_page(explorer, told("encoder"), [], ("value",), silent)).tiles
    assert fine.keys() == coarse.keys()
    assert sum(map(len, coarse.values())) < sum(map(len, fine.values()))
