"""How pages are read: strictly, by the parser that Python carries; and dots that stand for figures."""

import base64
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from glassformer.files import write_new

DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")
"""A PNG file of one white dot."""
VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Reads a page, and refuses tags that are not closed in order and ids used twice.

    `dark` are the images that dark pages show in place of others, `opens` says which file opens by a click on which.
    """

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.images, self.dark = [], [], [], []
        self.links, self.ids, self.words = [], [], []
        self.link, self.opens = {}, {}
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "img":
            (self.dark if self.link.get("class") == "dark" else self.images).append(attributes)
            self.opens[attributes["src"]] = self.link.get("href")
        self.link = attributes if tag == "a" else self.link
        self.links += [attributes["href"]] if "href" in attributes else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read_page(path):
    """The page in a file."""
    return Page(path.read_text(encoding="utf-8"))


def write_dot(figure, path):
    """Write a dot in place of a figure, and return where it is, as `plots.save` does."""
    assert figure.get_label()
    return write_new(Path(path), DOT)


def write_dots(draw, folder, name, theme, forms):
    """Write a dot in place of a figure in each of its themes and forms, and draw nothing: see `plots/drawing.py`."""
    from glassformer.plots.drawing import THEMES

    names = [name] if theme else [f"{name}-{one}" if number else name for number, one in enumerate(THEMES)]
    return [(name, [write_new(Path(folder) / f"{one}.{form}", DOT) for form in forms]) for one in names]


@cache
def really_drawn():
    """What draws a figure in its themes, as it was before a test put `write_dots` in its place."""
    from glassformer.plots import drawing

    return drawing._in_themes
