"""`glassformer look`: how a model computed its prediction for a text."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.text import Text

from ..api.loading import read_model
from ..api.trained_model import TrainedModel
from ..config import EncoderDecoderConfig
from ..core.errors import ConfigError, DataError
from ..core.files import write_new
from ..core.settings import check_known
from ..core.show import NEGATIVE, POSITIVE, Passage, Result
from ..generation.sampling import check_finite
from ..interpret.reading import logit_of
from ..interpret.run import has_no_head
from ..interpret.words import fitting
from ..progress.display import waiting
from ..web.views import PageView
from .commands import command
from .look_views import VIEWS, Question, View
from .options import PATH, Offers, json_option, model_argument, text_argument
from .output import console, log, print_json, print_table

WEAK, STRONG = 0.15, 0.5
"""Shares of the largest number from which on a part of a text is in color, and on color."""
TOP = 10
FIGURES = (".png", ".svg", ".pdf")


@command(
    "Look inside",
    "glassformer look runs/majority 11110222",
    "glassformer look runs/majority 11110222 attribution --token 2 --against 1",
    'glassformer look smollm2 "The capital of France is" lens',
    "glassformer look runs/majority 11110222 patching --other 22220111",
)
@model_argument
@text_argument("What the model reads.")
@click.argument(
    "view", type=Offers(names=lambda: list(VIEWS)), default="lens", help=f"What to look at: {', '.join(VIEWS)}."
)
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
@click.option(
    "--truncate",
    is_flag=True,
    default=None,
    help="Of a text longer than the context, read its end (for words: its beginning).",
)
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
    """Look inside: what each layer predicts, which part adds what, what a removal changes, how gradients flow."""
    chosen = check_question(view, text, given)
    check_files(figure, page, chosen)
    subject = find_predictor(model)
    if subject.is_classifier and given["position"] is not None:
        raise ConfigError("a classifier predicts once for the whole text", hint="leave out --position")
    with waiting(view) as show:
        run = subject.watch(fitting(subject, text)[0] if given["truncate"] else text)
        source = None if given["other"] is None else subject.watch(given["other"])
        # The last token of an encoder-decoder's answer would be its end.
        usual = 0 if isinstance(subject.config, EncoderDecoderConfig) else -1
        position = usual if given["position"] is None else given["position"]
        target = logit_of(run, given["token"], given["against"], position)
        way, draws, truncate = given["way"] or "zero", figure is not None, bool(given["truncate"])
        question = Question(subject, text, run, target, source, way, draws, truncate, show)
        found = answer(chosen, question)
    if figure is not None:
        from ..plots import draw, save

        save(draw(found), figure)
    if page is not None:
        write_page(page, model, text, chosen, question, found)
    if json:
        facts = {"model": model, "view": view, "target": run.label(target.token), **found.facts}
        print_json({**facts, "interrupted": bool(found.unfinished), "rows": first_records(found, top)})
    else:
        print_rows(found, top or (len(found.rows) if chosen.by_layer else TOP))
    for path in filter(None, (figure, page)):
        log(f"wrote {path}")
    if found.unfinished:
        log(found.unfinished)
        raise click.exceptions.Exit(130)


look.help = "\n\n\b\n".join([
    look.help or "", "\n".join(f"{name:<14}{view.meaning}" for name, view in VIEWS.items())
])  # fmt: skip


def check_question(view: str, text: str, given: dict[str, Any]) -> View:
    """Return a view by name; refuse a missing text, and options that the view does not read."""
    check_known("there is no view", view, VIEWS)
    chosen = VIEWS[view]
    for name, value in given.items():
        if value is not None and name not in chosen.options:
            views = [other.name for other in VIEWS.values() if name in other.options]
            raise ConfigError(f"{view} has no option --{name}", hint=f"--{name} is for {', '.join(views)}")
    if given["other"] is None and "other" in chosen.options:
        raise ConfigError(f"{view} needs a second text", hint="give it as --other TEXT, with as many tokens")
    if not text:
        raise DataError("there is nothing to read", hint="pass a text")
    return chosen


def check_files(figure: Path | None, page: Path | None, view: View) -> None:
    """Refuse files that cannot be written before anything is computed."""
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise ConfigError(f"{figure} is not the name of a figure", hint=f"end it in {', '.join(FIGURES)}")
    if page is not None and page.suffix.lower() != ".html":
        raise ConfigError(f"{page} is not the name of a page", hint="end it in .html")
    if page is not None and view.page is None:
        raise ConfigError(f"the page has no view of {view.name}", hint="write a figure by --figure FILE, or use --json")


def find_predictor(name: str) -> TrainedModel:
    """Return a model by name; refuse one without a head."""
    with waiting(f"reading {name}"):
        subject = read_model(name)
    if has_no_head(subject.model):
        hint = "`glassformer explore`, `embed` and `inspect` show it"
        raise ConfigError(f"{name} has no head, so it predicts nothing", hint=hint)
    return subject


def answer(view: View, question: Question) -> Result:
    """Return what a view shows; refuse numbers that are not finite."""
    check_finite(question.run.logits)
    found = view.answer(question)
    numbers = [number for number in _leaves(found.records) if isinstance(number, float)]
    check_finite(np.asarray(numbers), f"{view.name} figures")
    return found


def _leaves(value: Any) -> Iterator[Any]:
    """Yield all that nested lists and dicts hold."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    if inner is None:
        yield value
    for part in inner or ():
        yield from _leaves(part)


