"""What all pages have in common: their head, their rules, and colors that are light or dark as their reader likes."""

import re
from html import escape
from typing import Any

from ..text import printable


def page_html(title: str, header: str, body: str, *, style: str) -> str:
    """Return a whole page: the title is plain text, `header` and `body` are HTML."""
    name = plain_text(title)
    return _PAGE.format(title=name, style=style, header=f"<h1>{name}</h1>\n{header}", body=body)


def plain_text(value: Any) -> str:
    """Return a word or a number as text in a page: nothing in it is taken for HTML."""
    if isinstance(value, bool):
        value = "yes" if value else "no"
    elif isinstance(value, int | float):
        value = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return escape(clean(str(value)), quote=False)


def clean(text: str) -> str:
    """Replace what an HTML file cannot hold: lone surrogates and control characters."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", printable(text))


def paragraphs(text: str, style: str = "") -> str:
    """Return plain text as paragraphs; an empty line begins a new one."""
    mark = f' class="{style}"' if style else ""
    return "\n".join(f"<p{mark}>{plain_text(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


_LIGHT = "--page: #f7f8fa; --card: #ffffff; --ink: #1f2430; --quiet: #5d6778; --line: #e1e5eb; --accent: #0072b2;"
_DARK = "--page: #14171d; --card: #1d222b; --ink: #e8ebf0; --quiet: #a3adbd; --line: #323a47; --accent: #6cc0f0;"


def page_style(theme: str | None) -> str:
    """Return the style of a page in one theme, or in the one that its reader likes."""
    if theme is not None:
        return f":root {{ color-scheme: {theme}; {_LIGHT if theme == 'light' else _DARK} }}{_RULES}"
    # A picture that was drawn in one theme alone lies on white paper.
    paper = "figure.paper > a, figure.paper img { background: #ffffff; }"
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} {paper} .light {{ display: none; }} }}"
    light = "@media not (prefers-color-scheme: dark) { .dark { display: none; } }"
    return f":root {{ color-scheme: light dark; {_LIGHT} }}{_RULES}{dark}\n{light}\n"


_RULES = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 17px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main, header { max-width: 66rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 3rem; }
h1 { font-size: clamp(1.7rem, 4vw, 2.5rem); line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.02em;
  overflow-wrap: anywhere; }
h2 { font-size: 1.45rem; line-height: 1.3; margin: 0 0 .5rem; letter-spacing: -.01em; }
p { max-width: 44rem; margin: 0 0 1rem; }
.intro { font-size: 1.12rem; color: var(--quiet); }
nav { position: sticky; top: 0; z-index: 1; display: flex; gap: .2rem; overflow-x: auto; max-width: 66rem;
  margin: 1.5rem auto; padding: .4rem 1.25rem; background: var(--page); border-bottom: 1px solid var(--line); }
nav a { padding: .25rem .7rem; border-radius: 1rem; color: var(--quiet); text-decoration: none; white-space: nowrap;
  font-size: .92rem; }
nav a:hover, nav a:focus-visible { background: var(--card); color: var(--accent); }
section { margin: 0 0 3.2rem; scroll-margin-top: 4rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .7rem; margin: 1.4rem 0; }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: .7rem; padding: .6rem .9rem; }
.tiles dt { color: var(--quiet); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.1rem; font-weight: 600; overflow-wrap: break-word; }
figure { margin: 1.2rem 0; background: var(--card); border: 1px solid var(--line); border-radius: .8rem;
  overflow: hidden; }
figure > a { display: block; overflow-x: auto; }
figure img { display: block; max-width: max(100%, 50rem); height: auto; margin: 0 auto; }
figcaption { padding: .8rem 1.1rem; border-top: 1px solid var(--line); color: var(--quiet); font-size: .95rem; }
.scroll { overflow-x: auto; margin: 1.2rem 0; }
table { border-collapse: collapse; font-size: .93rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding-bottom: .4rem; }
caption span { display: inline-block; position: sticky; left: 0; max-width: min(44rem, calc(100vw - 2.5rem)); }
th, td { padding: .32rem .9rem .32rem 0; border-bottom: 1px solid var(--line); text-align: left; white-space: pre;
  vertical-align: top; }
th { color: var(--quiet); font-weight: 600; }
.number { text-align: right; }
.long { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 12rem; }
details { border-bottom: 1px solid var(--line); }
details > summary { cursor: pointer; color: var(--accent); padding: .45rem 0; overflow-wrap: anywhere; }
figcaption a { color: var(--accent); margin-right: .6rem; }
pre.sample { background: var(--card); border: 1px solid var(--line); border-radius: .7rem; padding: .8rem 1.1rem;
  max-width: 100%; margin: 0 0 1rem; font: .95rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
footer { max-width: 66rem; margin: 0 auto; padding: 0 1.25rem 2.5rem; color: var(--quiet); font-size: .85rem; }
@media (min-width: 48rem) { nav { flex-wrap: wrap; } }
@media print { nav { display: none; } figure { break-inside: avoid; } }
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
{header}
</header>
{body}
<footer>Written by Glassformer.</footer>
</body>
</html>
"""
