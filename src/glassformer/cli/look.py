"""`glassformer look`: how a model computed its prediction for a text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ..api.loading import read_model
from ..api.trained_model import TrainedModel
from ..config import EncoderDecoderConfig
from ..core.errors import ConfigError, DataError
from ..core.files import write_new
from ..core.settings import check_known
from ..generation.sampling import check_finite
from ..interpret import Logit
from ..interpret.reading import logit_of
from ..interpret.run import has_no_head
from ..progress.display import waiting
from ..web.views import PageView
from .look_views import VIEWS, View, ViewInput
from .options import PATH, json_option, model_argument, text_argument
from .output import log, print_json, print_table

TOP = 10
FIGURES = (".png", ".svg", ".pdf")
LAYERED = ("lens", "patching", "gradients")
"""Views whose rows are in the order of the layers."""
ASKED = ("token", "against", "position")
OPTIONS = {
    "lens": ("token", "position"),
    "attribution": ASKED,
    "ablation": (*ASKED, "way"),
    "patching": (*ASKED, "other"),
    "gradients": ASKED,
    "heads": (),
    "neurons": ASKED,
}
"""The options that each view reads."""
PAGE_VIEWS = {
    "lens": PageView.LENS, "attribution": PageView.LENS, "gradients": PageView.BACKWARD, "heads": PageView.SCENE,
}  # fmt: skip
"""The view of the explorer that shows what a view of this command shows."""


@click.command()
@model_argument
@text_argument("What the model reads.")
@click.argument("view", default="lens", help=f"What to look at: {', '.join(VIEWS)}.")
@click.option("--token", help="The token or class in question, by its text or as #id (default: the likeliest).")
@click.option("--against", metavar="TOKEN", help="Ask how far the token is above this one.")
@click.option(
    "--position",
    type=int,
    help="Position of the prediction, from 0, or from the end: -1 (default: the last one; of an encoder-decoder the "
    "first token that it writes).",
)
@click.option("--other", metavar="TEXT", help="The second text, for patching.")
@click.option("--way", help="For ablation: zero or mean (default: zero).")
@click.option("--top", type=click.IntRange(1), help="How many rows to show (default: all layers, 10 of anything else).")
@click.option("--figure", type=PATH, metavar="FILE", help="Draw it into this file: .png, .svg or .pdf.")
@click.option(
    "--page", type=PATH, metavar="FILE", help="Write the explorer's page, open at this view: a file that ends in .html."
)
@json_option
def look(
    model: str,
    text: str,
    view: str,
    top: int | None,
    figure: Path | None,
    page: Path | None,
    json: bool,
    **given: Any,
) -> None:
    """Look inside: what each layer predicts, which part adds what, what a removal changes, how gradients flow.

    \b
    lens          what the model would predict if it stopped after each layer
    attribution   what every head, feed-forward layer, embedding and bias adds to the logit
    ablation      how the logit and the loss change without each head
    patching      which position carries the difference to another text
    gradients     how the gradient of the logit flows back through the layers, and to which tokens
    heads         what each attention head looks at
    neurons       which neurons add most to the logit
    """
    check_question(view, text, given)
    check_files(figure, page, view)
    subject = find_predictor(model)
    if subject.is_classifier and given["position"] is not None:
        raise ConfigError("a classifier predicts once for the whole text", hint="leave out --position")
    with waiting(view) as show:
        run = subject.watch(text)
        source = None if given["other"] is None else subject.watch(given["other"])
        # The last token of an encoder-decoder's answer would be its end.
        usual = 0 if isinstance(subject.config, EncoderDecoderConfig) else -1
        position = usual if given["position"] is None else given["position"]
        target = logit_of(run, given["token"], given["against"], position)
        found = view_of(view, ViewInput(subject, run, target, source, given["way"] or "zero", show))
    facts = {"model": model, "view": view, "target": run.label(target.token), **found.facts}
    above = "" if target.against is None else f" above {run.label(target.against)!r}"
    title = found.title.format(target=repr(run.label(target.token)) + above)
    if figure is not None:
        from ..plots import save

        save(found.draw(title), figure)
    if page is not None:
        write_page(page, model, subject, text, view, target, found)
    if json:
        print_json({**facts, "interrupted": found.stopped is not None, "rows": _first(found, top)})
    else:
        print_rows(found, title, top or (len(found.rows) if view in LAYERED else TOP))
    for path in filter(None, (figure, page)):
        log(f"wrote {path}")
    if found.stopped is not None:
        log(found.stopped)
        raise click.exceptions.Exit(130)


def check_question(view: str, text: str, given: dict[str, Any]) -> None:
    """Refuse an unknown view, a missing text, and options that the view does not read."""
    check_known("there is no view", view, VIEWS)
    for name, value in given.items():
        if value is not None and name not in OPTIONS[view]:
            views = [other for other, names in OPTIONS.items() if name in names]
            raise ConfigError(f"{view} has no option --{name}", hint=f"--{name} is for {', '.join(views)}")
    if given["other"] is None and view == "patching":
        raise ConfigError("patching needs a second text", hint="give it as --other TEXT, with as many tokens")
    if not text:
        raise DataError("there is nothing to read", hint="pass a text")


def find_predictor(name: str) -> TrainedModel:
    """Return a model by name; refuse one without a head."""
    with waiting(f"reading {name}"):
        subject = read_model(name)
    if has_no_head(subject.model):
        hint = "`glassformer explore`, `embed` and `inspect` show it"
        raise ConfigError(f"{name} has no head, so it predicts nothing", hint=hint)
    return subject


def view_of(name: str, asked: ViewInput) -> View:
    """Return what a view shows; refuse numbers that are none."""
    check_finite(asked.run.logits)
    found = VIEWS[name](asked)
    check_finite([number for number in _numbers(found.records) if isinstance(number, float)], f"{name} figures")
    return found


def _numbers(value: Any) -> Iterator[Any]:
    """Yield all that nested lists and dicts hold."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    if inner is None:
        yield value
    for part in inner or ():
        yield from _numbers(part)


