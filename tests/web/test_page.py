"""The page as a whole, in a real browser: all of it opens for every architecture, and everybody can use it."""

import pytest

from browser import TASKS, TEXTS, address, check_access, rest, state, visit, walk


@pytest.mark.parametrize("architecture", TASKS)
def test_every_view_opens_for_every_architecture(architecture, page, server):
    visit(page, server, "#view .node", **state(architecture))
    assert page.locator("#model").input_value() == architecture
    assert page.locator("#text").input_value() == TEXTS[architecture]
    walk(page)


def test_everybody_can_use_it(page, server):
    visit(page, server, "#view .node", **state("encoder-decoder"))
    check_access(page)


def test_it_says_when_it_waits_and_when_it_is_at_rest(new_page, server):
    page, held = new_page, []
    page.route("**/ask/run", lambda route: held.append(route))
    page.goto(address(server, **state("encoder")))
    while not held:
        page.wait_for_timeout(10)
    assert page.locator("#view").get_attribute("aria-busy") == "true"
    assert page.locator(".busy").count() == 1
    held[0].continue_()
    rest(page)
    assert page.locator(".busy").count() == 0
    assert page.locator("#view .node").count() > 0


def test_bad_input_is_refused_in_words(page, server, troubles):
    visit(page, server, "#status p", **state("encoder", changes=[{"word": "zero", "name": "nowhere"}]))
    assert "nowhere" in page.locator("#status").inner_text()
    troubles.forgive("400")


def test_two_tabs_of_one_browser_see_their_own_state(page, server):
    visit(page, server)
    other = page.context.new_page()
    visit(other, server)
    page.locator("#text").fill("22220111")
    page.locator("#text").press("Enter")
    other.locator("#model").select_option("decoder")
    other.wait_for_function("() => document.querySelector('#model').value === 'decoder'")
    page.wait_for_function("() => document.querySelectorAll('.tokens .token')[0].textContent === '2'")
    assert page.locator("#model").input_value() == "encoder"
    page.reload()
    page.wait_for_selector("#view .node")
    assert page.locator("#text").input_value() == "22220111"
    assert other.locator("#model").input_value() == "decoder"
    other.close()
