"""A model with the batch that it was given, in a real browser: as a cell of a notebook shows it, and served."""

import numpy as np
import pytest

import glassformer as gf
from browser import Troubles, open_tab, rest, served, visit
from glassformer.core.errors import ConfigError
from glassformer.web.router import ask, load_routes

SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 1, "context": 8}
MODELS = {
    "decoder": gf.DecoderConfig(**SIZES),
    "encoder": gf.EncoderConfig(**SIZES, classes=3),
    "encoder-decoder": gf.EncoderDecoderConfig(**SIZES),
}
TOKENS = np.array([[5, 3, 6, 3], [1, 2, 3, 4]])


def explored(architecture):
    """A model at work on a batch."""
    model = gf.build(MODELS[architecture])
    batch = gf.Batch(TOKENS, source=TOKENS if architecture == "encoder-decoder" else None)
    return gf.explore(model, model.init(0), batch, show=False)


def test_a_cell_of_a_notebook_shows_it(browser, tmp_path, numpy_engine):
    place = tmp_path / "notebook.html"
    cell = explored("encoder-decoder")._repr_html_()
    place.write_text(f"<!doctype html><meta charset='utf-8'><title>A notebook</title>{cell}", encoding="utf-8")
    context, troubles = browser.new_context(offline=True), Troubles()
    page = context.new_page()
    troubles.watch(page, place.as_uri())
    page.goto(place.as_uri())
    inside = page.frame_locator("iframe")
    inside.get_by_role("button", name="Backward", exact=True).click()
    inside.locator(".every > summary").click()
    inside.locator(".node > .head").first.click()
    inside.locator("#view figure canvas").first.wait_for()
    assert inside.locator(".heat .bad").count() == 0
    assert inside.locator("#text").count() == 0  # nothing that one could type would be read
    assert troubles == []
    context.close()


def test_what_is_served_can_be_changed(browser, numpy_engine):
    with served(explored("decoder")._explorer()) as server:
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


def test_a_text_is_refused(numpy_engine):
    load_routes()
    with pytest.raises(ConfigError, match="has a batch of ids and no tokenizer"):
        ask(explored("decoder")._explorer(), "next", {"state": {"model": "model", "text": ""}, "written": []})
    subject = explored("encoder").model
    assert subject.batch("", "2").targets.tolist() == [2, 2]
    with pytest.raises(ConfigError, match="reads the batch that it was given, and no text"):
        subject.batch("a text")
