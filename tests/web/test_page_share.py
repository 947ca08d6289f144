"""Sharing, in a real browser: the file that is saved, pictures, numbers, and a page that asks nobody."""

import zipfile

import numpy as np
import pytest

from browser import TASKS, Troubles, rest, state, visit

LOOKS = {
    "encoder": {},
    "decoder": {"tensors": {"open": ["blocks.0", "blocks.0.attention"]}, "share": {"views": ["scene"]}},
    "encoder-decoder": {
        "tensors": {"open": ["decoder.blocks.0", "decoder.blocks.0.cross_attention"]}, "share": {"views": ["scene"]}
    },
}  # fmt: skip


@pytest.fixture
def page(new_page):
    """An empty page: a file of it holds all that was asked for since it began."""
    return new_page


def show(page, server, architecture, **more):
    visit(page, server, **state(architecture, **more))


def saved(page, path):
    """Save the page as one file."""
    with page.expect_download(timeout=60_000) as waiting:
        page.get_by_role("button", name="Save as one file").click()
    waiting.value.save_as(path)
    return path


@pytest.mark.parametrize("architecture", TASKS)
def test_the_file_opens_alone_and_shows_the_same(architecture, page, server, browser, tmp_path):
    # All views and all tensors of the encoder; of the others the map with one part of it, which is quicker.
    show(page, server, architecture, view="scene", look=LOOKS[architecture])
    if architecture == "encoder":
        page.locator(".every > summary").click()
        page.get_by_role("button", name="Open all").click()
        rest(page)
    wanted = page.locator("figure figcaption").all_inner_texts()
    page.get_by_role("button", name="Share").click()
    path = saved(page, tmp_path / "one.html")
    assert path.stat().st_size < 5_000_000
    alone = browser.new_context(offline=True)
    troubles = Troubles()
    one = alone.new_page()
    troubles.watch(one, path.as_uri())
    one.goto(path.as_uri())
    one.wait_for_selector("#view figure canvas")
    rest(one)
    assert one.locator("figure figcaption").all_inner_texts() == wanted
    one.get_by_role("button", name="Backward", exact=True).click()
    one.wait_for_function(f"() => document.querySelectorAll('figure .under').length === {len(wanted)}")
    assert one.locator("#text").is_disabled()
    assert one.locator("#target select").is_disabled()
    assert one.locator("#card").is_hidden()
    for name in ("embedding", "attend.weights", "attention", "feed_forward.down.x"):  # no card was opened before
        one.get_by_role("button", name="Forward", exact=True).click()
        rest(one)
        one.locator(f".scene-station canvas[data-name$='{name}']").first.click(position={"x": 3, "y": 3})
        one.wait_for_selector(f"#card h2:has-text('{name}[')")
        assert one.locator("#card math mi").count() > 0
        assert one.locator("#card .value").inner_text() not in ("–", "")
        assert one.locator("#card summary:has-text('forward: ops/')").count() == 1
    assert one.locator("#card button:has-text('Prove')").count() == 0
    if architecture == "encoder":
        assert one.get_by_role("button", name="What happens without head").count() == 0
        one.click("#tab-experiments")
        controls = "button, input, select, textarea"
        for tab, offered in {"lens": "input", "change": controls, "writing": controls}.items():
            one.click(f"#tab-{tab}")
            rest(one)
            assert one.locator(f"#view :is({offered}):enabled").count() == 0, tab  # what needs the model is off
    assert one.locator("#strip .token").count() == 0
    assert troubles == []
    alone.close()


def test_a_file_within_a_page_keeps_to_itself_twice(page, server, browser, tmp_path):
    show(page, server, "encoder", view="share", look={"share": {"views": ["scene"]}})
    html = saved(page, tmp_path / "one.html").read_text(encoding="utf-8")
    frame = (
        f'<iframe sandbox="allow-scripts" srcdoc="{html.replace("&", "&amp;").replace(chr(34), "&quot;")}"></iframe>'
    )
    both = tmp_path / "both.html"
    both.write_text(f"<!doctype html><title>two</title>{frame}{frame}", encoding="utf-8")
    troubles = Troubles()
    one = browser.new_page()
    troubles.watch(one, both.as_uri())
    one.goto(both.as_uri())
    for inside in (one.frame_locator("iframe").nth(0), one.frame_locator("iframe").nth(1)):
        inside.locator("#view .scene-station").first.wait_for()
        assert inside.locator("#model").input_value() == "encoder"
    assert troubles == []
    one.close()


def test_pictures_and_numbers_are_saved(page, server, tmp_path):
    show(page, server, "decoder", view="share")
    page.locator("#share-name").select_option("blocks.0.attention.attend.weights")
    rest(page)
    files = {}
    for title in ("Picture as PNG", "Picture as SVG", "Numbers as .npz"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=title).click()
        name = waiting.value.suggested_filename
        files[name] = tmp_path / name
        waiting.value.save_as(files[name])
    word = "value.blocks.0.attention.attend.weights"
    assert set(files) == {f"{word}.png", f"{word}.svg", f"{word}.npz"}
    assert files[f"{word}.png"].read_bytes().startswith(b"\x89PNG")
    assert files[f"{word}.svg"].read_text().count("<rect") == 64
    assert zipfile.is_zipfile(files[f"{word}.npz"])
    with np.load(files[f"{word}.npz"]) as found:
        weights = found["blocks.0.attention.attend.weights"]
    assert weights.dtype == np.float64
    assert weights.shape == (1, 2, 8, 8)
    np.testing.assert_allclose(weights.sum(-1), 1)
