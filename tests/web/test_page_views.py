"""The views that commands, programs and addresses name, in a real browser; what is no view is refused in words."""

import json
import re

import pytest

from browser import Troubles, rest, state, visit
from glassformer.core.errors import ConfigError
from glassformer.web.page_export import PAGE, page_state, standalone_page
from glassformer.web.views import PageView
from runs import command, small_demo, tiny_session

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")
TEXTS = {"majority": "00112220", "dates": "1. mai 2020"}
COMMANDS = [
    ("scene", "majority", "inspect {run} {text} --out {folder}/page"),
    ("scene", "dates", "inspect {run} --out {folder}/page"),
    ("scene", "majority", "look {run} {text} heads --json --page {folder}/page/index.html"),
    ("scene", "dates", "look {run} {text} heads --json --page {folder}/page/index.html"),
    ("lens", "majority", "look {run} {text} lens --page {folder}/page/index.html"),
    ("lens", "dates", "look {run} {text} attribution --page {folder}/page/index.html"),
    ("backward", "majority", "look {run} {text} gradients --page {folder}/page/index.html"),
    ("scene", None, "demo --out {folder}/page"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A classifier and an encoder-decoder with two blocks, hardly trained."""
    found = {}
    for task in TEXTS:
        found[task] = tmp_path_factory.mktemp("runs") / task
        list(tiny_session(task, found[task], steps=2, eval_every=2, layers=2).steps())
    return found


@pytest.fixture
def alone(browser):
    """Opens a file without a network; nothing may go wrong on its page."""
    context, troubles = browser.new_context(offline=True), Troubles()

    def opened(path):
        page = context.new_page()
        troubles.watch(page, path.as_uri())
        page.goto(path.as_uri())
        rest(page)
        return page

    yield opened
    context.close()
    assert troubles == []


def shown(page):
    """The view that a page shows, which its tab names as well."""
    [view] = page.locator("#view [data-view]").evaluate_all("all => all.map((one) => one.dataset.view)")
    assert page.locator(f"#tab-{view}").get_attribute("aria-current") == "page"
    assert page.locator("#view .bad:visible, #status p").count() == 0
    return view


@pytest.mark.parametrize(("view", "task", "words"), COMMANDS)
def test_a_page_that_a_command_writes_opens_at_its_view(view, task, words, runs, alone, tmp_path, monkeypatch):
    small_demo(monkeypatch)
    (tmp_path / "page").mkdir()
    named = {"run": runs.get(task), "text": TEXTS.get(task), "folder": tmp_path}
    result = command(*(word.format(**named) for word in words.split()))
    assert result.code == 0, result.err
    page = alone(tmp_path / "page" / "index.html")
    assert shown(page) == view
    if "heads" in words:
        first = json.loads(result.out)["rows"][0]  # the head that the command names first
        stack = "encoder" if first["attention"] == "encoder" else "decoder"
        open_one = page.locator(f".scene-stack[data-stack={stack}]")
        assert open_one.locator(".scene-at").first.inner_text() == f"block {first['layer']} of 0 … 1"
        weights = f"blocks.{first['layer']}.{'cross_' if first['attention'] == 'cross' else ''}attention.attend.weights"
        assert open_one.locator(f"canvas[data-name$='{weights}']").count() == 1
        assert open_one.locator(f".scene-title[data-key$='{weights}']").inner_text() == f"head {first['head']}"


def test_an_address_with_a_view_that_does_not_exist_says_so_and_leads_back(page, server):
    visit(page, server, **state("encoder"), view="attention")
    said = page.locator("#view .bad").inner_text()
    assert said.startswith("This page has no view “attention”. It has: Scene, Lens, ")
    assert page.locator("nav [aria-current]").count() == 0
    page.get_by_role("button", name="Open “Scene”").click()
    page.wait_for_selector("#view .scene-station")
    assert shown(page) == "scene"


def test_a_file_says_which_of_all_views_it_does_not_have(explorer, alone, tmp_path):
    path = tmp_path / "one.html"
    path.write_text(standalone_page(explorer, page_state("encoder", "11110222"), view="lens"), encoding="utf-8")
    page = alone(path)
    assert shown(page) == "lens"
    page.goto(f'{path.as_uri()}#{{"view":"change"}}')
    page.wait_for_selector("#view .bad")
    assert "no view “change”. It has: Scene, Lens, Backward, Share." in page.locator("#view .bad").inner_text()


def test_a_view_that_nothing_draws_stops_the_page_in_words(page, server, troubles):
    def with_another(route):
        answer = route.fetch().json()
        route.fulfill(json={**answer, "views": [*answer["views"], {**answer["views"][0], "id": "attention"}]})

    page.route("**/ask/models", with_another)
    page.goto(server.address)
    page.wait_for_selector("#view .bad")
    assert page.locator("#view .bad").inner_text() == "Nothing draws the views attention"


def test_every_view_of_the_page_is_declared():
    drawn = re.search(r"const DRAW = \{(.*?)\}", (PAGE / "main.js").read_text(encoding="utf-8"), re.DOTALL)
    assert re.findall(r"(\w+):", drawn[1]) == [view.value for view in PageView]


@pytest.mark.parametrize(("word", "hint"), [("attention", "known: "), ("lense", "did you mean 'lens'?")])
def test_python_refuses_a_view_that_does_not_exist(word, hint, explorer):
    with pytest.raises(ConfigError, match=f"this page has no view '{word}'") as refusal:
        standalone_page(explorer, page_state("encoder", "11110222"), view=word)
    assert refusal.value.hint.startswith(hint)
