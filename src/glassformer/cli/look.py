"""`glassformer look`: what a model did with a text, and what would have been."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import ConfigError, DataError, did_you_mean
from ..interpret.run import has_no_head
from ..subject import Subject, find_subject
from .generate import ModelArgument
from .look_views import VIEWS, Found, Question
from .output import JsonOption, bytes_text, console, print_json, table, talk

TOP = 10
FIGURES = (".png", ".svg", ".pdf")
LAYERED = ("lens", "patching", "gradients")
"""Views whose rows are in the order of the layers."""

TextArgument = Annotated[str, typer.Argument(metavar="INPUT", help="What the model reads.")]
ViewArgument = Annotated[
    str, typer.Argument(metavar="VIEW", help="lens, attribution, ablation, patching, gradients, heads or neurons.")
]


def look(
    model: ModelArgument,
    text: TextArgument,
    view: ViewArgument = "lens",
    token: Annotated[
        str | None, typer.Option(help="The token or class in question, by its text or as #id (default: the likeliest).")
    ] = None,
    against: Annotated[str | None, typer.Option(help="Ask how far the token is above this one.")] = None,
    position: Annotated[int, typer.Option(help="Where the prediction stands, from 0, or from the end: -1.")] = -1,
    other: Annotated[str | None, typer.Option(metavar="TEXT", help="The second text, for patching.")] = None,
    way: Annotated[str, typer.Option(help="For ablation: zero or mean.")] = "zero",
    top: Annotated[
        int | None, typer.Option(min=1, help="How many rows are shown (default: all layers, 10 of anything else).")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it into this file: .png, .svg or .pdf.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write table and figure into this page, one .html file.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Look inside: what each layer would say, which part says it, what happens without it, how gradients flow.

    lens          what the model would have said, had it stopped after each layer
    attribution   what every head, feed-forward layer, embedding and bias adds to the logit
    ablation      what the logit and the loss are without each head
    patching      which place carries the difference to another text
    gradients     how the gradient of the logit runs back through the layers, and to which tokens
    heads         what each head of attention looks at
    neurons       which neurons add most to the logit
    """
    check_question(view, text, other)
    check_files(figure, page)
    subject = found_subject(model)
    run = subject.watch(text)
    source = None if other is None else subject.watch(other)
    target = subject.target(run, token, against, position)
    with progress(quiet=json) as show:
        found = VIEWS[view](Question(subject, run, target, source, way, show))
    said = {"model": model, "view": view, "target": subject.label(target.token), **found.facts}
    above = "" if target.against is None else f" above {subject.label(target.against)!r}"
    title = found.title.format(target=repr(subject.label(target.token)) + above)
    write_files(found, title, (f"Inside {model}", f"It reads {text!r}."), figure, page)
    if json:
        print_json({**said, "rows": found.records})
        return
    show_rows(found, title, top or (len(found.rows) if view in LAYERED else TOP))
    for path in filter(None, (figure, page)):
        talk(f"wrote {path}")


def check_question(view: str, text: str, other: str | None) -> None:
    """Refuse a view that is not there, a text that is missing, and one too many."""
    if view not in VIEWS:
        raise ConfigError(f"there is no view {view!r}", hint=did_you_mean(view, VIEWS))
    if other is not None and view != "patching":
        raise ConfigError(f"{view} looks at one text", hint="--other is for patching")
    if other is None and view == "patching":
        raise ConfigError("patching needs a second text", hint="give it as --other TEXT, in as many tokens")
    if not text:
        raise DataError("there is nothing to read", hint="pass an INPUT")


def found_subject(name: str) -> Subject:
    """Return the model of a name; one that predicts nothing is refused."""
    subject = find_subject(name)
    if has_no_head(subject.model):
        hint = "`glassformer explore`, `embed` and `inspect` show it"
        raise ConfigError(f"{name} has no head, so it predicts nothing", hint=hint)
    return subject


def check_files(figure: Path | None, page: Path | None) -> None:
    """Refuse files whose names do not end as what is written into them, before anything is computed."""
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise ConfigError(f"{figure} is no name of a figure", hint=f"let it end in {', '.join(FIGURES)}")
    if page is not None and page.suffix.lower() != ".html":
        raise ConfigError(f"{page} is no name of a page", hint="let it end in .html")


def write_files(found: Found, title: str, top: tuple[str, str], figure: Path | None, page: Path | None) -> None:
    """Write a figure of what was found, and a page with the figure and all rows, where they are wanted.

    `top` is the title of the page, and what stands below it.
    """
    if figure is not None:
        from ..plots import save

        save(found.draw(title), figure)
    if page is not None:
        from ..plots import Section, Sketch, Table, write_page

        table = Table(found.columns, found.rows)
        sketch = Sketch("view", lambda: found.draw(title))
        section = Section(title, "\n\n".join(found.notes), [sketch], [table])
        write_page(page, top[0], [section], intro=top[1])


def show_rows(found: Found, title: str, count: int) -> None:
    """Print what was found, the first rows of it."""
    console().print(title, markup=False)
    console().print(table(*found.columns, rows=found.rows[:count]))
    if len(found.rows) > count:
        console().print(f"{len(found.rows) - count:,} more rows: --top {len(found.rows)}", markup=False)
    for line in found.notes:
        console().print(line, markup=False)


@contextlib.contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[int, int, int], None]]:
    """Yield what shows how many variants are done and says what memory they take, on stderr."""
    screen = Console(stderr=True)
    said: list[int] = []

    def say(memory: int, total: int) -> None:
        if not said and not quiet:
            talk(f"{total:,} changed runs, about {bytes_text(memory)} at a time ...")
        said.append(memory)

    if quiet or not screen.is_terminal:
        yield lambda done, total, memory: say(memory, total)
        return
    columns = (TextColumn("running"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bars:
        task: Any = None

        def show(done: int, total: int, memory: int) -> None:
            nonlocal task
            say(memory, total)
            task = bars.add_task("", total=total) if task is None else task
            bars.update(task, completed=done)

        yield show
