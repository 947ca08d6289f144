"""The guide on the page: it points at the scene, asks before it tells, and can be left; by keys alone, too."""

import pytest

from browser import TEXTS, check_access, rest, state, told, visit

TOURS = ["first", "softmax", "attention", "residual", "norm", "cross", "induction"]
LACKING = {"encoder": {"cross", "induction"}, "decoder": {"cross"}, "encoder-decoder": {"induction"}}
TEXT = {**TEXTS, "decoder": "for x for"}


def open_list(page, server, architecture, **more):
    visit(page, server, "#tab-guide", **state(architecture, **{"text": TEXT[architecture], **more}))
    page.click("#tab-guide")
    page.wait_for_selector("#guide [data-tour=induction]")


def begin(page, tour):
    page.click(f"#guide [data-tour={tour}]")
    page.wait_for_selector("#guide .guide-top:has-text('step 1 of')")


def answer(page):
    """Ask to be shown, and return what was said."""
    page.click("#guide button:has-text('Show me')")
    page.wait_for_selector("#guide [role=status]")
    return page.locator("#guide [role=status]").inner_text()


def pointed(page):
    """Which elements stand out."""
    return page.locator(".scene-picture *").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).outline).filter((style) => style.endsWith('solid 3px'))"
    )


@pytest.mark.parametrize("architecture", list(LACKING))
def test_every_tour_is_walked_to_its_end_or_says_what_it_lacks(page, server, architecture):
    open_list(page, server, architecture)
    for tour in TOURS:
        assert page.locator(f"#guide [data-tour={tour}]").is_disabled() == (tour in LACKING[architecture])
    tour = {"encoder": "norm", "decoder": "induction", "encoder-decoder": "cross"}[architecture]
    before = told(page)
    begin(page, tour)
    steps = int(page.locator("#guide .guide-top").inner_text().split(" of ")[1].split()[0])
    assert steps in (3, 4)
    for number in range(1, steps + 1):
        page.wait_for_selector(f"#guide .guide-top:has-text('step {number} of')")
        rest(page)
        assert len(pointed(page)) == 1
        assert page.locator("#guide [role=status]").count() == 0
        assert page.locator("#guide .guide-moves button").last.is_disabled()
        offered = page.locator("#guide [role=group] button").all_inner_texts()
        assert len({*offered}) == len(offered)  # no answer stands there twice
        assert len(answer(page)) > 30
        page.click("#guide .guide-moves button >> nth=-1")
    page.wait_for_selector("#guide [data-tour=first]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#guide", state="hidden")
    assert {name: told(page).get(name) for name in ("text", "changes", "of")} == {
        name: before.get(name) for name in ("text", "changes", "of")
    }


def test_a_step_opens_its_head_makes_its_change_and_praises_a_right_answer(page, server):
    open_list(page, server, "decoder")
    begin(page, "softmax")
    assert page.locator("#guide math").count() == 1
    answer(page)
    page.wait_for_selector("#card h2:has-text('attend.weights')")
    page.click("#guide button:has-text('Next')")
    page.wait_for_selector("#guide .guide-top:has-text('step 2 of')")
    assert page.locator("#card").is_hidden()
    rest(page)
    check_access(page)
    page.click("#guide button:has-text('they change')")
    page.wait_for_selector("#guide [role=status]:has-text('Not quite: nothing.')")
    page.wait_for_selector("#strip .token")
    assert [(one["word"], one["value"]) for one in told(page)["changes"]] == [("add", 5)]
    page.locator("#guide button:focus:has-text('Next')").wait_for()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#guide .guide-top:has-text('step 3 of')")
    page.locator("#guide h2:focus").wait_for()
    assert told(page).get("changes", []) == []
    page.click("#guide button:has-text('it grows')")
    page.wait_for_selector("#guide [role=status]:has-text('Right.')")


def test_a_tour_survives_a_reload_and_gives_back_changes_of_ones_own(page, server):
    own = [{"word": "zero", "name": "blocks.0.attention.output.x", "where": {"head": 1}}]
    open_list(page, server, "decoder", changes=own)
    begin(page, "first")
    page.fill("#guide input", "9")
    page.keyboard.press("Enter")
    page.wait_for_selector("#guide [role=status]:has-text('Right.')")
    page.click("#guide button:has-text('Next')")
    page.wait_for_selector("#guide .guide-top:has-text('step 2 of')")
    page.reload()
    page.wait_for_selector("#guide .guide-top:has-text('step 2 of')")
    page.click("#guide button:has-text('Back')")
    page.wait_for_selector("#guide [role=status]")  # what was answered stays answered
    page.click("#guide button[aria-label='Close the guide']")
    page.wait_for_selector("#strip .token")
    assert told(page)["changes"] == own
