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
from .screen import Screen, duration, meaning_of
from .stopwatch import Show, Stopwatch, compilation, timing_compilers

if TYPE_CHECKING:  # many commands show progress without training
    from ..runs.session import TrainingSession
    from ..training.loop import StepRecord

PATIENCE = 10.0
"""Seconds after which a pipe gets a line even without an evaluation."""
DELAY, MOMENT = 3.0, 0.5
"""Seconds after which a pipe and a terminal are told what is being read or computed."""
PER_SECOND = 4
"""How often the panel is drawn per second; each time takes a few milliseconds."""
PRE = '<pre style="line-height: normal; overflow-x: auto">{code}</pre>'


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
    begun: Callable[[str], None]
    if is_notebook():
        draw = _notebook_pane(screen)
        shown, begun = _panel(screen, session, contextlib.nullcontext(), draw), lambda text: draw(True)
    elif console.is_terminal and processes() == 1:
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


@contextlib.contextmanager
def waiting(text: str, *, compiles: bool = True) -> Iterator[ShowCount]:
    """Show what is being done if it takes a moment: a bar on a terminal, lines in a pipe.

    Yields a function that shows how much is done and how long the rest will take, time in compilers not counted;
    `reporting.report` calls it too.
    compiles   False where nothing is computed, so that no engine need be loaded
    """
    console, clock = SafeConsole(sys.stderr), Stopwatch()
    if process():
        yield lambda done, total, note: None  # only the first of several processes prints
        return
    engine = dispatch.current() if compiles else None
    on_terminal = console.is_terminal and processes() == 1
    state = _State(clock, engine)
    line = _Line(text, state, console, on_terminal=on_terminal)
    logged = time.monotonic()

    def count(done: int, total: int, note: str) -> None:
        nonlocal logged
        clock.total, state.note = total, note
        clock.count(done)
        if on_terminal:
            line.update(done, total)
        elif time.monotonic() - logged > PATIENCE:
            logged = time.monotonic()
            log(f"{text}: {counted(clock, note)}")

    with contextlib.ExitStack() as stack:
        line.start()
        stack.callback(line.stop)
        if engine is not None:
            stack.enter_context(timing_compilers(clock, engine, lambda said: None if on_terminal else log(said)))
        with reported_to(count):
            yield count


class _Line:
    """The display of `waiting`, after a moment and until it is stopped: a bar on a terminal, one line in a pipe."""

    def __init__(self, text: str, state: _State, console: Console, *, on_terminal: bool) -> None:
        self.text, self.state, self.console, self.on_terminal = text, state, console, on_terminal
        self.bars: Progress | None = None

    def update(self, done: int, total: int) -> None:
        """Show how much is done."""
        if self.bars is not None:
            self.bars.update(self.bars.task_ids[0], completed=done, total=total)

    def start(self) -> None:
        """Show it in a moment."""
        self.timer = threading.Timer(MOMENT if self.on_terminal else DELAY, self._begin)
        self.timer.daemon = True
        self.timer.start()
        _lines_shown.append(self)

    def stop(self) -> None:
        """Show it no more."""
        _lines_shown.remove(self)
        self.timer.cancel()
        self.timer.join()
        if self.bars is not None:
            self.bars.stop()
            self.bars = None

    def _begin(self) -> None:
        if not self.on_terminal:
            log(f"{self.text} ...")
            return
        words = TextColumn("{task.description}", markup=False)
        columns = words, BarColumn(bar_width=24), TimeElapsedColumn(), self.state
        bars = Progress(*columns, console=self.console, transient=True)
        bars.add_task(self.text, total=None)
        bars.start()
        self.bars = bars


_lines_shown: list[_Line] = []


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Show no progress inside the block: what asks a question must not be written over."""
    with contextlib.ExitStack() as stack:
        for line in list(_lines_shown):
            line.stop()
            stack.callback(line.start)
        yield


class _State(ProgressColumn):
    """The part that is done and the time that the rest will take, or the name of what is being compiled."""

    max_refresh = None

    def __init__(self, clock: Stopwatch, engine: dispatch.Engine | None) -> None:
        super().__init__()
        self.clock, self.engine, self.note = clock, engine, ""

    def render(self, task: Any) -> Text:
        """Return what stands behind the bar."""
        if self.clock.is_compiling and self.engine is not None:
            return Text(compilation(self.clock, self.engine), style="yellow")
        return Text(counted(self.clock, self.note) if self.clock.total else "")


def counted(clock: Stopwatch, note: str) -> str:
    """Return in words how much is done, and how long the rest will take."""
    left = "" if clock.remaining is None else f", {duration(clock.remaining)} left"
    return f"{clock.done:,} of {clock.total:,} {note}{left}"


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
