"""The scene in a real browser: one picture of the run, in which everything is pointed at, opened, changed and read."""

import numpy as np
import pytest
from playwright.sync_api import expect

from browser import GO_ON, NARROW, TEXTS, address, check_access, rest, state, told, visit
from glassformer.core.tree import flatten
from glassformer.web.router import ask
from glassformer.web.routes import tiles
from glassformer.web.state import read_state

CARD_OF = (
    "(name) => document.querySelector('#card .value') && document.querySelector('#card h2').innerText.includes(name)"
)
PAINTED = ".scene-station canvas[data-painted=yes]"


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


def test_pointing_at_a_token_says_what_it_looks_at(page, server, explorer):
    opened(page, server, "decoder", look={"scene": {"decoder": {"open": 1, "head": 1}}})
    page.locator(".scene-token").last.hover()
    weights = explorer.session(read_state(state("decoder"))).run["blocks.1.attention.attend.weights"][0, 1, -1]
    best = int(np.argmax(weights))
    said = page.locator(".scene-said").inner_text()
    assert "in block 1, head 1, it looks at" in said
    assert f"{weights[best]:.1%}".replace("%", " %") in said


def test_blocks_heads_and_directions_are_chosen_in_the_picture_and_back_returns(page, server):
    opened(page, server, "decoder")
    page.get_by_role("button", name="Open block 1").click()
    page.wait_for_selector('.scene-station canvas[data-name="blocks.1.attention"]')
    page.get_by_role("button", name="head 1", exact=True).first.click()
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


def test_a_head_is_switched_off_in_place_and_the_answer_says_what_it_did(page, server, explorer):
    opened(page, server, "decoder")
    page.get_by_role("button", name="What happens without head 0?").click()
    page.wait_for_selector(".scene-story:has-text('Without head 0 of block 0, “')")
    change = {"word": "zero", "name": "blocks.0.attention.output.x", "where": {"head": 0}, "value": 0, "other": ""}
    assert told(page)["changes"] == [change]
    session = explorer.session(read_state(state("decoder", changes=[change])))
    assert not np.array_equal(session.run["logits"], session.plain["logits"])
    page.get_by_role("button", name="What changed").click()
    rest(page)
    rows = ask(explorer, "outcome", {"state": state("decoder", changes=[change])})["rows"]
    assert page.locator(".scene-answer .odds").count() == 7
    for said, row in zip(page.locator(".scene-answer .odds").all_inner_texts()[:6], rows, strict=False):
        assert [float(one.strip(" %")) for one in said.split("→")] == pytest.approx(
            [100 * row["before"], 100 * row["after"]], abs=0.06
        )
    page.get_by_role("button", name="Switch head 0 on again").click()
    page.wait_for_function("() => document.querySelector('.scene-story')?.textContent.startsWith('The likeliest')")


WEIGHTS = "blocks.0.attention.attend.weights"


def large(page, server, architecture="decoder", name=WEIGHTS, **more):
    """Open a head in full; return its map of weights."""
    opened(page, server, architecture, look={"scene": {"zoom": name}}, **more)
    page.wait_for_selector(".scene-head .heat canvas[data-painted]")
    rest(page)
    return page.locator(".scene-head .heat canvas").nth(2)


def test_a_head_in_full_shows_products_scores_and_weights_with_words(page, server, explorer):
    weights = large(page, server)
    assert page.locator(".scene-head .heat").count() == 3
    assert page.locator(".scene-head h3").inner_text().startswith("Block 0, head 0: ")
    weights.focus()
    page.keyboard.press("ArrowRight")
    assert "it may not" in page.locator(".scene-cell").inner_text()
    page.keyboard.press("Enter")
    page.click("button:has-text('Allow')")
    page.wait_for_selector("#strip:has-text('allowed to look at')")
    assert [(one["word"], one["name"]) for one in told(page)["changes"]] == [("put", "blocks.0.attention.attend.mask")]
    cross = "decoder.blocks.1.cross_attention.attend.weights"
    large(page, server, "encoder-decoder", cross)
    shown = ask(explorer, "run", {"state": state("encoder-decoder")})
    for side, part in ((":not(.across)", "tokens"), (".across", "source")):
        assert page.locator(f".scene-head .heat >> nth=2 >> .names{side} span").count() == len(shown[part])


