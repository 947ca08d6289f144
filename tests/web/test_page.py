"""The page as a whole, in a real browser: it opens for every architecture, and everybody can use it."""

import json
from urllib.parse import quote

import pytest

from browser import TASKS, check_access, state


def address(server, **told):
    """The address that opens a state."""
    return f"{server.address}#{quote(json.dumps(told))}"


@pytest.mark.parametrize("architecture", TASKS)
def test_it_opens_for_every_architecture(architecture, page, server):
    page.goto(address(server, **state(architecture)))
    page.reload()
    page.wait_for_selector("#view .node")
    assert page.locator("#model").input_value() == architecture
    page.get_by_role("button", name="Open all").click()
    page.wait_for_selector("#view canvas")
    page.wait_for_load_state("networkidle")


def test_everybody_can_use_it(page):
    check_access(page)


def test_bad_input_is_refused_in_words(page, server, troubles):
    page.goto(address(server, **state("encoder", changes=[{"word": "zero", "name": "nowhere"}])))
    page.reload()
    page.wait_for_selector("#status p")
    assert "nowhere" in page.locator("#status").inner_text()
    troubles.forgive("400")
