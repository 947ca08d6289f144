"""Journeys through the scene: one picture of the run, in which everything is pointed at, opened, changed and read.

Numbers are compared with Python's where the routes answer; here is what clicks ask for and what stands on the page.
"""

import numpy as np
import pytest
from playwright.sync_api import expect

from browser import NARROW, TEXTS, check_access, rest, state, told, visit, walk
from glassformer.api.loading import read_model
from glassformer.core.tree import flatten
from glassformer.web.offers import Offer
from glassformer.web.routes import tiles
from glassformer.web.state import read_state
from published_models import pulled

PUBLISHED = {"smollm2": "Paris is in France", "minilm": "Paris sleeps"}
"""Four tokens each."""

CARD_OF = (
    "(name) => document.querySelector('#card .value') && document.querySelector('#card h2').innerText.includes(name)"
)
PAINTED = ".scene-station canvas[data-painted=yes]"
WEIGHTS = "blocks.0.attention.attend.weights"


def opened(page, server, architecture, **more):
    """Open a state in a page."""
    visit(page, server, PAINTED, **state(architecture, **more))
    rest(page)


def click_cell(page, name, row, column, shape):
    """Click the cell of a station at a row and a column, and wait for its card."""
    canvas = page.locator(f'.scene-station canvas[data-name="{name}"]')
    box = canvas.bounding_box()
    rows, columns = shape
    canvas.click(position={"x": (column + 0.5) * box["width"] / columns, "y": (row + 0.5) * box["height"] / rows})
    page.wait_for_function(CARD_OF, arg=f"{name}[")


def said_value(page):
    return float(page.locator("#card .value").inner_text().replace("−", "-"))


def changed(page, words):
    """Wait for a strip that names the last change, and return what all of them are."""
    page.wait_for_selector(f"#strip .token:has-text('{words}')")
    rest(page)
    return [(one["word"], one["name"], one["where"], one["value"]) for one in told(page)["changes"]]


