"""`glassformer explore`: the glass case, a page in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from ..loading import locate
from ..web.explorer import Explorer
from ..web.offers import RUNS, find_offers
from ..web.server import Server
from .generate import MODEL_HELP
from .output import console


def explore(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)] = None,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model reads first.")] = None,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="The folder whose runs are offered.")] = Path(RUNS),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one. A port keeps its address.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Open a page on this machine to see a Transformer work, touch any number, and change anything.

    Without MODEL the page offers the models at hand, or a form to train a small one while you watch.
    """
    if model is not None:
        locate(model)  # refused here, not on the page
    server = Server(Explorer(find_offers([] if model is None else [model], runs), model, prompt, runs), port)
    out = console()
    out.print(f"explore it at {server.address}", markup=False, soft_wrap=True)
    out.print("Ctrl-C ends it")
    server.serve(browser=browser)
