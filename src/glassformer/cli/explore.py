"""`glassformer explore`: the glass case, a page in the browser."""

from pathlib import Path

import click

from ..api.loading import is_run, locate
from ..core.reporting import granted
from ..runs.run import open_run
from ..web.explorer import Explorer
from ..web.offers import RUNS, find_offers
from ..web.server import Server
from .commands import command
from .options import FOLDER, MODEL, MODEL_HELP, text_argument, trust_option


@command(
    "Start",
    "glassformer explore",
    "glassformer explore runs/majority 11110222",
    "glassformer explore smollm2 --port 8765 --no-browser",
)
@click.argument("model", type=MODEL, required=False, help=MODEL_HELP)
@text_argument("What the model reads first.", required=False)
@click.option("--runs", type=FOLDER, metavar="DIR", default=Path(RUNS), help="The folder whose runs are offered.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="The port to listen on; 0 takes a free one. A port keeps its address.",
)
@click.option("--browser/--no-browser", default=True, help="Open the page in the browser.")
@trust_option
def explore(model: str | None, text: str | None, runs: Path, port: int, browser: bool) -> None:
    """Open a page on this machine to see a Transformer work, touch any number, and change anything.

    Without MODEL the page offers the models at hand, or a form to train a small one while you watch.
    """
    if model is not None and is_run(place := locate(model)):
        open_run(place)  # refused here, not on the page
    server = Server(Explorer(find_offers([] if model is None else [model], runs), model, text, runs), port)
    print(f"explore it at {server.address}")
    print("Ctrl-C ends it", flush=True)
    with granted(None if model is None else False):  # --trust speaks of MODEL, not of all runs on the page
        server.serve(browser=browser)
