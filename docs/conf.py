"""Settings of the site: `make docs` builds it from the pages of this folder and of its parent.

It needs no network but for the tools, and for SmolLM2 (94 MiB), which chapter 12 fetches once.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
project = "Glassformer"
author = "The Glassformer developers"
version = release = importlib.metadata.version("glassformer")
extensions = ["myst_nb", "sphinx.ext.autodoc", "contents", "live_figures", "notebooks", "reference"]
root_doc = "docs/index"
# The sidebar has the pages that docs/README.md lists (docs/_extensions/contents.py).
include_patterns = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/**", "examples/*.ipynb"]
exclude_patterns = ["**/.ipynb_checkpoints", "docs/README.md", "docs/_extensions"]
suppress_warnings = ["toc.not_included"]

# Pages run when they are built; what has not changed is taken from the cache.
nb_execution_mode = "cache"
nb_execution_timeout = 1800  # seconds for a cell
nb_merge_streams = True  # what a cell prints is one block
nb_execution_excludepatterns = ["examples/*"]  # needs published models
nb_execution_raise_on_error = True
nb_output_stderr = "remove"  # progress
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# Signatures as the source has them.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False

# A minus that follows an operator or an opening parenthesis.
SIGN = re.compile(r"(<mo[^>]*>(?!\)|]|\||&#x000(?:29|5D|7C);|&#x02032;)[^<]+</mo>)<mo>&#x02212;</mo>")

highlight_language = "none"  # of blocks that name none
html_theme = "sphinx_book_theme"
html_title = "Glassformer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "../src/glassformer/web/page/icon.svg"
html_extra_path = ["_static/index.html"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "show_toc_level": 2,
    "home_page_in_toc": True,
    "use_download_button": True,
    "navbar_persistent": [],
    "pygments_dark_style": "github-dark-high-contrast",
    "logo": {"text": "Glassformer"},
}


def mathml(display):
    """Return what writes formulas as MathML, which browsers typeset themselves."""

    def visit(translator, node):
        text = convert(node.astext(), display=display)
        # Browsers do not read mathvariant: a bold digit is a sign of its own.
        text = re.sub(r'<mn mathvariant="bold">(\d)</mn>', lambda bold: f"<mn>{chr(0x1D7CE + int(bold[1]))}</mn>", text)
        text = text.replace("<mo>&#x0221E;</mo>", "<mi>&#x0221E;</mi>")
        text = SIGN.sub(r'\1<mo form="prefix">&#x02212;</mo>', text)
        if display == "block":  # a wide one scrolls by itself, also by keyboard
            text = f'<div class="math" tabindex="0" role="group" aria-label="formula">{text}</div>'
        translator.body.append(text)
        raise nodes.SkipNode

    return visit


def keep_together(app, doctree, docname):
    """Let no line begin with the punctuation behind a formula, and name figures by the section they stand in."""
    for math in list(doctree.findall(nodes.math)):
        place = math.parent.index(math)
        before, after = (math.parent[i : i + 1] if i >= 0 else [] for i in (place - 1, place + 1))
        line = nodes.inline(classes=["unbroken"])
        if before and isinstance(before[0], nodes.Text) and before[0].endswith("("):
            math.parent.replace(before[0], nodes.Text(before[0][:-1]))
            line += nodes.Text("(")
        math.parent.replace(math, line)
        line += math
        if after and isinstance(after[0], nodes.Text) and (marks := re.match(r"[.,;:?!)’]+", after[0])):
            line.parent.replace(after[0], nodes.Text(after[0][marks.end() :]))
            line += nodes.Text(marks[0])
    for image in doctree.findall(nodes.image):
        section = next((up for up in ancestors(image) if isinstance(up, nodes.section)), None)
        if section is not None and not image.get("alt"):
            image["alt"] = f"figure: {section.next_node(nodes.title).astext()}"


def ancestors(node):
    while node.parent is not None:
        node = node.parent
        yield node


def setup(app):
    """Typeset mathematics without scripts."""
    app.add_html_math_renderer("mathml", (mathml("inline"), None), (mathml("block"), None))
    app.connect("doctree-resolved", keep_together)
