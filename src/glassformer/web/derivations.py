"""The pages of docs/derivations in the explorer: formulas as MathML, and each function as it runs.

A wheel carries the pages in this folder; in a checkout they are those of the documentation."""

import importlib
import re
from functools import cache
from html import escape
from operator import attrgetter
from pathlib import Path

from ..interpret.card import source_of

INSTALLED = Path(__file__).parent / "derivations"
CHECKOUT = Path(__file__).parents[3] / "docs" / "derivations"
TEMPLATE = Path(__file__).parent / "page" / "derivation.html"
INCLUDE = re.compile(r"\{literalinclude\} \S*/src/(\S+)\.py\n:pyobject: (\S+)\n")
FENCE_OR_MATH = re.compile(r"^```.*?^```$|^\$\$\n(.*?)^\$\$$|\$([^$]+)\$", re.DOTALL | re.MULTILINE)
WORD = re.compile(r'(?:<mi mathvariant="normal">[^<]+</mi>){2,}')


@cache
def pages() -> dict[str, str]:
    """Return all pages by their names, in Markdown without the front matter."""
    folder = INSTALLED if INSTALLED.is_dir() else CHECKOUT
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    return {name: re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL).strip() for name, text in texts.items()}


def page_of(op: str) -> str | None:
    """Return the name of the page that derives an op such as `ops.linear`: the first that includes it."""
    name = op.removeprefix("ops.")
    return _including().get(name) or _including().get(f"{name}_backward")


@cache
def _including() -> dict[str, str]:
    return {found[2]: name for name, text in reversed(pages().items()) for found in INCLUDE.finditer(text)}


@cache
def html_of(name: str) -> str:
    """Return a page as HTML."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("code_inline", lambda _, tokens, at, *__: _inline(tokens[at].content))
    markdown.add_render_rule("fence", lambda _, tokens, at, *__: _fence(tokens[at].info, tokens[at].content))
    text = re.sub(r"(?<=\]\()(\w+)\.md(?=\))", r"\1", pages()[name])
    body = markdown.render(FENCE_OR_MATH.sub(_as_code, text))
    return TEMPLATE.read_text(encoding="utf-8").format(title=escape(text.splitlines()[0].strip("# ")), body=body)


def _as_code(found: re.Match[str]) -> str:
    """Write a formula as code, in which stars and underscores mean no emphasis; leave code alone."""
    block, inline = found.groups()
    return f"```{{math}}\n{block}```" if block else f"`${inline}$`" if inline else found[0]


def _mathml(latex: str, display: str = "block") -> str:
    from latex2mathml.converter import convert

    # A name of several letters is one identifier, and is read aloud as one.
    return WORD.sub(lambda word: f"<mi>{re.sub('<.*?>', '', word[0])}</mi>", convert(latex, display=display))


def _inline(content: str) -> str:
    return _mathml(content.strip("$"), "inline") if content.startswith("$") else f"<code>{escape(content)}</code>"


def _fence(info: str, content: str) -> str:
    """Return a formula, a function as it runs, or code."""
    if info == "{math}":
        return f'<div class="formula" tabindex="0" role="group" aria-label="formula">{_mathml(content)}</div>\n'
    included = INCLUDE.match(f"{info}\n{content}")
    if included is None:
        return f'<pre tabindex="0">{escape(content)}</pre>\n'
    found = source_of(attrgetter(included[2])(importlib.import_module(included[1].replace("/", "."))))
    assert found is not None, included[0]
    return f'<p class="quiet">{found.file}, line {found.line}</p>\n<pre tabindex="0">{escape(found.text)}</pre>\n'
