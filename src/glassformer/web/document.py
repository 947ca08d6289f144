"""One page that stands by itself, in the explorer's look: it needs no server and no network."""

from html import escape
from pathlib import Path

PAGE = Path(__file__).parent / "page"


def document(title: str, body: str, *styles: str) -> str:
    """Return a page with a title, the content of its main part, and style sheets of the explorer."""
    css = "".join((PAGE / name).read_text(encoding="utf-8") for name in ("style.css", "derivation.css", *styles))
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f'<meta name="color-scheme" content="light dark"><title>{escape(title)} · Glassformer</title>'
    names = " ".join(["derivation", *(name.removesuffix(".css") for name in styles)])
    page = f'<style>{css}</style><main class="{names}">{body}</main>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{page}</body></html>\n'