@pytest.mark.parametrize("architecture", TEXTS)
def test_a_cell_of_the_picture_opens_the_card_of_that_number(architecture, page, server, explorer):
    opened(page, server, architecture)
    run = explorer.session(read_state(state(architecture))).run
    names = page.locator(".scene-station canvas").evaluate_all("all => all.map(one => one.dataset.name)")
    assert len(names) >= 12
    for name in names[:: len(names) // 4]:
        array = run[name][0]
        shape = array.shape[-2:] if array.ndim > 1 else (1, *array.shape)
        row, column = shape[0] - 1, min(2, shape[1] - 1)
        click_cell(page, name, row, column, shape)
        expected = array[0, row, column] if array.ndim == 3 else array.reshape(shape)[row, column]
        assert said_value(page) == pytest.approx(expected, rel=1e-15, abs=1e-300), name


def test_the_picture_is_read_by_blocks_heads_directions_tokens_and_names(page, server, explorer, monkeypatch):
    opened(page, server, "decoder")
    page.get_by_role("button", name="Open block 1").click()
    page.wait_for_selector('.scene-station canvas[data-name="blocks.1.attention"]')
    page.get_by_role("button", name="head 1", exact=True).first.click()
    page.locator(".scene-token").last.hover()
    weights = explorer.session(read_state(state("decoder"))).run["blocks.1.attention.attend.weights"][0, 1, -1]
    said = page.locator(".scene-said").inner_text()
    assert "in block 1, head 1, it looks at" in said
    assert f"{weights[int(np.argmax(weights))]:.1%}".replace("%", " %") in said
    page.get_by_role("button", name="Backward", exact=True).click()
    page.wait_for_function("() => document.querySelector('.scene-said')?.textContent.includes('gradient')")
    assert told(page)["look"]["scene"] == {"decoder": {"open": 1, "head": 1}, "shown": "gradients"}
    click_cell(page, "blocks.1.attention", 0, 0, (8, 8))
    assert page.locator("#card h2").inner_text().startswith("∂ / ∂ blocks.1.attention[0, 0, 0]")
    page.keyboard.press("Escape")
    page.go_back()
    page.wait_for_selector('.scene-tools [aria-pressed=true]:has-text("Forward")')
    page.get_by_role("button", name="mixture").click()
    page.wait_for_selector(".scene-crumbs:has-text('block 1 › attention')")
    assert page.locator(".scene-detail .heat canvas").count() == 1

    # Every name of the record, in the order of the computation; this architecture has what both others have.
    opened(page, server, "encoder-decoder")
    page.locator(".every > summary").click()
    page.get_by_role("button", name="Open all").click()
    page.wait_for_selector(".node .node .heat canvas[data-painted]")
    rest(page)
    shown = " ".join(page.locator("[data-tensor]").evaluate_all("all => all.map(one => one.dataset.tensor)")).split()
    run = explorer.session(read_state(state("encoder-decoder"))).run
    assert set(shown) == {*run, *flatten(run.params)}
    assert page.locator(".heat .bad").count() == 0
    heads = page.locator('[data-name="decoder.blocks.0"] > .body > .node > .head strong')
    norms = ["attention norm", "attention", "cross attention norm", "cross attention"]
    assert heads.all_inner_texts() == [*norms, "feed forward norm", "feed forward"]

    # A cell that stands for several entries says the one whose card it opens.
    monkeypatch.setattr(tiles, "LARGEST", 3)  # cells along a side
    visit(page, server, "#view canvas", **state("decoder", text="for y in", look={"tensors": {"open": ["embedding"]}}))
    canvas = page.locator('[data-tensor~="embedding"] canvas').first
    canvas.press("ArrowDown")
    said = page.locator('[data-tensor~="embedding"] .under').first.inner_text()
    assert "the farthest from 0 of 3 × 3 entries" in said
    canvas.press("Enter")
    page.wait_for_selector("#card h2:has-text('embed')")
    rest(page)
    assert said.startswith(f"[{', '.join(map(str, told(page)['look']['card']['open']['index']))}] ")
    assert f"= {page.locator('#card .value').inner_text()}," in said


def test_a_card_has_its_formula_source_links_and_proof_and_its_own_address(page, server):
    opened(page, server, "decoder", look={"tensors": {"open": ["blocks.0", "blocks.0.attention"]}})
    canvas = page.locator('[data-tensor~="blocks.0.attention"] canvas').first
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        canvas.press(key)
    page.wait_for_selector("#card .value")
    assert page.locator("#card .formula math").count() > 0
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
    for index in ([0, 1, 2], [0, 1, 3]):
        look = {"card": {"open": {"name": "blocks.1.attention", "index": index}}}
        visit(page, server, **state("decoder", view="scene", look=look))
        page.wait_for_selector(f"#card h2:has-text('blocks.1.attention{index}')")
    visit(page, server, **state("decoder", view="scene"))
    page.wait_for_selector("#card", state="hidden")


def test_heads_sublayers_norms_and_tokens_are_switched_off_where_they_stand(page, server):
    opened(page, server, "decoder")
    page.get_by_role("button", name="What happens without head 0?").click()
    page.wait_for_selector(".scene-story:has-text('Without head 0 of block 0, “')")
    change = {"word": "zero", "name": "blocks.0.attention.output.x", "where": {"head": 0}, "value": 0, "other": ""}
    assert told(page)["changes"] == [change]
    page.get_by_role("button", name="What changed").click()
    rest(page)
    assert page.locator(".scene-answer .odds").count() == 7
    page.get_by_role("button", name="Switch head 0 on again").click()
    page.wait_for_selector(".scene-story:has-text('The likeliest')")

    opened(page, server, "decoder", look={"scene": {"zoom": "blocks.0.feed_forward"}})
    page.get_by_role("button", name="What happens without this sublayer?").click()
    page.wait_for_selector(".scene-story:has-text('Without the feed-forward of block 0, ')")
    page.get_by_role("button", name="Switch this sublayer on again").click()
    page.wait_for_selector(".scene-story:has-text('The likeliest')")
    page.get_by_role("button", name="norm", exact=True).first.click()
    page.get_by_role("button", name="What happens without this norm?").click()
    page.wait_for_selector(".scene-story:has-text('Without blocks.0.attention_norm, ')")
    page.locator(".scene-token").nth(2).click()
    page.get_by_role("button", name="Zeros for its vector").click()
    assert [word for word, *_ in changed(page, "without the vector of “r” at 2")] == ["put", "put", "zero"]

    # Values, gradients and what a change did stand side by side; all of it is taken back, and that as well.
    cut = {"word": "zero", "name": "blocks.0.attention"}
    opened(page, server, "decoder", changes=[cut], look={"tensors": {"open": ["blocks.1"]}})
    heats = page.locator('[data-tensor~="blocks.1"] figure')
    for name, count in (("Forward", 1), ("Backward", 1), ("Both", 2), ("What changed", 3)):
        page.get_by_role("button", name=name, exact=True).click()
        expect(heats).to_have_count(count)
    assert "hatched: before" in page.locator("#view").inner_text()
    page.get_by_role("button", name="Take all back").click()
    expect(page.locator("#strip")).not_to_contain_text("without the attention of block 0")
    page.keyboard.press("Control+z")
    expect(page.locator("#strip")).to_contain_text("without the attention of block 0")


def test_tokens_neurons_and_parameters_are_edited_where_they_stand(page, server, explorer):
    opened(page, server, "decoder")
    page.locator(".scene-token").nth(4).click()
    page.get_by_label("In the place of").fill("y")
    page.get_by_label("In the place of").press("Enter")
    number = explorer.session(read_state(state("decoder"))).run.token_id("y")
    sent = [(name, where["position"], value) for _, name, where, value in changed(page, "y")]
    assert sent == [("tokens", 4, number), ("targets", 3, number)]
    assert page.locator(".scene-token.put").all_inner_texts() == ["y"]
    assert page.locator(".scene-story").inner_text().startswith("With “y” in the place of “x” at 4, ")

    opened(page, server, "decoder")
    click_cell(page, "blocks.0.feed_forward.down.x", 2, 3, (8, 16))
    page.get_by_label("Neuron 3 at all positions, times").fill("2")
    page.get_by_role("button", name="Scale it").click()
    changed(page, "with neuron 3 of block 0 times 2")
    page.get_by_role("button", name="query", exact=True).click()
    page.locator(".scene-detail summary").click()
    rest(page)
    page.locator(".scene-detail details canvas").first.click(position={"x": 3, "y": 3})
    page.wait_for_function(CARD_OF, arg="blocks.0.attention.query.w[")
    page.get_by_label("Another number in its place").fill("0.75")
    page.get_by_role("button", name="Put it there").click()
    assert changed(page, "with blocks.0.attention.query.w (row 0, feature 0) = 0.75") == [
        ("scale", "blocks.0.feed_forward.down.x", {"feature": 3}, 2),
        ("put", "blocks.0.attention.query.w", {"row": 0, "feature": 0}, 0.75),
    ]


def large(page, server, architecture="decoder", name=WEIGHTS, **more):
    """Open a head in full; return its map of weights."""
    opened(page, server, architecture, look={"scene": {"zoom": name}}, **more)
    page.wait_for_selector(".scene-head .heat canvas[data-painted]")
    rest(page)
    return page.locator(".scene-head .heat canvas").nth(2)


def test_a_head_in_full_allows_a_token_and_lets_a_weight_be_dragged_or_typed(page, server, explorer):
    large(page, server, "encoder-decoder", "decoder.blocks.1.cross_attention.attend.weights")
    run = explorer.session(read_state(state("encoder-decoder"))).run
    for side, tokens in ((":not(.across)", run.batch.tokens), (".across", run.batch.source)):
        assert page.locator(f".scene-head .heat >> nth=2 >> .names{side} span").count() == tokens.shape[1]
    weights = large(page, server)
    assert page.locator(".scene-head .heat").count() == 3
    assert page.locator(".scene-head h3").inner_text().startswith("Block 0, head 0: ")
    weights.focus()
    page.keyboard.press("ArrowRight")
    assert "it may not" in page.locator(".scene-cell").inner_text()
    page.keyboard.press("Enter")
    page.click("button:has-text('Allow')")
    assert [one[:2] for one in changed(page, "allowed to look at")] == [("put", "blocks.0.attention.attend.mask")]

    weights = large(page, server)
    weights.scroll_into_view_if_needed()
    box = weights.bounding_box()
    each = box["height"] / 8
    page.mouse.move(box["x"] + 1.5 * each, box["y"] + 3.5 * each)  # of the third row, the first key
    page.mouse.down()
    page.mouse.move(box["x"] + 1.5 * each, box["y"] + 3.5 * each - 40, steps=4)
    assert "let go to run the model with it" in page.locator(".scene-cell").inner_text()
    page.mouse.up()
    changed(page, "with weight")
    assert page.locator("#card").is_hidden()
    field = page.get_by_label("Weight", exact=True)
    field.fill("0.9")
    field.press("Enter")
    assert [word for word, *_ in changed(page, "with weight 0.9")] == ["scale", "put"]
    row = explorer.session(read_state(state("decoder", changes=told(page)["changes"]))).run[WEIGHTS][0, 0, 3]
    assert row[1] == 0.9
    assert row.sum() == pytest.approx(1, rel=1e-12)
    assert page.evaluate("document.activeElement.dataset.key") == "weight"
    assert page.locator(".scene-story").inner_text().startswith("With weight 0.9 from")
    slider = page.get_by_label("Weight, by dragging")  # a finger would scroll the map
    assert slider.evaluate("one => getComputedStyle(one).touchAction") == "none"
    slider.click()
    page.wait_for_selector("#strip:has-text('with weight 0.5')")


def test_the_picture_fits_a_phone_and_a_page_around_it_chooses_light_or_dark(page, server):
    large(page, server, "encoder-decoder", "decoder.blocks.0.cross_attention.attend.weights")
    page.locator(".scene-token").first.click()
    page.locator(".scene-cards summary").last.click()
    check_access(page)
    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    check_access(page)
    page.emulate_media(color_scheme="light")
    opened(page, server, "decoder")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    picture = "document.querySelector('.scene canvas').toDataURL()"
    light = page.evaluate(paper), page.evaluate(picture)
    page.evaluate("postMessage({theme: 'dark'}, '*')")  # from its parent, which is itself: it stands in no frame
    page.wait_for_function(f"{paper} == 'rgb(21, 23, 26)'")
    rest(page)
    assert page.evaluate(picture) != light[1]
    page.emulate_media(color_scheme="dark")
    page.evaluate("postMessage({theme: 'light'}, '*')")
    page.wait_for_function(f"{paper} == '{light[0]}'")
    rest(page)
    assert page.evaluate(picture) == light[1]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_opens_in_every_view_and_a_card_of_it_is_proved(name, page, server, explorer):
    if name not in explorer.offers:
        explorer.add(Offer(name, name, "published", name), read_model(pulled(name)))
    own = {"model": name, "text": PUBLISHED[name]}
    page.goto("about:blank")  # the list of models is read when a page begins
    visit(page, server, ".scene-picture", **own)
    assert page.locator(".scene-token").count() == 4
    walk(page)
    stack = "decoder" if name == "smollm2" else "encoder"
    visit(page, server, ".scene-cards", **own, look={"scene": {stack: {"open": 2, "head": 1}}})
    page.get_by_role("button", name="What happens without head 1?").click()
    page.wait_for_selector("#strip .token")
    assert page.locator(".token:has-text('altered nothing')").count() == 0
    change = {"word": "zero", "name": "blocks.2.attention.output.x", "where": {"head": 1}, "value": 0, "other": ""}
    assert told(page)["changes"] == [change]
    if name == "minilm":
        card = {"name": "blocks.5.feed_forward", "index": [0, 1, 1]}
        visit(page, server, "#card .value", **own, look={"card": {"open": card}})
        value = explorer.session(read_state(own)).run[card["name"]][0, 1, 1]
        assert said_value(page) == pytest.approx(float(value), rel=1e-6)
        page.get_by_role("button", name="Prove it").click()
        page.wait_for_selector("#card .good", timeout=120_000)  # the whole model runs back in double precision


def test_the_words_that_decided_are_colored(page, server, explorer):
    opened(page, server, "encoder")
    page.get_by_role("button", name="Which words decided?").click()
    page.wait_for_selector(".scene-words p.mono")
    found = explorer.opened(state("encoder")["model"]).model.explain(TEXTS["encoder"])
    for number, measure in enumerate(("left_out", "integrated")):
        passage = page.locator(".scene-words p.mono").nth(number)
        assert passage.inner_text() == found.text
        strongest = max(range(len(found.words)), key=lambda n: abs(getattr(found.words[n], measure)))
        colors = passage.locator("span").evaluate_all("all => all.map(one => one.style.background)")
        assert colors[strongest] in ("rgb(190, 84, 0)", "rgb(23, 78, 166)")
    rest(page)
    opened(page, server, "decoder")
    assert page.get_by_role("button", name="Which words decided?").count() == 0
