"""Journeys through the experiments: the lens, changes by a form and by a sweep, and the way back with its steps.

Numbers are compared with Python's where the routes answer; here is what clicks ask for and what stands on the page.
"""

import pytest

from browser import GO_ON, address, rest, state, told, visit


def number(text):
    """Return a number as the page writes it."""
    return float(text.replace("−", "-").replace("+", ""))


def show_lens(page, server, architecture, **settings):
    visit(page, server, ".lens-table", **state(architecture), view="lens", look={"lens": settings})
    page.wait_for_selector(".lens-parts")


def test_the_lens_has_its_rows_follows_a_token_and_refuses_one_that_does_not_exist(page, server, troubles):
    for architecture, columns in {"encoder": 1, "encoder-decoder": 8, "decoder": 8}.items():
        show_lens(page, server, architecture, against="#0", token="#1")
        assert page.locator(".lens-table tbody th").all_inner_texts() == ["embedding", "block 0", "block 1"]
        assert page.locator(".lens-table thead th").count() == columns + 1
        for table in page.locator(".lens-parts").all():  # bars sum to the logit
            bars = [number(bar) for bar in table.locator("tbody td.number").all_inner_texts()]
            assert sum(bars) == pytest.approx(number(table.locator("tfoot td.number").inner_text()), abs=2e-3)
        page.locator(".lens-cell").last.focus()
        page.wait_for_selector(".lens-said .token")
        assert page.locator(".lens-said .token").count() == (3 if architecture == "encoder" else 5)
    show_lens(page, server, "decoder")
    page.locator(".lens-table tbody tr").nth(1).locator(".lens-cell").nth(2).click()
    page.wait_for_selector(".lens-cell:has-text('rank 1')")
    followed = told(page)["look"]["lens"]
    assert (followed["position"], followed["token"][0]) == (2, "#")
    page.click("button:has-text('Follow none')")
    page.wait_for_selector(".lens-table")
    assert page.locator(".lens-cell:has-text('rank')").count() == 0
    page.fill("input[placeholder=any]", "#999999")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lens-progress .bad:has-text('999999')")
    troubles.forgive("400")


def test_values_are_changed_by_the_form_and_by_a_sweep_of_all_heads(page, server, troubles):
    visit(page, server, "[data-view=change] form", **state("decoder"), view="change")
    page.get_by_text("4 runs, about").wait_for()
    page.get_by_role("button", name="Start").click()
    page.locator(".sweep .cell").nth(3).click()
    page.wait_for_selector("#strip .token")
    assert told(page)["changes"][0]["name"] == "blocks.1.attention.output.x"

    visit(page, server, "[data-view=change] form", **state("decoder"), view="change")
    page.get_by_label("What to do").select_option("take")  # from a text of another length: refused, and not kept
    page.get_by_label("Second text", exact=True).fill("short")
    page.get_by_label("Second text", exact=True).press("Tab")
    page.get_by_text("not as many tokens").wait_for()
    page.get_by_role("button", name="Do it").click()
    page.locator("#status", has_text="take from a run on as many tokens").wait_for()
    assert "changes" not in told(page)
    troubles.forgive("400")
    page.get_by_label("What to do").select_option("put")
    for label, text in {"Value": "blocks.1", "feature of 8": "3", "Number": "2.5"}.items():
        page.get_by_label(label, exact=True).fill(text)
        page.get_by_label(label, exact=True).press("Tab")
    page.get_by_role("button", name="Do it").click()
    page.wait_for_selector("#strip .token")
    change = {"word": "put", "name": "blocks.1", "where": {"feature": 3}, "value": 2.5, "other": ""}
    assert told(page)["changes"] == [change]


def show_backward(page, server, **more):
    visit(page, server, "[data-view=backward] .walk .stop", **state("decoder"), view="backward", **more)


