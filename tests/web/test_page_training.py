"""The training view in a real browser: begin, watch, stop, go through the frames, open one, keep it as a run."""

import pytest

from browser import check_access, visit
from glassformer.runs.start import new_session
from glassformer.web.explorer import Explorer
from glassformer.web.offers import find_offers
from runs import TINY


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder for runs: one is recorded in it."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def explorer(numpy_engine, runs):
    """No model at all."""
    return Explorer({}, folder=runs)


@pytest.fixture
def page(new_page):
    """An empty page: what may be opened changes from test to test, and is asked for when a page begins."""
    return new_page


def begin(page, steps):
    """Begin to train the smallest model."""
    page.locator("form select").first.select_option("counting")
    page.locator("form [name=steps][value='300']").wait_for()
    for name, value in {"width": "8", "heads": "2", "steps": str(steps)}.items():
        page.locator(f"form [name={name}]").fill(value)
    page.get_by_role("button", name="Start").click()


def wait_for_offer(page, title):
    """The list of models is asked for anew once a training has ended."""
    page.locator("#model option", has_text=title).first.wait_for(state="attached")


def test_without_a_model_the_page_begins_here_and_trains_one(page, server, runs):
    visit(page, server)
    assert page.locator("#view [data-view]").get_attribute("data-view") == "training"
    assert page.get_by_text("No model is open yet").is_visible()
    check_access(page)
    begin(page, 12)
    page.get_by_role("button", name="Open the trained model").wait_for()
    assert page.locator(".curve polyline").first.is_visible()
    wait_for_offer(page, "counting, trained here, 12 steps")
    check_access(page)
    # Through the frames by the keyboard.
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Look inside at step 0").wait_for()
    assert page.locator(".scrub output").inner_text() == "step 0"
    page.keyboard.press("ArrowRight")
    page.get_by_role("button", name="Look inside at step 1").click()
    page.wait_for_selector("#view .scene-station")
    assert page.locator("#model option:checked").inner_text() == "counting, trained here, 12 steps, after step 1"
    # What was shown is still there, and can be kept.
    page.locator("#tab-training").click()
    page.get_by_role("button", name="Keep it as a run").click()
    page.get_by_text("kept in").wait_for()
    assert (runs / "counting" / "best.safetensors").is_file()
    page.get_by_role("button", name="Open the trained model").click()
    page.wait_for_selector("#view .scene-station")
    assert page.locator("#text").input_value() == "1"


def test_a_training_is_stopped_and_its_model_offered(page, server):
    visit(page, server, view="training")
    begin(page, 4000)
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Open the trained model").wait_for()
    wait_for_offer(page, "trained here")


def test_a_recorded_run_is_gone_through(page, runs, explorer, server):
    list(new_session("sort", runs / "sorted", settings={**TINY["sort"], "steps": 6}, recorded=True).steps())
    explorer.offers = {**explorer.offers, **find_offers([], runs)}
    visit(page, server, view="training")
    page.get_by_role("button", name="sorted: sort, 6 steps").click()
    page.get_by_role("button", name="Look inside at step 6").wait_for()
    page.get_by_label("Any step").fill("3")
    page.get_by_role("button", name="Go to this step").click()
    page.get_by_role("button", name="Look inside at step 3").wait_for()
    page.locator(".panels canvas").hover()
    page.locator(".panels label", has_text="head").locator("select").select_option("1")
    assert page.locator("table.scores").is_visible()
    page.get_by_role("button", name="Look inside at step 3").click()
    page.wait_for_selector("#view .scene-station")
    assert page.locator("#model option:checked").inner_text().endswith("after step 3")
    # The address alone opens the same frame again; a slider below the scene goes to the others.
    page.reload()
    page.wait_for_selector("#view .scene-station")
    slider = page.get_by_role("slider", name="Step of the training")
    slider.wait_for()
    assert page.locator("#steps output").inner_text() == "after step 3 of 6"
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelector('#model').selectedOptions[0].text.endsWith('after step 2')")
    assert page.evaluate("document.activeElement.type") == "range"
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => document.querySelector('#steps output').textContent === 'after step 6 of 6'")
    check_access(page)


def test_a_model_that_is_gone_leaves_the_way_to_a_new_one(page, server, troubles):
    visit(page, server, "#view .bad", model="gone")
    page.get_by_role("button", name="Train a small model").click()
    page.get_by_role("button", name="Start").wait_for()
    troubles.forgive("400")