def write_page(path: Path, name: str, text: str, view: View, question: Question, found: Result) -> None:
    """Write the explorer's page of a text, open at a view and what stands first in it, with the logit in question."""
    from ..web.page_export import models_page

    target = question.target
    of = {"kind": "logit", "token": target.token, "position": target.position, "against": target.against}
    against = None if target.against is None else f"#{target.against}"
    chosen: dict[str, Any] = {"token": f"#{target.token}", "against": against}
    if target.position >= 0:
        chosen["position"] = target.position
    opened = {PageView.LENS: chosen}
    if view.page is PageView.SCENE:
        first = found.records[0]
        part = "cross_attention" if first["attention"] == "cross" else "attention"
        stack = "encoder" if first["attention"] == "encoder" else "decoder"
        opened = {PageView.SCENE: {stack: {"open": first["layer"], "head": first["head"], "attention": part}}}
    assert view.page is not None
    write_new(path, models_page([(name, question.subject, text)], of, view=view.page, look=opened).encode())


def first_records(found: Result, count: int | None) -> list[Any]:
    """Return the records of the first rows; of a map, a row has one for each position."""
    if not found.records or "point" not in found.records[0]:
        return list(found.records[:count])
    labels = {row[0] for row in found.rows[:count]}
    return [record for record in found.records if record["point"] in labels]


def print_rows(found: Result, count: int) -> None:
    """Print the first rows."""
    print_passages(found.passages)
    columns, rows = replace(found, rows=found.rows[:count]).texts()
    print_table(columns, rows, title=found.title)
    if len(found.rows) > count:
        log(f"{len(found.rows) - count:,} more rows: --top {len(found.rows)}")
    for line in found.notes:
        log(line)


def print_passages(passages: Sequence[Passage]) -> None:
    """Print texts in color; without color nothing, since the table below them has the numbers."""
    out = console()
    if out.is_terminal and out.color_system is not None and not out.no_color:
        for passage in passages:
            text = Text(f"{passage.label}: ", style="dim")
            for part, share in passage.shares():
                color = f"rgb({','.join(map(str, POSITIVE if share > 0 else NEGATIVE))})"
                weak = color if abs(share) >= WEAK else "not dim"
                text.append(part, style=f"not dim bold white on {color}" if abs(share) >= STRONG else f"not dim {weak}")
            out.print(text, soft_wrap=False)
