"""The page as a whole, in a real browser: it opens for every architecture, and everybody can use it."""

import pytest

from browser import TASKS, check_access, state, visit


@pytest.mark.parametrize("architecture", TASKS)
def test_it_opens_for_every_architecture(architecture, page, server):
    visit(page, server, "#view .node", **state(architecture))
    assert page.locator("#model").input_value() == architecture
    page.get_by_role("button", name="Open all").click()
    page.wait_for_selector("#view canvas")
    page.wait_for_load_state("networkidle")


def test_everybody_can_use_it(page):
    check_access(page)


def test_bad_input_is_refused_in_words(page, server, troubles):
    visit(page, server, "#status p", **state("encoder", changes=[{"word": "zero", "name": "nowhere"}]))
    assert "nowhere" in page.locator("#status").inner_text()
    troubles.forgive("400")
