"""The sidebar of the site: the pages that docs/README.md lists, in its order."""

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^()#:]+)\.(?:md|ipynb)\)")


def sections() -> dict[str, list[str]]:
    """Return the page that each line of docs/README.md links to first, below its headings; `/` is the repository."""
    title, pages = "", dict[str, list[str]]()
    for line in (DOCS / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif title and (link := LINK.search(line)):
            pages.setdefault(title, []).append(re.sub(r"^\.\./", "/", link[1]))
    return pages


def derivations() -> list[str]:
    """Return the pages that the first page of the derivations links to."""
    return LINK.findall((DOCS / "derivations" / "README.md").read_text(encoding="utf-8"))


def toctree(caption: str, pages: list[str]) -> Iterator[str]:
    """Yield the lines of a hidden table of contents."""
    yield from ("", "```{toctree}", ":maxdepth: 1", ":hidden:")
    if caption:
        yield f":caption: {caption}"
    if caption == "The book":
        yield ":numbered: 1"
    yield from ("", *pages, "```", "")


def add_contents(app, name: str, source: list[str]) -> None:
    """Append tables of contents to the first page of the site, and to that of the derivations."""
    if name == "docs/index":
        app.env.note_dependency(str(DOCS / "README.md"))
        lines = [line for caption, pages in sections().items() for line in toctree(caption, pages)]
    elif name == "docs/derivations/README":
        lines = [*toctree("", derivations())]
    else:
        return
    source[0] += "\n".join(lines)


def setup(app) -> dict[str, bool]:
    """Add them when a page is read."""
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
