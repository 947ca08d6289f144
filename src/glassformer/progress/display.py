"""Training as a live panel or as lines, other work as a progress bar; TensorBoard event files."""

import contextlib
import importlib.util
import io
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from .. import dispatch
from ..cluster.collective import process, processes
from ..errors import ConfigError
from ..runs.session import Session
from ..training.loop import StepRecord
from . import is_notebook, log, plural
from .screen import Screen, meaning_of
from .stopwatch import Show, Stopwatch, timing_compilers

PATIENCE = 10.0
"""Seconds after which a pipe gets a line even without an evaluation."""
DELAY = 3.0
"""Seconds after which a message says what is being read or computed."""
PER_SECOND = 4
"""How often the panel is drawn per second; each time takes a few milliseconds."""
PRE = '<pre style="line-height: normal; overflow-x: auto">{code}</pre>'

ShowCount = Callable[[int, int, str], None]
"""Shows how many are done, of how many, and a note."""


@contextlib.contextmanager
def display(
    session: Session, clock: Stopwatch, *, quiet: bool = False, console: Console | None = None
) -> Iterator[Show]:
    """Yield a function that shows steps: a panel on a terminal or in a notebook, lines in a pipe or if `quiet`."""
    console = console or Console(stderr=True)
    if process():
        yield lambda record: None  # only the first of several processes prints
        return
    meaning = meaning_of(session.run.recipe, session.run.config, validates=session.task.validation is not None)
    screen = Screen(session.task.name, meaning, clock, session.run.engine, session.run.metrics())
    begun: Callable[[str], None]
    if not quiet and is_notebook():
        draw = _notebook_pane(screen)
        shown, begun = _panel(screen, session, contextlib.nullcontext(), draw), lambda text: draw(True)
    elif not quiet and console.is_terminal and processes() == 1:
        # The terminal writes its ^C on the empty line below the panel; behind a border it would break the line.
        live = Live(Group(screen, Text()), console=console, refresh_per_second=PER_SECOND)
        shown, begun = _panel(screen, session, live, lambda now: None), lambda text: None
    else:
        shown, begun = _lines(screen), log
    with timing_compilers(clock, screen.engine, begun), shown as show:
        yield show


@contextlib.contextmanager
def _lines(screen: Screen) -> Iterator[Show]:
    """Log one line for every evaluation and refused step, and at least one every `PATIENCE` seconds."""
    logged, clock = time.monotonic(), screen.clock
    if clock.done < clock.total:
        log(f"training {screen.title}, {plural(clock.total - clock.done, 'step')}; {screen.meaning}")

    def show(record: StepRecord) -> None:
        nonlocal logged
        screen.show(record)
        if record.refused:
            log(screen.refusal)
        if record.evaluation is not None or time.monotonic() - logged > PATIENCE:
            logged = time.monotonic()
            log(screen.line())
        if record.stop:
            log("stopped early: the validation loss no longer improves")

    yield show


@contextlib.contextmanager
def _panel(screen: Screen, session: Session, drawing: Any, draw: Callable[[bool], None]) -> Iterator[Show]:
    """Show steps in a panel, whose last state says how the training ended."""

    def show(record: StepRecord) -> None:
        if record.evaluation is not None:
            screen.samples = session.trained.samples()
        screen.show(record)
        draw(False)

    with drawing:
        try:
            yield show
        except BaseException as error:
            screen.state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            raise
        finally:
            draw(True)


def _notebook_pane(screen: Screen) -> Callable[[bool], None]:
    """Return what draws the panel in a notebook, in place of the one before: now, or unless it was drawn just now."""
    from IPython.display import HTML, display  # type: ignore[import-not-found]

    drawn = 0.0
    handle: Any = None

    def draw(now: bool) -> None:
        nonlocal handle, drawn
        if not now and time.monotonic() - drawn < 1 / PER_SECOND:
            return
        drawn = time.monotonic()
        page = Console(file=io.StringIO(), record=True, force_jupyter=False, width=80)
        page.print(screen)
        content = HTML(page.export_html(inline_styles=True, code_format=PRE))
        if handle is None:
            handle = display(content, display_id=True)
        else:
            handle.update(content)

    return draw


@contextlib.contextmanager
def waiting(text: str, *, quiet: bool = False, delay: float = 0.0) -> Iterator[ShowCount]:
    """Show what is being done: a bar on a terminal; in a pipe or if `quiet` a line, after a `delay`.

    Yields a function that shows how much of it is done; in a pipe, by a line every few seconds.
    """
    console, engine = Console(stderr=True), dispatch.current()
    with contextlib.ExitStack() as stack:
        if process():
            yield lambda done, total, note: None
        elif console.is_terminal and not quiet and processes() == 1:
            words = [TextColumn("{task." + field + "}", markup=False) for field in ("description", "fields[note]")]
            columns = words[0], BarColumn(), TimeElapsedColumn(), words[1]
            bars = stack.enter_context(Progress(*columns, console=console, transient=True))
            task = bars.add_task(text, total=None, note="")
            stack.enter_context(timing_compilers(Stopwatch(), engine, lambda said: bars.update(task, note=said)))
            yield lambda done, total, note: bars.update(
                task, completed=done, total=total, note=f"{done:,} of {total:,} {note}"
            )
        else:
            if delay:
                timer = threading.Timer(delay, log, [f"{text} ..."])
                timer.daemon = True
                timer.start()
                stack.callback(timer.cancel)
            else:
                log(f"{text} ...")
                stack.enter_context(timing_compilers(Stopwatch(), engine, log))
            yield (lambda done, total, note: None) if quiet else _counted_lines(text)


def _counted_lines(text: str) -> ShowCount:
    logged = -math.inf

    def report(done: int, total: int, note: str) -> None:
        nonlocal logged
        if time.monotonic() - logged > PATIENCE:
            logged = time.monotonic()
            log(f"{text}: {done:,} of {total:,} {note}")

    return report


def require_tensorboard(*, wanted: bool) -> None:
    """Refuse to write event files without TensorBoard, before anything is trained."""
    if wanted and importlib.util.find_spec("tensorboard") is None:
        raise ConfigError("event files need the tensorboard package", hint="pip install 'glassformer[tensorboard]'")


@contextlib.contextmanager
def event_writer(folder: Path, *, wanted: bool) -> Iterator[Show]:
    """Yield a function that writes the figures of a step; it does nothing unless wanted."""
    if not wanted:
        yield lambda record: None
        return
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))

    def write(record: StepRecord) -> None:
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in record.to_dict().items()
            if name not in ("step", "best", "refused") and value is not None
        ]
        writer.add_event(Event(wall_time=time.time(), step=record.step, summary=Summary(value=values)))

    try:
        yield write
    finally:
        writer.close()