def test_what_is_still_drawn_when_the_page_goes_on_to_another_model_asks_about_its_own_run(page, server):
    opened(page, server, "encoder")
    late = []
    with page.expect_request("**/ask/scene"):
        page.route("**/ask/scene", lambda route: late.append(route) if not late else route.continue_())
        page.evaluate(GO_ON, address(server, **state("decoder", text="for z in")))
    page.route("**/ask/run", lambda route: late.append(route))
    with page.expect_request("**/ask/run"):
        page.evaluate(GO_ON, address(server, **state("encoder-decoder", text="4. Mai 2004")))
    late.pop(0).continue_()  # the first picture is drawn while the second run is on its way
    page.wait_for_selector('.scene-station canvas[data-name="blocks.0.attention"][data-painted]')
    late.pop(0).continue_()
    page.unroute_all()
    page.wait_for_selector('.scene-station canvas[data-name^="decoder."]')
    rest(page)
    assert page.locator("#view .bad").count() == 0


def test_a_weight_is_dragged_or_typed_and_its_row_still_sums_to_one(page, server, explorer):
    weights = large(page, server)
    weights.scroll_into_view_if_needed()
    box = weights.bounding_box()
    each = box["height"] / 8
    page.mouse.move(box["x"] + 1.5 * each, box["y"] + 3.5 * each)  # of the third row, the first key
    page.mouse.down()
    page.mouse.move(box["x"] + 1.5 * each, box["y"] + 3.5 * each - 40, steps=4)
    assert "let go to run the model with it" in page.locator(".scene-cell").inner_text()
    page.mouse.up()
    page.wait_for_selector("#strip:has-text('with weight')")
    rest(page)
    assert page.locator("#card").is_hidden()
    field = page.get_by_label("Weight", exact=True)
    field.fill("0.9")
    field.press("Enter")
    page.wait_for_selector("#strip:has-text('with weight 0.9')")
    changes = told(page)["changes"]
    assert [one["word"] for one in changes] == ["scale", "put"]
    row = explorer.session(read_state(state("decoder", changes=changes))).run[WEIGHTS][0, 0, 3]
    assert row[1] == 0.9
    assert row.sum() == pytest.approx(1, rel=1e-12)
    rest(page)
    assert page.evaluate("document.activeElement.dataset.key") == "weight"
    assert page.locator(".scene-story").inner_text().startswith("With weight 0.9 from")
    slider = page.get_by_label("Weight, by dragging")  # a finger would scroll the map
    assert slider.evaluate("one => getComputedStyle(one).touchAction") == "none"
    slider.click()
    page.wait_for_selector("#strip:has-text('with weight 0.5')")


def test_a_sublayer_a_norm_and_a_token_are_switched_off_where_they_stand(page, server):
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
    page.wait_for_selector("#strip:has-text('without the vector of “r” at 2')")
    assert [one["word"] for one in told(page)["changes"]] == ["put", "put", "zero"]


def test_another_token_is_typed_at_its_lane_and_the_loss_asks_for_it(page, server, explorer):
    opened(page, server, "decoder")
    page.locator(".scene-token").nth(4).click()
    field = page.get_by_label("In the place of")
    field.fill("y")
    field.press("Enter")
    page.wait_for_selector("#strip .token")
    number = explorer.session(read_state(state("decoder"))).run.token_id("y")
    sent = [(one["name"], one["where"]["position"], one["value"]) for one in told(page)["changes"]]
    assert sent == [("tokens", 4, number), ("targets", 3, number)]
    rest(page)
    assert page.locator(".scene-token.put").all_inner_texts() == ["y"]
    assert page.locator(".scene-story").inner_text().startswith("With “y” in the place of “x” at 4, ")


def test_a_neuron_is_scaled_and_a_weight_edited_on_their_cards(page, server):
    opened(page, server, "decoder")
    click_cell(page, "blocks.0.feed_forward.down.x", 2, 3, (8, 16))
    page.get_by_label("Neuron 3 at all positions, times").fill("2")
    page.get_by_role("button", name="Scale it").click()
    page.wait_for_selector("#strip:has-text('with neuron 3 of block 0 times 2')")
    rest(page)
    page.get_by_role("button", name="query", exact=True).click()
    page.locator(".scene-detail summary").click()
    rest(page)
    page.locator(".scene-detail details canvas").first.click(position={"x": 3, "y": 3})
    page.wait_for_function(CARD_OF, arg="blocks.0.attention.query.w[")
    page.get_by_label("Another number in its place").fill("0.75")
    page.get_by_role("button", name="Put it there").click()
    page.wait_for_selector("#strip:has-text('with blocks.0.attention.query.w (row 0, feature 0) = 0.75')")
    words = [(one["word"], one["where"], one["value"]) for one in told(page)["changes"]]
    assert words == [("scale", {"feature": 3}, 2), ("put", {"row": 0, "feature": 0}, 0.75)]


