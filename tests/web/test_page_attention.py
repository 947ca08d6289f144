"""Attention on the page: small maps, one head large, lines, cards, switches; on the three architectures."""

import re

import pytest

from browser import TEXTS, check_access, rest, state, told, visit
from glassformer.web.router import ask

SMALL = ".attention-small canvas[data-painted]"
LARGE = ".attention-large canvas[data-painted]"


def expect(locator):
    """Wait for what is said of a part of the page."""
    from playwright import sync_api

    return sync_api.expect(locator)


def show(page, server, architecture, text=None, **settings):
    """Open the view on a model."""
    asked = {**state(architecture), "text": text or TEXTS[architecture], "look": {"attention": settings}}
    visit(page, server, LARGE, **asked, view="attention")
    page.wait_for_selector(SMALL)


def looks(page):
    """Return what the view remembers in the address."""
    return told(page).get("look", {}).get("attention", {}), told(page).get("changes", [])


@pytest.mark.parametrize("architecture", ["decoder", "encoder-decoder"])
def test_all_heads_are_small_maps_with_a_word_and_one_is_large(page, server, architecture):
    show(page, server, architecture)
    expect(page.locator(SMALL)).to_have_count(4)
    expect(page.locator(".attention-small .kind")).to_have_text([re.compile("[a-z]")] * 4)
    assert page.locator(LARGE).count() == 3  # products, scores, weights
    assert page.locator(".attention-one h3").inner_text().startswith("Layer 0, head 0: ")
    assert page.locator(".attention-lines line").count() > 0


def test_another_head_is_chosen_by_a_click_or_by_keys(page, server):
    show(page, server, "decoder")
    page.click("[data-at='1 0']")
    page.wait_for_selector(".attention-one h3:has-text('Layer 1, head 0')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(".attention-one h3:has-text('Layer 1, head 1')")
    assert looks(page)[0] == {"kind": "decoder", "layer": 1, "head": 1}
    page.reload()
    page.wait_for_selector(".attention-one h3:has-text('Layer 1, head 1')")


def test_cross_attention_has_the_answer_down_and_the_source_across(page, server, explorer):
    show(page, server, "encoder-decoder")
    shown = ask(explorer, "run", {"state": state("encoder-decoder")})
    assert page.locator("button[aria-pressed=true]:has-text('the decoder looks at the source')").count() == 1
    assert page.locator(".attention-lines .query button").count() == len(shown["tokens"])
    assert page.locator(".attention-lines .key button").count() == len(shown["source"])
    page.click("button:has-text('the encoder looks at itself')")
    expect(page.locator(".attention-lines .query button")).to_have_count(len(shown["source"]))


def test_pointing_at_a_token_shows_its_lines_and_weights(page, server):
    show(page, server, "decoder")
    page.hover(".attention-lines .query button >> nth=2")
    page.wait_for_selector(".attention-lines .query button.on")
    said = page.locator(".attention-lines .key .weight").all_inner_texts()
    assert sum(float(one.replace("−", "-")) for one in said if one) == pytest.approx(1, abs=0.05)
    assert said[3] == "0"  # what comes later is masked
    page.locator(".attention-lines .query button >> nth=0").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".attention-lines .query button.on").inner_text().startswith(TEXTS["decoder"][1])


def test_a_cell_says_how_its_weight_came_about_and_opens_its_card(page, server, troubles):
    show(page, server, "decoder")
    page.locator(LARGE).nth(2).click(position={"x": 3, "y": 3})
    page.wait_for_selector(".attention-said:has-text('→ weight 1')")
    page.wait_for_selector("#card:not([hidden])")
    rest(page)
    assert told(page)["look"]["card"]["open"] == {
        "name": "blocks.0.attention.attend.weights", "index": [0, 0, 0, 0], "gradient": False
    }  # fmt: skip
    if any("400" in trouble for trouble in troubles):
        troubles.forgive("400")  # cards are another part


def test_a_masked_cell_is_allowed_and_a_head_switched_off_by_true_changes(page, server, explorer, troubles):
    show(page, server, "decoder")
    page.locator(LARGE).nth(2).focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".attention-said:has-text('it may not')")
    page.keyboard.press("Enter")
    page.click("button:has-text('Allow')")
    page.wait_for_selector("#strip:has-text('mask')")
    page.wait_for_selector(LARGE)
    page.click("button:has-text('Switch this head off')")
    page.wait_for_selector("button[aria-pressed=true]:has-text('Switch it on again')")
    changes = looks(page)[1]
    assert [(one["word"], one["name"]) for one in changes] == [
        ("put", "blocks.0.attention.attend.mask"), ("zero", "blocks.0.attention.output.x")
    ]  # fmt: skip
    found = ask(explorer, "run", {"state": state("decoder", changes=changes)})
    assert found["idle"] == []
    assert found["loss"] != found["loss_before"]
    page.click("#view button:text-is('change')")
    page.wait_for_selector(".attention-large b:has-text('change of weights')")
    if any("400" in trouble for trouble in troubles):
        troubles.forgive("400")  # cards are another part


def test_only_zero_is_written_as_zero(page, server):
    changes = [{"word": "scale", "name": "blocks.0.attention.attend.scores", "where": {}, "value": 200, "other": ""}]
    visit(page, server, ".attention-lines", **state("encoder", view="attention", changes=changes))
    page.locator(".attention-lines .query button").first.hover()
    said = page.locator(".attention-lines .key .weight").all_inner_texts()
    assert any("e−" in one for one in said)
    assert "0" not in said


def test_everybody_can_use_it(page, server):
    show(page, server, "encoder-decoder")
    check_access(page)
