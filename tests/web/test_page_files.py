"""Journeys on pages elsewhere: files that commands write, cells of notebooks, files of several views or models."""

import json
import re

import numpy as np
import pytest

import glassformer as gf
from browser import TEXTS as TINY_TEXTS
from browser import Troubles, open_tab, rest, served, visit
from glassformer.core.errors import ConfigError
from glassformer.web.page_export import PAGE, page_state, standalone_page
from glassformer.web.router import ask, load_routes
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
SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 1, "context": 8}
MODELS = {
    "decoder": gf.DecoderConfig(**SIZES),
    "encoder": gf.EncoderConfig(**SIZES, classes=3),
    "encoder-decoder": gf.EncoderDecoderConfig(**SIZES),
}
TOKENS = np.array([[5, 3, 6, 3], [1, 2, 3, 4]])


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
    """Opens a file without a network, or a server's page; nothing may go wrong there."""
    context, troubles = browser.new_context(offline=True), Troubles()

    def opened(path):
        page = context.new_page()
        troubles.watch(page, path.as_uri())
        page.goto(path.as_uri())
        return page

    yield opened
    context.close()
    assert troubles == []


def shown(page):
    """The view that a page shows, which its tab names as well."""
    rest(page)
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


def test_a_file_has_the_views_and_the_models_that_it_was_asked_for(explorer, alone, tmp_path):
    load_routes()
    other = ask(explorer, "open", {"model": "decoder"})["example"]
    states = [page_state("encoder", TINY_TEXTS["encoder"]), page_state("decoder", other)]
    path, several = tmp_path / "one.html", tmp_path / "several.html"
    path.write_text(standalone_page(explorer, states[0], view="lens"), encoding="utf-8")
    look = {"scene": {"zoom": "blocks.0.attention.attend.weights"}}
    several.write_text(standalone_page(explorer, states[0], others=states[1:], look=look), encoding="utf-8")
    page = alone(path)
    assert shown(page) == "lens"
    page.goto(f'{path.as_uri()}#{{"view":"change"}}')
    page.wait_for_selector("#view .bad")
    assert "no view “change”. It has: Scene, Lens, Backward, Share." in page.locator("#view .bad").inner_text()
    page = alone(several)
    page.wait_for_selector(".scene-head canvas")
    page.locator("#model").select_option("decoder")
    page.wait_for_function("(text) => document.querySelector('#text')?.value === text", arg=other)
    rest(page)
    assert page.locator(".scene-head canvas").count() > 0
    assert page.locator("#view .bad:visible, #status p").count() == 0


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


def explored(architecture):
    """A model at work on a batch that it was given."""
    model = gf.build(MODELS[architecture])
    batch = gf.Batch(TOKENS, source=TOKENS if architecture == "encoder-decoder" else None)
    return gf.explore(model, model.init(0), batch, show=False)


def test_a_cell_of_a_notebook_shows_the_batch_that_a_model_was_given(alone, tmp_path):
    path = tmp_path / "notebook.html"
    cell = explored("encoder-decoder")._repr_html_()
    path.write_text(f"<!doctype html><meta charset='utf-8'><title>A notebook</title>{cell}", encoding="utf-8")
    inside = alone(path).frame_locator("iframe")
    inside.get_by_role("button", name="Backward", exact=True).click()
    inside.locator(".every > summary").click()
    inside.locator(".node > .head").first.click()
    inside.locator("#view figure canvas").first.wait_for()
    assert inside.locator(".heat .bad").count() == 0
    assert inside.locator("#text").count() == 0  # nothing that one could type would be read


def test_a_batch_that_was_given_is_served_and_changed_and_a_text_is_refused(browser):
    explorer = explored("decoder")._explorer()
    with served(explorer) as server:
        context, troubles = browser.new_context(), Troubles()
        page = context.new_page()
        troubles.watch(page, server.address)
        change = {"word": "zero", "name": "blocks.0.attention", "where": {}}
        visit(page, server, model="model", text="", view="scene", changes=[change])
        rest(page)
        assert page.locator("#strip .token").count() == 1
        assert page.locator("#text").count() == 0
        for view in ("lens", "change", "backward", "writing", "share"):
            open_tab(page, view)
            rest(page)
            assert page.locator(f"#view [data-view={view}]").count() == 1
        assert troubles == []
        context.close()
    with pytest.raises(ConfigError, match="has a batch of ids and no tokenizer"):
        ask(explorer, "next", {"state": {"model": "model", "text": ""}, "written": []})
    subject = explored("encoder").model
    assert subject.batch("", "2").targets.tolist() == [2, 2]
    with pytest.raises(ConfigError, match="reads the batch that it was given, and no text"):
        subject.batch("a text")
