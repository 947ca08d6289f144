"""The page with models that others published, in a real browser: every view, a change, and a card with its proof."""

import numpy as np
import pytest

from browser import told, visit, walk
from glassformer.api.loading import read_model
from glassformer.interpret import zero
from glassformer.web.explorer import Explorer
from glassformer.web.offers import Offer
from glassformer.web.state import read_state
from published_models import pulled

TEXTS = {"smollm2": "Paris is in France", "minilm": "Paris sleeps"}
"""Four tokens each."""


@pytest.fixture(scope="module")
def explorer(numpy_engine):
    """SmolLM2 and MiniLM."""
    found = Explorer({}, first="minilm", prompt=TEXTS["minilm"])
    for name in TEXTS:
        found.add(Offer(name, name, "published", name), read_model(pulled(name)))
    return found


@pytest.fixture(params=list(TEXTS))
def state(request):
    """A state of each, as a page sends it."""
    return {"model": request.param, "text": TEXTS[request.param]}


def test_every_view_opens(page, server, state):
    visit(page, server, ".scene-picture", **state)
    assert page.locator(".scene-token").count() == 4
    walk(page)


def test_a_head_is_switched_off_by_a_true_rerun(page, server, explorer, state):
    own = "decoder" if state["model"] == "smollm2" else "encoder"
    visit(page, server, ".scene-cards", **state, look={"scene": {own: {"open": 2, "head": 1}}})
    page.get_by_role("button", name="What happens without head 1?").click()
    page.wait_for_selector("#strip .token")
    assert page.locator(".token:has-text('altered nothing')").count() == 0
    found = explorer.session(read_state({**state, "changes": told(page)["changes"]}))
    wanted = found.plain.changed(zero("blocks.2.attention.output.x", head=1))
    np.testing.assert_array_equal(found.run.logits, wanted.logits)
    assert not np.array_equal(found.run.logits, found.plain.logits)


@pytest.mark.parametrize("state", ["minilm"], indirect=True)
def test_a_card_has_its_number_and_its_proof(page, server, explorer, state):
    run = explorer.session(read_state(state)).run
    block = f"blocks.{run.model.config.layers - 1}"
    name = f"{block}.feed_forward"
    visit(page, server, "#view canvas", **state, look={"tensors": {"open": [block, name]}})
    canvas = page.locator(f'[data-tensor~="{name}"] canvas').first
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        canvas.press(key)
    page.wait_for_selector("#card .value")
    said = page.locator("#card .value").inner_text().replace("−", "-")
    opened = told(page)["look"]["card"]["open"]
    assert opened["name"] == name
    assert float(said) == pytest.approx(float(run[name][tuple(opened["index"])]), rel=1e-6)
    page.get_by_role("button", name="Prove it").click()
    page.wait_for_selector("#card .good", timeout=120_000)  # the whole model runs back in double precision