def test_a_loss_a_logit_and_any_entry_run_back_and_a_step_is_taken_and_taken_back(page, server, troubles):
    show_backward(page, server)
    stops = page.locator(".walk .stop")
    assert stops.nth(5).get_attribute("aria-current") == "step"  # at first, the embedding
    assert page.locator(".flowed tbody tr").count() == 4
    stops.nth(1).click()
    assert stops.nth(1).get_attribute("aria-current") == "step"
    page.locator("canvas[aria-label^='gradient of blocks.1']").wait_for()

    page.get_by_role("button", name="one logit minus another").click()
    page.get_by_label("The logit of", exact=True).fill("#3")
    page.get_by_label("The logit of", exact=True).press("Enter")
    page.locator("button[title='token 3']:focus").press("Enter")
    page.locator("p", has_text=" above ").wait_for()
    assert (told(page)["of"]["kind"], told(page)["of"]["token"]) == ("logit", 3)

    page.get_by_role("button", name="any entry").click()
    page.get_by_label("Value", exact=True).fill("blocks.0")
    for index, answer in {"0, 99, 1": "#status :text('blocks.0 has no entry')", "0, 2, 1": "#view"}.items():
        page.get_by_label("Index", exact=True).fill(index)
        page.get_by_role("button", name="Show its gradient").click()
        page.locator(answer).first.wait_for()
    page.locator("#view").get_by_text("blocks.0[0, 2, 1]", exact=True).wait_for()
    assert told(page)["of"] == {"kind": "entry", "name": "blocks.0", "index": [0, 2, 1]}
    troubles.forgive("400")

    show_backward(page, server)
    page.get_by_label("Learning rate", exact=True).fill("0.1")
    page.get_by_label("Learning rate", exact=True).press("Tab")
    page.get_by_role("button", name="Preview the step").click()
    page.get_by_text("the next step: loss").wait_for()
    page.get_by_role("button", name="Take the step").click()
    page.get_by_text("so far").wait_for()
    assert told(page)["steps"] == [{"optimizer": "sgd", "lr": 0.1}]
    before, after = (float(one.get_attribute("title")) for one in page.locator(".losses >> nth=0 >> span[title]").all())
    assert after < before
    page.get_by_role("button", name="Undo", exact=True).click()
    page.get_by_text("so far").wait_for(state="detached")
    assert "steps" not in told(page)


def first_held(page, word):
    """Hold the first question of a word from now on, until somebody lets it go; it is in a list then."""
    held = []
    page.route(f"**/ask/{word}", lambda route: route.continue_() if held else held.append(route))
    return held


def wait_until(page, held):
    while not held:
        page.wait_for_timeout(5)


def test_a_late_answer_about_a_model_that_is_left_asks_for_nothing_of_the_new_one(new_page, server):
    page = new_page  # which remembers no answers
    show_backward(page, server)
    back = first_held(page, "backward")
    page.evaluate(GO_ON, address(server, **state("encoder"), view="backward"))
    wait_until(page, back)
    run = first_held(page, "run")
    page.evaluate(GO_ON, address(server, **state("encoder-decoder"), view="backward"))
    wait_until(page, run)
    back[0].continue_()
    page.wait_for_selector("[data-view=backward] .walk .stop")  # of the encoder, which is still in sight
    run[0].continue_()
    page.get_by_text("encoder.blocks.0").first.wait_for()
    rest(page)
    # The same in the scene: the first picture is drawn while the second run is on its way.
    visit(page, server, ".scene-station", **state("encoder", view="scene"))
    scene = first_held(page, "scene")
    page.evaluate(GO_ON, address(server, **state("decoder", text="for z in")))
    wait_until(page, scene)
    run = first_held(page, "run")
    page.evaluate(GO_ON, address(server, **state("encoder-decoder", text="4. Mai 2004")))
    wait_until(page, run)
    scene[0].continue_()
    page.wait_for_selector('.scene-station canvas[data-name="blocks.0.attention"][data-painted]')
    run[0].continue_()
    page.wait_for_selector('.scene-station canvas[data-name^="decoder."]')
    rest(page)
    assert page.locator("#view .bad").count() == 0
