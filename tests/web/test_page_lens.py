"""The lens on the page: the table, a token that is followed, positions on demand, and bars that sum to the logit."""

import pytest

from browser import check_access, state, told, visit
from glassformer.web.router import ask


def show(page, server, architecture, **settings):
    """Open the view on a model."""
    visit(page, server, ".lens-table", **state(architecture), view="lens", look={"lens": settings})
    page.wait_for_selector(".lens-parts")


def number(text):
    """Return a number as the page writes it."""
    return float(text.replace("−", "-").replace("+", ""))


@pytest.mark.parametrize(("architecture", "columns"), [("encoder", 1), ("decoder", 8), ("encoder-decoder", 8)])
def test_a_row_for_each_point_and_a_column_for_each_position(page, server, explorer, architecture, columns):
    show(page, server, architecture)
    assert page.locator(".lens-table tbody th").all_inner_texts() == ["embedding", "block 0", "block 1"]
    assert page.locator(".lens-table thead th").count() == columns + 1
    likeliest = ask(explorer, "run", {"state": state(architecture)})["next"][0]
    last = page.locator(".lens-table tbody tr").last.locator(".lens-cell").last
    assert likeliest["label"] in last.inner_text()
    last.focus()
    page.wait_for_selector(".lens-said .token")
    assert page.locator(".lens-said .token").count() == min(5, 3 if architecture == "encoder" else 5)


def test_a_token_is_followed_by_its_rank(page, server, explorer):
    show(page, server, "decoder")
    page.locator(".lens-table tbody tr").nth(1).locator(".lens-cell").nth(2).click()
    page.wait_for_selector(".lens-cell:has-text('rank 1')")
    kept = told(page)["look"]["lens"]
    assert kept["position"] == 2
    assert kept["token"].startswith("#")
    page.click("button:has-text('Follow none')")
    page.wait_for_selector(".lens-table")
    assert page.locator(".lens-cell:has-text('rank')").count() == 0


@pytest.mark.parametrize("architecture", ["encoder", "decoder", "encoder-decoder"])
def test_bars_sum_to_the_logit(page, server, architecture):
    show(page, server, architecture, against="#0", token="#1")
    for table in page.locator(".lens-parts").all():
        bars = [number(one) for one in table.locator("tbody td.number").all_inner_texts()]
        total = number(table.locator("tfoot td.number").inner_text())
        assert sum(bars) == pytest.approx(total, abs=2e-3)


def test_a_token_that_does_not_exist_is_refused_in_words(page, server, troubles):
    show(page, server, "decoder")
    page.fill("input[placeholder=any]", "#999999")
    page.keyboard.press("Enter")
    page.wait_for_selector(".lens-progress .bad")
    assert "999999" in page.locator(".lens-progress .bad").inner_text()
    troubles.forgive("400")


def test_everybody_can_use_it(page, server):
    show(page, server, "decoder")
    check_access(page)
