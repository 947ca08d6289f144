"""Changes made by clicks: what is sent, what is shown, and the way back."""

import numpy as np

from browser import check_access, state, told, visit
from glassformer.interpret import put
from glassformer.web.state import read_state


def opened(page, server, architecture="decoder", **more):
    """The view, with a state as an address has it."""
    visit(page, server, "[data-view=change] form", **state(architecture), view="change", **more)


def test_any_value_is_changed_by_the_form(page, server, explorer):
    opened(page, server)
    page.get_by_label("What to do").select_option("put")
    page.get_by_label("Value", exact=True).fill("blocks.1")
    page.get_by_label("Value", exact=True).press("Tab")
    page.get_by_label("feature of 8").fill("3")
    page.get_by_label("feature of 8").press("Tab")
    page.get_by_label("Number", exact=True).fill("2.5")
    page.get_by_role("button", name="Do it").click()
    page.wait_for_selector("#strip .token")
    changed = told(page)["changes"]
    assert changed == [{"word": "put", "name": "blocks.1", "where": {"feature": 3}, "value": 2.5, "other": ""}]
    found = explorer.session(read_state(state("decoder", changes=changed)))
    np.testing.assert_array_equal(found.run.logits, found.plain.changed(put("blocks.1", 2.5, feature=3)).logits)


def test_what_cannot_be_changed_is_said_and_not_kept(page, server, troubles):
    opened(page, server)
    page.get_by_label("What to do").select_option("take")
    page.get_by_label("Second text", exact=True).fill("short")
    page.get_by_label("Second text", exact=True).press("Tab")
    page.get_by_text("not as many tokens").wait_for()
    page.get_by_role("button", name="Do it").click()
    page.locator("#status", has_text="take from a run on as many tokens").wait_for()
    assert "changes" not in told(page)
    troubles.forgive("400")


def test_every_head_is_tried_and_a_cell_makes_its_change(page, server):
    opened(page, server)
    page.get_by_text("4 runs, about").wait_for()
    page.get_by_role("button", name="Start").click()
    page.wait_for_selector(".sweep .cell")
    assert page.locator(".sweep .cell").count() == 4
    page.locator(".sweep .cell").nth(3).click()
    page.wait_for_selector("#strip .token")
    assert told(page)["changes"][0]["name"] == "blocks.1.attention.output.x"


def test_everybody_can_use_it(page, server):
    opened(page, server, "encoder-decoder")
    check_access(page)
