"""Settings of the site: `make docs` builds it from the pages of this folder and of its parent, without a network."""

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
extensions = ["myst_nb", "sphinx.ext.autodoc", "live_figures", "notebooks", "reference"]
root_doc = "docs/index"
# The README files are for readers of the repository; tests compare their lists with the site's.
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
    "logo": {"text": "Glassformer"},
}


def mathml(display):
    """Return what writes formulas as MathML, which browsers typeset themselves."""

    def visit(translator, node):
        text = convert(node.astext(), display=display)
        # Browsers do not read mathvariant: a bold digit is a sign of its own.
        text = re.sub(r'<mn mathvariant="bold">(\d)</mn>', lambda bold: f"<mn>{chr(0x1D7CE + int(bold[1]))}</mn>", text)
        if display == "block":  # a wide one scrolls by itself, also by keyboard
            text = f'<div class="math" tabindex="0" role="group" aria-label="formula">{text}</div>'
        translator.body.append(text)
        raise nodes.SkipNode

    return visit


def setup(app):
    """Typeset mathematics without scripts."""
    app.add_html_math_renderer("mathml", (mathml("inline"), None), (mathml("block"), None))
