"""Tours on the page: they ask before they show, move the page, can be left and gone on with; by keys alone, too."""

import pytest

from browser import TEXTS, check_access, state, told, violations, visit

TOURS = ["softmax", "attention", "residual", "norm", "cross", "induction"]
NEED = {"encoder": {"cross", "induction"}, "decoder": {"cross"}, "encoder-decoder": {"induction"}}


def show(page, server, architecture, text=None, **more):
    """Open the list of tours on a model."""
    asked = {**state(architecture), "text": text or TEXTS[architecture], "view": "tours", **more}
    visit(page, server, "[data-tour=softmax]", **asked)


def begin(page, tour):
    page.click(f"[data-tour={tour}] button.main")
    page.wait_for_selector("#tour .tour-top:has-text('step 1 of')")


def answer(page):
    """Ask to be shown, and return what was said."""
    page.click("#tour button:has-text('Show me')")
    return page.locator("#tour .tour-why").inner_text()


@pytest.mark.parametrize("architecture", list(NEED))
def test_a_model_without_what_a_tour_needs_is_told_so(page, server, architecture):
    show(page, server, architecture)
    assert page.locator("[data-tour]").count() == len(TOURS)
    for tour in TOURS:
        assert page.locator(f"[data-tour={tour}] button.main").count() == (tour not in NEED[architecture])
    if "cross" in NEED[architecture]:
        page.wait_for_selector("[data-tour=cross] button:has-text('Open a tiny encoder-decoder')")
        assert "glassformer train dates" in page.locator("[data-tour=cross]").inner_text()


@pytest.mark.parametrize(
    ("architecture", "tour", "text"),
    [
        ("encoder", "attention", None),
        ("encoder", "norm", None),
        ("decoder", "softmax", None),
        ("decoder", "residual", None),
        ("decoder", "induction", "for x"),
        ("encoder-decoder", "cross", None),
    ],
)
def test_tours_can_be_walked_to_their_end(page, server, troubles, architecture, tour, text):
    show(page, server, architecture, text)
    before = told(page)
    begin(page, tour)
    steps = int(page.locator("#tour .tour-top").inner_text().split(" of ")[1].split()[0])
    assert 4 <= steps <= 5
    for step in range(1, steps + 1):
        page.wait_for_selector(f"#tour .tour-top:has-text('step {step} of')")
        offered = page.locator("#tour .tour-question button").all_inner_texts()
        assert len({*offered}) == len(offered)  # no answer stands there twice
        if "gradient" in page.locator("#tour .tour-body p").first.inner_text() and tour == "cross":
            assert "loss" in page.locator("#target select").inner_text()  # whose gradient it is
        assert len(answer(page)) > 30
        page.click("#tour button.main")
    page.wait_for_selector(f"[data-tour={tour}] .good")
    assert page.locator("#tour").is_hidden()
    assert {name: told(page).get(name) for name in ("text", "changes", "of")} == {
        name: before.get(name) for name in ("text", "changes", "of")
    }
    if any("400" in trouble for trouble in troubles):
        troubles.forgive("400")  # cards are another part


def test_nothing_is_shown_before_an_answer_and_a_right_one_is_praised(page, server):
    show(page, server, "decoder")
    begin(page, "softmax")
    page.wait_for_selector("#tour .tour-question")
    assert page.locator("#view [data-view=tours]").count() == 1
    assert page.locator("#tour button:has-text('Next')").is_disabled()
    answer(page)
    page.wait_for_selector("#view .scene-head")
    page.click("#tour button:has-text('Next')")
    page.wait_for_selector("#tour .tour-top:has-text('step 2 of')")
    page.fill("#tour input", "1")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tour .tour-why:has-text('Right.')")
    page.click("#tour button:has-text('Next')")
    page.wait_for_selector("#tour .tour-top:has-text('step 3 of')")
    page.click("#tour button:has-text('they all grow')")
    page.wait_for_selector("#tour .tour-why:has-text('Not quite: nothing.')")
    page.wait_for_selector("#strip:has-text('with 5 added to blocks.0.attention.attend.scores')")


def test_a_tour_is_left_and_gone_on_with_and_changes_of_ones_own_come_back(page, server):
    own = [{"word": "zero", "name": "blocks.0.attention.output.x", "where": {"head": 1}}]
    show(page, server, "decoder", changes=own)
    begin(page, "softmax")
    answer(page)
    page.click("#tour button:has-text('Next')")
    page.wait_for_selector("#tour .tour-top:has-text('step 2 of')")
    assert told(page).get("changes", []) == []
    page.reload()  # the address keeps where one is
    page.wait_for_selector("#tour .tour-top:has-text('step 2 of')")
    page.click("#tour button:has-text('Leave the tour')")
    page.wait_for_selector("#strip:has-text('without head 1 of block 0')")
    assert told(page)["changes"] == own
    page.click("[data-tour=softmax] button:has-text('Go on at step 2')")
    page.wait_for_selector("#tour .tour-top:has-text('step 2 of')")
    page.click("#tour button:has-text('Back')")
    page.wait_for_selector("#tour .tour-why")  # what was answered stays answered


def test_a_tour_is_walked_by_keys_alone(page, server):
    show(page, server, "decoder")
    page.locator("[data-tour=softmax] button.main").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#tour .tour-question")
    page.locator("#tour .tour-question button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#tour .tour-why")
    page.locator("#tour button:focus:has-text('Next')").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_selector("#tour .tour-top:has-text('step 2 of')")
    page.locator("#tour h2:focus").wait_for()


def test_everybody_can_use_it(page, server):
    show(page, server, "decoder")
    assert violations(page) == []
    begin(page, "softmax")
    page.wait_for_selector("#tour .tour-question")
    answer(page)
    check_access(page)
