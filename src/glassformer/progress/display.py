"""Training as a live panel or as lines, other work as a progress bar; TensorBoard event files."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..core import dispatch
from ..core.errors import ConfigError
from ..core.reporting import ShowCount, reported_to
from ..engines.cluster.collective import process, processes
from ..generation.answer import samples
from . import is_notebook, log, plural
from .console import SafeConsole
from .screen import Screen, meaning_of
from .stopwatch import Show, Stopwatch, compilation, duration, timing_compilers

if TYPE_CHECKING:  # many commands show progress without training
    from ..runs.session import TrainingSession
    from ..training.loop import StepRecord

PATIENCE, LONGEST = 10.0, 600.0
"""Seconds after which a pipe gets a line, at first and at last."""
GROWTH = 1.5
"""The distance between the lines in a pipe, in seconds and in steps, grows by this factor."""
DELAY, MOMENT = 3.0, 0.5
"""Seconds after which a pipe and a terminal are told what is being read or computed."""
PER_SECOND = 4
"""How often the panel is drawn per second; each time takes a few milliseconds."""
PRE = '<pre style="line-height: normal; overflow-x: auto">{code}</pre>'


class Pauses:
    """The growing time between the lines in a pipe."""

    def __init__(self) -> None:
        self.since, self.seconds = time.monotonic(), PATIENCE

    def is_over(self) -> bool:
        """Return whether the next line is due, and begin the next, longer pause if it is."""
        if time.monotonic() - self.since <= self.seconds:
            return False
        self.since, self.seconds = time.monotonic(), min(GROWTH * self.seconds, LONGEST)
        return True


# --- training --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def display(session: TrainingSession, clock: Stopwatch, *, console: Console | None = None) -> Iterator[Show]:
    """Yield a function that shows steps: a panel on a terminal or in a notebook, lines in a pipe."""
    console = console or SafeConsole(sys.stderr)
    if process():
        yield lambda record: None  # only the first of several processes prints
        return
    from ..training.evaluate import sample_size

    recipe, task = session.run.recipe, session.task
    sampled = sample_size(task.validation or task.held_out, recipe.eval_tokens)
    meaning = meaning_of(recipe, session.run.config, validates=task.validation is not None, sampled=sampled)
    screen = Screen(session.task.name, meaning, clock, session.run.engine, session.metrics())
    shown: contextlib.AbstractContextManager[Show]
    begun: Callable[[str], None]
    if is_notebook():
        draw = _notebook_pane(screen)
        shown, begun = _panel(screen, session, contextlib.nullcontext(), draw), lambda text: draw(True)
    elif console.is_terminal and processes() == 1:
        # The terminal writes its ^C on the empty line below the panel; behind a border it would break the line.
        live = Live(Group(screen, Text()), console=console, refresh_per_second=PER_SECOND)
        shown, begun = _panel(screen, session, live, lambda now: None), lambda text: None
    else:
        shown, begun = contextlib.nullcontext(_lines(screen)), log
    with timing_compilers(clock, screen.engine, begun), shown as show:
        yield show


def _lines(screen: Screen) -> Show:
    """Return what logs refused steps, the last one, and between them lines at growing distances."""
    clock, pauses, logged = screen.clock, Pauses(), 0
    if clock.done < clock.total:
        log(f"training {screen.title}, {plural(clock.total - clock.done, 'step')}; {screen.meaning}")

    def show(record: StepRecord) -> None:
        nonlocal logged
        screen.show(record)
        taken, is_over = clock.done - clock.first, pauses.is_over()
        if record.refused:
            log(screen.refusal)
        is_judged = record.evaluation is not None and taken >= GROWTH * logged
        if is_over or is_judged or screen.state != "training":
            logged = taken
            log(screen.line())
        if record.stop:
            log("stopped early: the validation no longer improves")

    return show


@contextlib.contextmanager
def _panel(screen: Screen, session: TrainingSession, drawing: Any, draw: Callable[[bool], None]) -> Iterator[Show]:
    """Show steps in a panel, whose last state says how the training ended."""

    def show(record: StepRecord) -> None:
        if record.evaluation is not None:
            screen.samples = samples(session.trained)
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


# --- other work ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def waiting(text: str, *, compiles: bool = True) -> Iterator[ShowCount]:
    """Show what is being done if it takes a moment: a bar on a terminal, lines in a pipe.

    Yields a function that shows how much is done and how long the rest will take, time in compilers not counted;
    `reporting.report` calls it too.
    compiles   False where nothing is computed, so that no engine need be loaded
    """
    if process():
        yield lambda done, total, note: None  # only the first of several processes prints
        return
    engine = dispatch.current() if compiles else None
    work = _Work(text, engine)
    with contextlib.ExitStack() as stack:
        work.start()
        stack.callback(work.stop)
        if engine is not None:
            begun = (lambda said: None) if work.on_terminal else log
            stack.enter_context(timing_compilers(work.clock, engine, begun))
        with reported_to(work.count):
            yield work.count


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Show no progress inside the block: what asks a question must not be written over."""
    with contextlib.ExitStack() as stack:
        for work in list(_shown):
            work.stop()
            stack.callback(work.start)
        yield


class _Work(ProgressColumn):
    """What `waiting` shows, after a moment and until it is stopped; the last column of its bar."""

    max_refresh = None

    def __init__(self, text: str, engine: dispatch.Engine | None) -> None:
        super().__init__()
        self.text, self.engine, self.note = text, engine, ""
        self.clock, self.pauses, self.console = Stopwatch(), Pauses(), SafeConsole(sys.stderr)
        self.on_terminal = self.console.is_terminal and processes() == 1
        self.bars: Progress | None = None

    def count(self, done: int, total: int, note: str) -> None:
        """Show how much is done."""
        self.clock.total, self.note = total, note
        self.clock.count(done)
        if self.bars is not None:
            self.bars.update(self.bars.task_ids[0], completed=done, total=total)
        elif not self.on_terminal and self.pauses.is_over():
            log(f"{self.text}: {self.state()}")

    def state(self) -> str:
        """Return in words how much is done, and how long the rest will take, or what is being compiled."""
        clock = self.clock
        if clock.is_compiling and self.engine is not None:
            return compilation(clock, self.engine)
        left = "" if clock.remaining is None else f", {duration(clock.remaining)} left"
        return f"{clock.done:,} of {clock.total:,} {self.note}{left}" if clock.total else ""

    def render(self, task: Any) -> Text:
        """Return what stands behind the bar."""
        return Text(self.state(), style="yellow" if self.clock.is_compiling else "")

    def start(self) -> None:
        """Show it in a moment."""
        self.timer = threading.Timer(MOMENT if self.on_terminal else DELAY, self._begin)
        self.timer.daemon = True
        self.timer.start()
        _shown.append(self)

    def stop(self) -> None:
        """Show it no more."""
        _shown.remove(self)
        self.timer.cancel()
        self.timer.join()
        if self.bars is not None:
            self.bars.stop()
            self.bars = None

    def _begin(self) -> None:
        if not self.on_terminal:
            log(f"{self.text} ...")
            return
        columns = TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), TimeElapsedColumn(), self
        bars = Progress(*columns, console=self.console, transient=True)
        bars.add_task(self.text, total=None)
        bars.start()
        self.bars = bars


_shown: list[_Work] = []


# --- event files -----------------------------------------------------------------------------------------------------


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