def test_the_picture_is_accessible_and_fits_a_phone(page, server):
    large(page, server, "encoder-decoder", "decoder.blocks.0.cross_attention.attend.weights")
    page.locator(".scene-token").first.click()
    page.locator(".scene-cards summary").last.click()
    check_access(page)
    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    page.emulate_media(color_scheme="dark")
    check_access(page)


def test_a_page_around_it_chooses_light_or_dark(page, server):
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


def test_every_name_of_the_record_is_reached_by_clicks(page, server, explorer):
    architecture = "encoder-decoder"  # it has what both others have
    opened(page, server, architecture)
    page.locator(".every > summary").click()
    page.wait_for_selector(".every .node")
    page.get_by_role("button", name="Open all").click()
    page.wait_for_selector(".node .node .heat canvas[data-painted]")
    rest(page)
    shown = " ".join(page.locator("[data-tensor]").evaluate_all("all => all.map(one => one.dataset.tensor)")).split()
    run = explorer.session(read_state(state(architecture))).run
    assert set(shown) == {*run, *flatten(run.params)}
    assert page.locator(".heat .bad").count() == 0


def test_a_cell_opens_its_card_with_formula_source_links_and_proof(page, server, explorer):
    opened(page, server, "decoder", look={"tensors": {"open": ["blocks.0", "blocks.0.attention"]}})
    canvas = page.locator('[data-tensor~="blocks.0.attention"] canvas').first
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        canvas.press(key)
    page.wait_for_selector("#card .value")
    value = explorer.session(read_state(state("decoder"))).run["blocks.0.attention"][0, 1, 2]
    said = page.locator("#card .value").inner_text().replace("−", "-")
    assert float(said) == pytest.approx(value, rel=1e-15)
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


def test_values_gradients_and_what_a_change_did_stand_side_by_side(page, server):
    change = {"word": "zero", "name": "blocks.0.attention"}
    opened(page, server, "decoder", changes=[change], look={"tensors": {"open": ["blocks.1"]}})
    heats = page.locator('[data-tensor~="blocks.1"] figure')
    for name, count in (("Forward", 1), ("Backward", 1), ("Both", 2), ("What changed", 3)):
        page.get_by_role("button", name=name, exact=True).click()
        expect(heats).to_have_count(count)
    assert "hatched: before" in page.locator("#view").inner_text()
    strip = page.locator("#strip")
    page.get_by_role("button", name="Take all back").click()
    expect(strip).not_to_contain_text("without the attention of block 0")
    page.keyboard.press("Control+z")
    expect(strip).to_contain_text("without the attention of block 0")


def test_a_block_of_a_decoder_lists_its_parts_in_the_order_of_the_computation(page, server):
    opened(page, server, "encoder-decoder", look={"tensors": {"open": ["decoder.blocks.0"]}})
    heads = page.locator('[data-name="decoder.blocks.0"] > .body > .node > .head strong')
    norms = ["attention norm", "attention", "cross attention norm", "cross attention"]
    assert heads.all_inner_texts() == [*norms, "feed forward norm", "feed forward"]


def test_a_coarse_cell_says_the_entry_whose_card_it_opens(page, server, explorer, monkeypatch):
    monkeypatch.setattr(tiles, "LARGEST", 3)  # cells along a side
    visit(page, server, "#view canvas", **state("decoder", text="for y in", look={"tensors": {"open": ["embedding"]}}))
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
    visit(page, server, **state("decoder", view="scene", look={"card": {"open": one}}))
    page.wait_for_selector("#card h2:has-text('blocks.1.attention[0, 1, 2]')")
    other = {**one, "index": [0, 1, 3]}
    visit(page, server, **state("decoder", view="scene", look={"card": {"open": other}}))
    page.wait_for_selector("#card h2:has-text('blocks.1.attention[0, 1, 3]')")
    visit(page, server, **state("decoder", view="scene"))
    page.wait_for_selector("#card", state="hidden")
