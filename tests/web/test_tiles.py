"""Tiles show the right entries, and derivations the lines that computed them."""

import inspect
import json
import re
import struct
from html import unescape

import numpy as np
import pytest

from browser import check_access, rest, state, visit
from glassformer import ops
from glassformer.core.errors import GlassformerError
from glassformer.web.derivations import html_of, page_of, pages
from glassformer.web.routes import tiles
from glassformer.web.routes.tiles import as_matrix, cut, statistics
from raw_http import Line


def read(tile):
    """What a page reads from the bytes of a tile."""
    sent = tile.to_bytes()
    length = struct.unpack("<I", sent[:4])[0]
    facts = json.loads(sent[4 : 4 + length])
    assert (4 + length) % 8 == 0
    cells = np.frombuffer(sent, "<f8", count=facts["size"][0] * facts["size"][1], offset=4 + length)
    return facts, cells.reshape(facts["size"])


def test_a_small_part_is_sent_entry_by_entry_to_the_last_bit(rng):
    x = rng.standard_normal((2, 3, 7, 9))
    facts, cells = read(cut(as_matrix(x, (1, 2)), (1, 5), (2, 9), 100, 100, {"name": "x"}))
    np.testing.assert_array_equal(cells, x[1, 2, 1:5, 2:9])
    assert (facts["rows"], facts["columns"], facts["step"], facts["name"]) == ([1, 5], [2, 9], [1, 1], "x")


@pytest.mark.parametrize("shape", [(10, 10), (11, 7), (1, 100), (64, 3)])
def test_of_more_than_fits_each_cell_shows_the_farthest_from_zero(rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    facts, cells = read(cut(x, (0, shape[0]), (0, shape[1]), 4, 5, {}))
    down, right = facts["step"]
    assert cells.shape[0] <= 4
    assert cells.shape[1] <= 5
    for (row, column), cell in np.ndenumerate(cells):
        patch = x[row * down : (row + 1) * down, column * right : (column + 1) * right]
        assert cell == patch.flat[np.abs(patch).argmax()]


@pytest.mark.parametrize("shape", [(7, 50), (1, 49), (13, 3), (4, 4)])
def test_a_coarse_cell_names_the_entry_that_it_shows(shape, rng):
    x = rng.standard_normal((shape[0] + 2, shape[1] + 3))
    tile = cut(x, (1, 1 + shape[0]), (2, 2 + shape[1]), 4, 4, {})
    part = x[1 : 1 + shape[0], 2 : 2 + shape[1]]
    shown = part if tile.places is None else part.ravel()[tile.places]
    np.testing.assert_array_equal(shown, tile.cells)
    assert (tile.places is None) == (tile.step == (1, 1))
    if tile.places is not None:
        assert tile.to_bytes().endswith(tile.places.astype("<u4").tobytes())


def test_what_is_no_number_does_not_hide_and_is_left_out_of_statistics():
    x = np.zeros((8, 8))
    x[3, 3] = np.nan
    _, cells = read(cut(x, (0, 8), (0, 8), 2, 2, {}))
    assert np.isnan(cells[0, 0])
    assert not np.isnan(cells[1, 1])
    assert statistics(x)["odd"] == 1

    found = statistics(np.array([1.0, 3.0, np.inf]))
    assert (found["least"], found["most"], found["mean"], found["spread"], found["odd"]) == (1, 3, 2, 1, 1)
    assert statistics(np.array([np.nan]))["mean"] is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: as_matrix(x, ()),
        lambda x: as_matrix(x, (2,)),
        lambda x: as_matrix(x, (-1,)),
        lambda x: cut(x[0], (0, 9), (0, 4), 4, 4, {}),
        lambda x: cut(x[0], (2, 2), (0, 4), 4, 4, {}),
        lambda x: cut(x[0], (0, 3), (0, 4), 0, 4, {}),
        lambda x: cut(x[0], (0, 3), (0, 4), 4, 5000, {}),
    ],
)
def test_what_is_not_there_is_refused(wrong):
    with pytest.raises(GlassformerError):
        wrong(np.zeros((2, 3, 4)))


def test_statistics_of_many_numbers_are_made_a_part_at_a_time(monkeypatch, rng):
    x = rng.standard_normal((40, 50))
    x[0, :3] = np.inf
    monkeypatch.setattr(tiles, "PART", 64)
    found, finite = statistics(x), x[np.isfinite(x)]
    expected = [finite.min(), finite.max(), finite.mean(), finite.std(), np.linalg.norm(finite)]
    np.testing.assert_allclose([found[w] for w in ("least", "most", "mean", "spread", "norm")], expected, rtol=1e-12)
    assert (found["count"], found["odd"]) == (2000, 3)


@pytest.mark.parametrize("name", [name for name in ops.__all__ if name.endswith("_backward")])
def test_every_backward_leads_to_a_page_with_its_source(name):
    page = page_of(f"ops.{name.removesuffix('_backward')}")
    assert page is not None
    assert inspect.getsource(inspect.unwrap(getattr(ops, name))) in unescape(html_of(page))


def test_what_no_page_includes_has_none():
    assert [page_of(op) for op in ("a parameter", "changed: zero", "the sum over all of its uses", "")] == [None] * 4


@pytest.mark.parametrize("name", pages())
def test_a_page_is_all_html_and_its_links_lead_to_pages(name, server):
    with Line(server) as line:
        answered = line.request("GET", f"/derivations/{name}")
    assert (answered.status, answered.headers["content-type"]) == (200, "text/html; charset=utf-8")
    found = answered.body.decode()
    assert re.findall(r"\$|\{literalinclude\}|\{code-cell\}|&lt;math| style=", found) == []
    links = {*re.findall(r'<a href="(.*?)"', found)}
    assert {link for link in links if not link.startswith("https://arxiv.org/")} <= {*pages()}
    assert "<math" in found
    assert name == "README" or "<td><code>" in found


def test_a_page_that_is_not_there_is_refused_in_words(server):
    with Line(server) as line:
        answered = line.request("GET", "/derivations/nothing")
    assert (answered.status, answered.said) == (404, "there is no such derivation")


def test_a_card_leads_to_the_derivation_of_its_op(page, server):
    one = {"name": "blocks.1.attention", "index": [0, 1, 2]}
    visit(page, server, "#card a", **state("decoder", view="scene", look={"card": {"open": one}}))
    rest(page)
    requests = []
    page.context.on("request", lambda asked: requests.append(asked.url))
    with page.context.expect_page() as opened:
        page.click("#card a:text-is('derivation')")
    other = opened.value
    other.wait_for_selector("main.derivation .formula math")
    assert other.url == f"{server.address}derivations/linear"
    assert other.evaluate("window.opener") is None
    other.set_viewport_size({"width": 1440, "height": 900})
    check_access(other)
    other.click("text=All derivations")
    other.wait_for_url("**/README")
    other.click("text=label smoothing")
    other.wait_for_selector("h1:text-is('Label smoothing')")
    assert [url for url in requests if not url.startswith(server.address)] == []
    other.close()


def test_a_gradient_of_several_uses_has_a_link_for_each(page, server):
    one = {"name": "blocks.0", "index": [0, 1, 2], "gradient": True}
    visit(page, server, "#card a", **state("decoder", view="scene", look={"card": {"open": one}}))
    links = page.locator("#card a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    assert {"derivations/joins", "derivations/layer_norm"} <= {*links}
