"""What all pages share: one head, and text that is never taken for HTML."""

from glassformer.plots.page import clean, page_html, page_style, paragraphs, plain_text
from pages import Page


def test_a_page_has_its_title_twice_and_nothing_is_taken_for_html():
    page = Page(page_html("<b> & co", paragraphs("one\n\n<i>two", "intro"), "<main></main>", style=page_style(None)))
    assert page.words.count("<b> & co") == 2
    assert {"one", "<i>two"} <= set(page.words)
    assert page.tags.count("p") == 2
    assert "b" not in page.tags


def test_words_and_numbers_become_text():
    assert [plain_text(value) for value in (True, 12345, 0.123456, "<")] == ["yes", "12,345", "0.1235", "&lt;"]
    assert clean("a\x00b\ud800") == "a\N{REPLACEMENT CHARACTER}b" + clean("\ud800")


def test_a_style_is_of_one_theme_or_of_both():
    assert "prefers-color-scheme" not in page_style("dark")
    assert "prefers-color-scheme: dark" in page_style(None)
    assert page_style("light") != page_style("dark")
