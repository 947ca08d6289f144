"""The page as a whole, in a real browser: all of it opens for every architecture, and everybody can use it."""

import pytest

from browser import TASKS, TEXTS, WIDE, address, check_access, open_tab, rest, state, told, visit, walk


@pytest.mark.parametrize("architecture", TASKS)
def test_every_view_opens_for_every_architecture_and_everybody_can_use_it(architecture, page, server):
    visit(page, server, "#view .scene-station", **state(architecture))
    assert page.locator("#model").input_value() == architecture
    assert page.locator("#text").input_value() == TEXTS[architecture]
    walk(page)
    if architecture == "encoder-decoder":
        for view in ("backward", "share", "change", "lens"):
            visit(page, server, f"#view [data-view={view}]", **state(architecture, view=view))
            check_access(page)
            page.set_viewport_size({"width": 320, "height": 700})
            page.wait_for_timeout(200)  # for maps that are drawn one frame later
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, view
            levels = page.locator("h1:visible, h2:visible, h3:visible, h4:visible").evaluate_all(
                "all => all.map((one) => +one.tagName[1])"
            )
            assert view == "backward" or all(b - a <= 1 for a, b in zip([1, *levels], levels, strict=False)), view
            page.set_viewport_size(WIDE)
            page.emulate_media(color_scheme="light")


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
    assert page.locator("#view .scene-station").count() > 0


def test_an_address_with_what_does_not_exist_says_so_and_leads_on(page, server, troubles):
    visit(page, server, "#view .bad", **state("encoder", changes=[{"word": "zero", "name": "nowhere"}]))
    assert "nowhere" in page.locator("#view .bad").inner_text()
    page.click("#tab-training")
    page.wait_for_selector("#view [data-view=training] form")
    troubles.forgive("400")
    visit(page, server, **state("encoder"), view="attention")
    assert "no view “attention”. It has: Scene, Lens, " in page.locator("#view .bad").inner_text()
    assert page.locator("nav [aria-current]").count() == 0
    page.get_by_role("button", name="Open “Scene”").click()
    page.wait_for_selector("#view .scene-station")


def test_a_refused_text_is_taken_back_and_the_error_stands_under_its_field(page, server, troubles):
    visit(page, server, "#view .scene-station", **state("encoder-decoder"))
    for wrong in ("3. März 2001 €", "", "3" * 400):
        page.locator("#text").fill(wrong)
        page.locator("#text").press("Enter")
        page.wait_for_selector("#text-wrong")
        rest(page)
        assert page.locator("#text").input_value() == wrong
        assert told(page)["text"] == TEXTS["encoder-decoder"]
    assert page.locator("#text").get_attribute("aria-describedby") == "text-wrong"
    open_tab(page, "lens")
    page.wait_for_selector("#view [data-view=lens]")
    assert page.locator("#tab-lens").get_attribute("aria-current") == "page"
    page.locator("#text").fill("4. März 2001")
    page.locator("#text").press("Enter")
    page.wait_for_function("() => decodeURIComponent(location.hash).includes('4. März')")
    rest(page)
    assert page.locator("#text-wrong, #status p").count() == 0
    troubles.forgive("400")


@pytest.mark.parametrize(
    "address",
    ["%", "{", "%22text%22", "[]", '{"changes":null}', '{"changes":[1]}', '{"of":3}', '{"steps":{}}', '{"look":[]}',
     '{"model":7}', '{"view":[]}', '{"nothing":1}', '{"look":{"tensors":{"open":5}}}',
     '{"look":{"scene":{"shown":"x"}}}', '{"look":{"scene":{"decoder":7}}}',
     '{"model":"nowhere"}', '{"view":"nowhere"}', '{"view":"backward","look":{"backward":{"point":"x"}}}',
     '{"look":{"scene":{"zoom":"blocks.0.attention.attend.weights","first":7,"cell":[99,-1]}}}',
     '{"view":"attention"}'],
)  # fmt: skip
def test_malformed_addresses_never_hang(address, new_page, server, troubles):
    new_page.goto(f"{server.address}#{address}")
    rest(new_page)
    new_page.wait_for_selector("#view [data-view]")
    assert "Opening" not in new_page.locator("#view").inner_text()
    if "nowhere" in address and "model" in address:
        troubles.forgive("400")


def test_back_returns_to_what_was_shown_before(page, server):
    visit(page, server, "#view .scene-station", **state("encoder"))
    open_tab(page, "backward")
    page.wait_for_selector("#view [data-view=backward]")
    page.locator("#text").fill("22220111")
    page.locator("#text").press("Enter")
    page.wait_for_function("() => location.hash.includes('22220111')")
    rest(page)
    page.go_back()
    page.wait_for_function("() => document.querySelector('#text').value === '11110222'")
    page.go_back()  # to the first of the experiments
    page.go_back()
    page.wait_for_selector("#view [data-view=scene]")
    page.go_forward()
    page.go_forward()
    page.wait_for_selector("#view [data-view=backward]")


def test_the_keyboard_keeps_its_place(page, server):
    visit(page, server, "#view .scene-station", **state("encoder", look={"tensors": {"open": ["embedding"]}}))
    page.locator("#tab-scene").focus()
    page.keyboard.press("Enter")
    rest(page)
    focused = "document.activeElement.id || document.activeElement.tagName"
    assert page.evaluate(focused) == "tab-scene"
    page.locator(".heat canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".heat .cursor:visible").count() == 1
    assert "= " in page.locator(".heat .under[aria-live=polite]").first.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_selector("#card .value")
    assert page.evaluate("document.activeElement.closest('#card') !== null")
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == "CANVAS"


def test_what_is_not_shown_any_more_is_let_go(page, server):
    visit(
        page, server, "#view .scene-station", **state("encoder", look={"tensors": {"open": ["embedding", "blocks.0"]}})
    )
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def kept():
        session.send("HeapProfiler.collectGarbage")
        found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return [found[name] for name in ("Nodes", "JSEventListeners", "JSHeapUsedSize")]

    def go_round(text):
        page.locator("#text").fill(text)
        page.locator("#text").press("Enter")
        for tab in ("lens", "change", "backward", "writing", "scene"):
            open_tab(page, tab)
            rest(page)
        page.locator("#view .heat canvas").first.click(position={"x": 5, "y": 5})
        page.wait_for_selector("#card .value")

    go_round("11110222")
    go_round("22220111")
    before = kept()
    for text in ("00001222", "00002111", "01012222", "02021111"):
        go_round(text)
    assert [now < 2 * old for now, old in zip(kept(), before, strict=True)] == [True] * 3


def test_two_tabs_of_one_browser_see_their_own_state(page, server):
    visit(page, server)
    other = page.context.new_page()
    visit(other, server)
    page.locator("#text").fill("22220111")
    page.locator("#text").press("Enter")
    other.locator("#model").select_option("decoder")
    other.wait_for_function("() => document.querySelector('#model').value === 'decoder'")
    page.wait_for_function("() => document.querySelectorAll('.scene-token')[0]?.textContent === '2'")
    assert page.locator("#model").input_value() == "encoder"
    page.reload()
    page.wait_for_selector("#view .scene-station")
    assert page.locator("#text").input_value() == "22220111"
    assert other.locator("#model").input_value() == "decoder"
    other.close()
