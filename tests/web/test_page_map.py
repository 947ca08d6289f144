"""The map in a real browser: everything is reached by clicks, and any cell opens its card."""

import pytest
from playwright.sync_api import expect

from browser import rest, state, told, visit
from glassformer.tree import flatten
from glassformer.web.routes import tiles
from glassformer.web.state import read_state


def opened(page, server, architecture, **more):
    """Open a state in a page."""
    visit(page, server, ".picture", **state(architecture, **more))


def test_every_name_of_the_record_is_reached_by_clicks(page, server, explorer):
    architecture = "encoder-decoder"  # it has what both others have
    opened(page, server, architecture)
    closed = page.locator(".node > .head[aria-expanded=false]")
    while closed.count():
        closed.evaluate_all("all => all.forEach((one) => one.click())")
    rest(page)
    shown = " ".join(page.locator("[data-tensor]").evaluate_all("all => all.map(one => one.dataset.tensor)")).split()
    run = explorer.session(read_state(state(architecture))).run
    assert set(shown) == {*run, *flatten(run.params)}
    assert page.locator(".heat .bad").count() == 0


def test_the_picture_opens_what_is_clicked_and_the_keyboard_does_too(page, server):
    opened(page, server, "decoder")
    page.get_by_role("button", name="block 1: attention").click()
    assert page.locator('[data-name="blocks.1.attention"] > .head').get_attribute("aria-expanded") == "true"
    page.get_by_role("button", name="block 0: feed forward").press("Enter")
    assert page.locator('[data-name="blocks.0.feed_forward"] > .head').get_attribute("aria-expanded") == "true"
    page.get_by_role("button", name="Close all").click()
    assert page.locator("[data-tensor]").count() == 0


def test_a_cell_opens_its_card_with_formula_source_links_and_proof(page, server, explorer):
    opened(page, server, "decoder")
    page.get_by_role("button", name="block 0: attention").click()
    canvas = page.locator('[data-tensor~="blocks.0.attention"] canvas').first
    rest(page)
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        canvas.press(key)
    page.wait_for_selector("#card .value")
    value = explorer.session(read_state(state("decoder"))).run["blocks.0.attention"][0, 1, 2]
    said = page.locator("#card .value").inner_text().replace("−", "-")
    assert float(said) == pytest.approx(value, rel=1e-15)
    assert page.locator("#card .formula").first.inner_text().startswith("y[")
    assert "ops/linear.py" in page.locator("#card summary").first.inner_text()
    page.get_by_role("button", name="Prove it").click()
    page.wait_for_selector("#card .good")
    page.get_by_role("button", name="How it was computed").click()
    title = page.locator("#card h2")
    expect(title).to_have_text("∂ / ∂ blocks.0.attention[0, 1, 2]")
    page.locator("#card li button").first.click()
    expect(title).not_to_contain_text("blocks.0.attention[")
    page.get_by_role("button", name="Back to the card before").click()
    expect(title).to_have_text("∂ / ∂ blocks.0.attention[0, 1, 2]")
    page.keyboard.press("Escape")
    assert page.locator("#card").is_hidden()


def test_values_gradients_and_what_a_change_did_stand_side_by_side(page, server):
    change = {"word": "zero", "name": "blocks.0.attention"}
    opened(page, server, "decoder", changes=[change], look={"map": {"open": ["blocks.1"]}})
    heats = page.locator('[data-tensor~="blocks.1"] figure')
    for name, count in (("values", 1), ("gradients", 1), ("both", 2), ("change", 3)):
        page.get_by_role("button", name=name, exact=True).click()
        assert heats.count() == count
    assert "before the changes" in page.locator("#view").inner_text()
    strip = page.locator("#strip")
    page.get_by_role("button", name="Take all back").click()
    expect(strip).not_to_contain_text("zero blocks.0.attention")
    page.keyboard.press("Control+z")
    expect(strip).to_contain_text("zero blocks.0.attention")


def test_a_block_of_a_decoder_lists_its_parts_in_the_order_of_the_computation(page, server):
    opened(page, server, "encoder-decoder", look={"map": {"open": ["decoder.blocks.0"]}})
    heads = page.locator('[data-name="decoder.blocks.0"] > .body > .node > .head strong')
    norms = ["attention norm", "attention", "cross attention norm", "cross attention"]
    assert heads.all_inner_texts() == [*norms, "feed forward norm", "feed forward"]


def test_a_coarse_cell_says_the_entry_whose_card_it_opens(page, server, explorer, monkeypatch):
    monkeypatch.setattr(tiles, "LARGEST", 3)  # cells along a side
    visit(page, server, "#view canvas", **state("decoder", text="for y in", look={"map": {"open": ["embedding"]}}))
    canvas = page.locator('[data-tensor~="embedding"] canvas').first
    run = explorer.session(read_state(state("decoder", text="for y in"))).run
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        canvas.press(key)
        said = page.locator('[data-tensor~="embedding"] .under').first.inner_text()
        assert "the farthest from 0 of 3 × 3 entries" in said
        canvas.press("Enter")
        page.wait_for_function(
            "(name) => document.querySelector('#card h2')?.textContent.startsWith(name)", arg="embed"
        )
        rest(page)
        index = tuple(told(page)["look"]["card"]["open"]["index"])
        value = page.locator("#card .value").inner_text()
        assert said.startswith(f"[{', '.join(map(str, index))}] ")
        assert f"= {value}," in said
        assert float(value.replace("−", "-")) == run["embedding"][index]
        canvas.focus()


def test_another_address_has_its_own_card_or_none(page, server):
    one = {"name": "blocks.1.attention", "index": [0, 1, 2]}
    visit(page, server, **state("decoder", view="map", look={"card": {"open": one}}))
    page.wait_for_selector("#card h2:has-text('blocks.1.attention[0, 1, 2]')")
    other = {**one, "index": [0, 1, 3]}
    visit(page, server, **state("decoder", view="map", look={"card": {"open": other}}))
    page.wait_for_selector("#card h2:has-text('blocks.1.attention[0, 1, 3]')")
    visit(page, server, **state("decoder", view="map"))
    page.wait_for_selector("#card", state="hidden")
