"""The way back on the page: what runs back, the walk, tokens and steps."""

import pytest

from browser import GO_ON, address, check_access, rest, state, told, visit
from glassformer.web.state import read_state


def opened(page, server, architecture="decoder", **more):
    """The view, with a state as an address has it."""
    visit(page, server, "[data-view=backward] .walk .stop", **state(architecture), view="backward", **more)


def test_the_gradient_is_walked_from_the_end(page, server, explorer):
    opened(page, server, look={"backward": {"point": 0}})
    stops = page.locator(".walk .stop")
    assert stops.nth(0).get_attribute("aria-current") == "step"
    stops.nth(1).click()
    assert stops.nth(1).get_attribute("aria-current") == "step"
    page.locator("canvas[aria-label^='gradient of blocks.1']").wait_for()
    opened(page, server, look={})  # at first, the embedding
    assert stops.nth(5).get_attribute("aria-current") == "step"
    back = explorer.session(read_state(state("decoder"))).gradients
    assert page.locator(".flowed tbody tr").count() == 4
    assert float(page.locator(".walk .stop .mono").nth(5).inner_text().replace("−", "-")) == pytest.approx(
        float((back["embedding"] ** 2).sum()) ** 0.5, rel=1e-2
    )


def test_a_difference_of_logits_runs_back(page, server, explorer):
    opened(page, server)
    page.get_by_role("button", name="one logit minus another").click()
    page.get_by_label("The logit of", exact=True).fill("#3")
    page.get_by_label("The logit of", exact=True).press("Enter")
    page.locator("button[title='token 3']:focus").press("Enter")
    page.locator("p", has_text=" above ").wait_for()
    of = told(page)["of"]
    assert (of["kind"], of["token"]) == ("logit", 3)
    found = explorer.session(read_state(state("decoder", of=of)))
    assert page.locator("[data-view=backward] code").first.inner_text().replace("−", "-") == str(
        found.of.value(found.run)
    )


def test_any_entry_runs_back_and_others_are_refused(page, server, troubles):
    opened(page, server)
    page.get_by_role("button", name="any entry").click()
    page.get_by_label("Value", exact=True).fill("blocks.0")
    page.get_by_label("Index", exact=True).fill("0, 99, 1")
    page.get_by_role("button", name="Show its gradient").click()
    page.locator("#status", has_text="blocks.0 has no entry").wait_for()
    page.get_by_label("Index", exact=True).fill("0, 2, 1")
    page.get_by_role("button", name="Show its gradient").click()
    page.locator("#view").get_by_text("blocks.0[0, 2, 1]", exact=True).wait_for()
    assert told(page)["of"] == {"kind": "entry", "name": "blocks.0", "index": [0, 2, 1]}
    troubles.forgive("400")


def test_a_step_is_taken_and_taken_back(page, server, explorer):
    opened(page, server)
    page.get_by_label("Learning rate", exact=True).fill("0.1")
    page.get_by_label("Learning rate", exact=True).press("Tab")
    page.get_by_role("button", name="Preview the step").click()
    page.get_by_text("the next step: loss").wait_for()
    page.get_by_role("button", name="Take the step").click()
    page.get_by_text("so far").wait_for()
    step = {"optimizer": "sgd", "lr": 0.1}
    assert told(page)["steps"] == [step]
    before, after = (explorer.session(read_state(state("decoder", steps=n * [step]))).run.loss for n in (0, 1))
    shown = page.locator(".losses").first.locator("span[title]").all()
    assert [one.get_attribute("title") for one in shown] == [str(before), str(after)]
    assert after < before
    page.get_by_role("button", name="Undo", exact=True).click()
    page.get_by_text("so far").wait_for(state="detached")
    assert "steps" not in told(page)


def test_an_answer_that_comes_when_the_page_has_gone_on_asks_for_nothing_of_the_new_model(new_page, server):
    page = new_page  # which remembers no answers
    opened(page, server)
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


def first_held(page, word):
    """Hold the first question of a word from now on, until somebody lets it go; it is in a list then."""
    held = []
    page.route(f"**/ask/{word}", lambda route: route.continue_() if held else held.append(route))
    return held


def wait_until(page, held):
    while not held:
        page.wait_for_timeout(5)


def test_everybody_can_use_it(page, server):
    opened(page, server, "encoder-decoder")
    assert page.locator(".told").count() > 0
    check_access(page)