def check_files(figure: Path | None, page: Path | None, view: str) -> None:
    """Refuse files that cannot be written before anything is computed."""
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise ConfigError(f"{figure} is not the name of a figure", hint=f"end it in {', '.join(FIGURES)}")
    if page is not None and page.suffix.lower() != ".html":
        raise ConfigError(f"{page} is not the name of a page", hint="end it in .html")
    if page is not None and view not in PAGE_VIEWS:
        raise ConfigError(f"the page has no view of {view}", hint="write a figure by --figure FILE, or use --json")


def write_page(path: Path, name: str, model: TrainedModel, text: str, view: str, target: Logit, found: View) -> None:
    """Write the explorer's page of a text, open at a view and what stands first in it, with the logit in question."""
    from ..web.page_export import models_page

    of = {"kind": "logit", "token": target.token, "position": target.position, "against": target.against}
    against = None if target.against is None else f"#{target.against}"
    chosen: dict[str, Any] = {"token": f"#{target.token}", "against": against}
    if target.position >= 0:
        chosen["position"] = target.position
    opened = {PageView.LENS: chosen}
    if view == "heads":
        first = found.records[0]
        part = "cross_attention" if first["attention"] == "cross" else "attention"
        stack = "encoder" if first["attention"] == "encoder" else "decoder"
        opened = {PageView.SCENE: {stack: {"open": first["layer"], "head": first["head"], "attention": part}}}
    write_new(path, models_page([(name, model, text)], of, view=PAGE_VIEWS[view], look=opened).encode())


def _first(found: View, count: int | None) -> list[dict[str, Any]]:
    """Return the records of the first rows; of a map, a row has one for each position."""
    if "point" not in found.records[0]:
        return found.records[:count]
    labels = {row[0] for row in found.rows[:count]}
    return [record for record in found.records if record["point"] in labels]


def print_rows(found: View, title: str, count: int) -> None:
    """Print the first rows."""
    print_table(found.columns, found.rows[:count], title=title)
    if len(found.rows) > count:
        log(f"{len(found.rows) - count:,} more rows: --top {len(found.rows)}")
    for line in found.notes:
        log(line)
