"""`gf.explore`: the glass case from Python: a page inside a notebook, or in the browser."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ..interpret.reading import example_text
from ..progress import is_notebook, log
from ..weights.loaded_model import LoadedModel

HEIGHT = 760
"""Pixels of the page inside a notebook."""
KEY = "model"


@dataclass(eq=False)
class Exploration:
    """A model and what it reads, as a page: notebooks show it, `serve` opens it in the browser, `save` writes a file.

    The page in a notebook or a file holds every value and every gradient and needs no server. A served page can also
    change values, write text and take training steps.
    """

    model: LoadedModel
    text: str

    def __repr__(self) -> str:
        return f"<exploration of {self.model.title}: .serve() opens it in the browser, .save(path) writes one file>"

    def _repr_html_(self) -> str:
        # The page may run its own script, and can reach nothing of the notebook.
        frame = f'sandbox="allow-scripts allow-downloads" width="100%" height="{HEIGHT}" title="Glassformer"'
        return f'<iframe {frame} style="border: 1px solid #8888" srcdoc="{escape(self.html())}"></iframe>'

    def html(self) -> str:
        """Return the page as one file."""
        from ..web.page_export import page_state, standalone_page

        return standalone_page(self._explorer(), page_state(KEY, self.text))

    def save(self, path: str | Path) -> Path:
        """Write the page as one file, and return where it is."""
        from ..core.files import write_new

        return write_new(path, self.html().encode())

    def serve(self, *, port: int = 0, browser: bool = True) -> None:
        """Serve the page on this machine until Ctrl-C, and open it in the browser."""
        from ..web.server import Server

        server = Server(self._explorer(), port)
        log(f"explore it at {server.address}; Ctrl-C ends it")
        server.serve(browser=browser)

    def _explorer(self) -> Any:
        from ..web.explorer import Explorer
        from ..web.offers import Offer

        explorer = Explorer({}, first=KEY, prompt=self.text)
        explorer.add(Offer(KEY, self.model.title, "given", KEY), self.model)
        return explorer


def explored(model: LoadedModel, text: str | None, *, show: bool) -> Exploration:
    """Return a model as it reads a text, open in the browser if `show`; a notebook displays the result instead."""
    exploration = Exploration(model, example_text(model) if text is None else text)
    if show and not is_notebook():
        exploration.serve()
    return exploration
