"""From a card to the derivation of its op: every backward has a page, and the pages open in a browser."""

import inspect
import re
from html import unescape

import pytest

from browser import check_access, rest, state, visit
from glassformer import ops
from glassformer.web.derivations import html_of, page_of, pages
from raw_http import Line


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
