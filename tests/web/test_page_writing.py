"""The writing view in a real browser: tokens, what else could have come, the tree, conversations, classes, vectors."""

import pytest

from browser import TEXTS, check_access, state, tiny_explorer, told, visit
from glassformer.api.trained_model import TrainedModel
from glassformer.config import DecoderConfig, EncoderConfig
from glassformer.interpret import scale
from glassformer.models import build
from glassformer.text import PublishedTokenizer
from glassformer.web.offers import Offer
from tokenizer_files import CHATML, chat_bpe, word_piece

WRITTEN = '[aria-label="What was read and written"] button'
SIZES = {"width": 8, "heads": 2, "feed_forward": 16, "layers": 1}


@pytest.fixture(scope="module")
def explorer(numpy_engine):
    """Tiny models of the three architectures, one that chats and one that gives vectors."""
    found = tiny_explorer()
    chat = PublishedTokenizer(chat_bpe().to_str(), roles={"eos": "<|im_end|>"}, chat_template=CHATML)
    words = PublishedTokenizer(word_piece().to_str(), roles={"mask": "[MASK]"})
    add(found, "chat", DecoderConfig(vocab=chat.size, context=200, **SIZES), chat, chat_template=CHATML)
    add(found, "vectors", EncoderConfig(vocab=words.size, context=32, head="none", **SIZES), words)
    add(found, "masks", EncoderConfig(vocab=words.size, context=32, head="tokens", **SIZES), words)
    return found


def add(explorer, name, config, tokenizer, **more):
    model = TrainedModel(config, build(config).init(0), tokenizer, source=name, **more)
    explorer.add(Offer(name, name, "given", name), model)


def go(page, server, asked):
    visit(page, server, "[data-view=writing] section", **asked, view="writing")


def written(page):
    """The tokens that were written, by their ids, as the address remembers them."""
    return told(page).get("look", {}).get("writing", {}).get("path", [])


def until(page, is_so):
    """Wait until something is so: the page's policy lets nobody evaluate a text there."""
    for _ in range(400):
        if is_so():
            return
        page.wait_for_timeout(25)
    pytest.fail("it never was so")


def until_there_are(count, page, where):
    until(page, lambda: page.locator(where).count() == count)


def test_a_decoder_writes_token_by_token_and_any_other_can_be_gone_on_from(page, server):
    go(page, server, state("decoder"))
    bars = page.locator("button.choice")
    bars.first.wait_for()
    page.get_by_role("button", name="Next token").click()
    until_there_are(1, page, WRITTEN)
    bars.nth(2).click()
    until_there_are(2, page, WRITTEN)
    page.get_by_role("button", name="Back", exact=True).click()
    until_there_are(1, page, WRITTEN)
    bars.nth(4).click()
    until_there_are(2, page, ".branches .branches li")
    path = written(page)
    assert len(path) == 2
    page.get_by_label("Tokens at once").fill("5")
    page.get_by_role("button", name="Write on").click()
    until(page, lambda: len(written(page)) == 7)
    assert written(page)[:2] == path
    check_access(page)
    # The address alone brings back what was written.
    again = written(page)
    page.reload()
    until_there_are(7, page, WRITTEN)
    assert written(page) == again


def test_the_page_writes_with_its_changes_what_python_writes_and_names_those_it_cannot_make(page, server, explorer):
    scaled = {"word": "scale", "name": "blocks.1.attention", "where": {}, "value": 4.0, "other": ""}
    mean = {"word": "mean", "name": "blocks.0.attention.attend.weights", "where": {}, "value": 0, "other": "if y in "}
    frozen = {"word": "stop", "name": "blocks.0", "where": {}, "value": 0, "other": ""}
    settings = {"temperature": 1.5, "seed": 3, "count": 6}
    own = state("decoder", changes=[scaled, mean, frozen], look={"writing": settings})
    go(page, server, own)
    page.locator("button.choice").first.wait_for()
    assert page.locator("#view li b").all_inner_texts() == [
        'with the mean of blocks.0.attention.attend.weights over "if y in "',
        "without the gradient through blocks.0",
    ]
    assert "pair of tokens" in page.locator("#view li").first.inner_text()
    page.get_by_role("button", name="Write on").click()
    until(page, lambda: len(written(page)) == 6)
    model = explorer.opened("decoder").model
    made = {"temperature": 1.5, "seed": 3, "max_new_tokens": 6}
    assert (
        tuple(written(page)) == model.generate(TEXTS["decoder"], changes=[scale("blocks.1.attention", 4.0)], **made).ids
    )


def test_another_text_begins_anew_and_one_beyond_the_context_is_refused(page, server, troubles):
    go(page, server, state("decoder"))
    page.locator("button.choice").first.wait_for()
    page.get_by_role("button", name="Next token").click()
    until_there_are(1, page, WRITTEN)
    page.locator("#text").fill("if x in")
    page.locator("#text").press("Enter")
    until_there_are(0, page, WRITTEN)  # what was written stood behind another text
    page.locator("#text").fill("x" * 100)
    page.locator("#text").press("Enter")
    page.locator("#text-wrong").wait_for()
    assert "at most 64" in page.locator("#text-wrong").inner_text()
    troubles.forgive("400")


def test_a_conversation_has_its_roles_and_its_prompt_in_sight(page, server):
    go(page, server, {"model": "chat", "text": "the sea", "look": {"writing": {"count": 3, "temperature": 0}}})
    page.get_by_role("button", name="Chat").click()
    page.get_by_text("Say something first.").wait_for()
    page.get_by_label("user").fill("the land")
    page.get_by_role("button", name="Send").click()
    until(page, lambda: len(written(page)) == 3)
    page.get_by_text("The prompt, as the model reads it").click()
    page.locator("pre", has_text="the land<|im_end|>").wait_for()
    page.get_by_label("user").fill("and the sea")
    page.get_by_role("button", name="Send").click()
    until_there_are(4, page, ".turns li")
    assert page.locator(".turns b").all_inner_texts() == ["user", "assistant", "user", "assistant"]
    check_access(page)
    # Another model that does not chat continues its text.
    page.locator("#model").select_option("decoder")
    until_there_are(0, page, ".turns")
    page.locator("button.choice").first.wait_for()


def test_a_classifier_shows_its_classes(page, server):
    go(page, server, state("encoder"))
    assert page.locator("li.choice").count() == 3
    page.get_by_label("any text").fill("012")
    until_there_are(3, page, ".piece")


def test_texts_are_compared_and_masks_filled_in(page, server, troubles):
    go(page, server, {"model": "vectors", "text": "the sea"})
    page.locator("td.number").first.wait_for()
    assert page.locator("td.number").count() == 9
    check_access(page)
    page.get_by_role("button", name="One more text").click()
    page.get_by_role("button", name="Compare").click()
    page.get_by_text("a text is empty").wait_for()
    troubles.forgive("400")
    go(page, server, {"model": "masks", "text": "the sea"})
    page.get_by_label("a text with").fill("the [MASK]")
    page.get_by_role("button", name="Fill in").click()
    until_there_are(8, page, "li.choice")
