"""The display of training: a live panel on a terminal, plain lines in a pipe, TensorBoard event files."""

import contextlib
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from .. import dispatch
from ..cluster.collective import process, processes
from ..errors import ConfigError
from ..runs.session import Session
from ..runs.stopwatch import Stopwatch
from ..training.loop import StepRecord
from . import log, plural
from .chart import short
from .compiling import Compilation, watched
from .screen import Recent, Screen, duration, meaning_of, refusal

PATIENCE = 10.0
"""Seconds after which a pipe gets a line even without an evaluation."""
DELAY = 3.0
"""Seconds after which a message says what is being read or computed."""
PER_SECOND = 4
"""How often the panel is drawn per second; each time takes a few milliseconds."""

Show = Callable[[StepRecord], None]
"""Shows one step, after the clock has counted it."""


class Lines:
    """One line for every evaluation and refused step, and at least one every `PATIENCE` seconds."""

    def __init__(self, clock: Stopwatch) -> None:
        self.clock, self.recent = clock, Recent()
        self.logged = time.monotonic()

    def show(self, record: StepRecord) -> None:
        """Take in one step, and log a line if it is time."""
        self.recent.add(record)
        if record.refused:
            log(refusal(record))
        if record.evaluation is not None or time.monotonic() - self.logged > PATIENCE:
            self.logged = time.monotonic()
            log(self.line(record))
        if record.stop:
            log("stopped early: the validation loss no longer improves")

    def line(self, record: StepRecord) -> str:
        """Return the state of the run in one line."""
        clock = self.clock
        cells = [f"step {record.step:,}/{clock.total:,}", f"training loss {short(self.recent.mean)}"]
        if record.evaluation is not None:
            cells.append(f"validation loss {short(record.evaluation.loss)}")
            if record.evaluation.accuracy is not None:
                cells.append(f"{record.evaluation.accuracy:.2%} right")
        cells.append(f"{clock.tokens_per_second:,.0f} tokens/s")
        if clock.remaining is not None:
            cells.append(f"{duration(clock.remaining)} left")
        return "  ".join(cells)


@contextlib.contextmanager
def display(
    session: Session, clock: Stopwatch, *, quiet: bool = False, console: Console | None = None
) -> Iterator[Show]:
    """Yield a function that shows steps: on a terminal, in a pipe, or nowhere."""
    console = console or Console(stderr=True)
    if process():
        yield lambda record: None  # only the first of several processes prints
        return
    on_terminal = console.is_terminal and not quiet and processes() == 1
    with compiling(session, None if on_terminal else log) as compilation:
        shown = _live(session, clock, compilation, console) if on_terminal else _lines(session, clock)
        with shown as show:
            yield timed(show, clock, compilation)


@contextlib.contextmanager
def compiling(session: Session, begun: Callable[[str], None] | None) -> Iterator[Compilation]:
    """Time what is compiled for a session; `begun` is called once, when compiling begins."""
    with watched(session.run.engine, begun) as compilation:
        if session.run.engine.name == "jax":
            compilation.begin()
        yield compilation


def timed(show: Show, clock: Stopwatch, compilation: Compilation) -> Show:
    """Tell the clock how long compilers took, before a step is shown."""

    def counted(record: StepRecord) -> None:
        compilation.end()  # of a step that was compiled as one; all kernels are done by now
        clock.compiling = compilation.seconds
        show(record)

    return counted


@contextlib.contextmanager
def _lines(session: Session, clock: Stopwatch) -> Iterator[Show]:
    if clock.done < clock.total:
        log(f"training {session.task.name}, {plural(clock.total - clock.done, 'step')}; {_meaning(session)}")
    yield Lines(clock).show


@contextlib.contextmanager
def _live(session: Session, clock: Stopwatch, compilation: Compilation, console: Console) -> Iterator[Show]:
    screen = Screen(session.task.name, _meaning(session), clock, compilation, session.run.metrics())
    if clock.done >= clock.total:
        screen.state = "done"

    def show(record: StepRecord) -> None:
        if record.evaluation is not None:
            screen.samples = session.trained.samples()
        screen.show(record)

    # The terminal writes its ^C on the empty line below the panel; behind a border it would break the line.
    with Live(Group(screen, Text()), console=console, refresh_per_second=PER_SECOND):
        try:
            yield show
        except BaseException as error:
            screen.state = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            raise


def _meaning(session: Session) -> str:
    return meaning_of(session.run.recipe, session.run.config, validates=session.task.validation is not None)


class _Waiting:
    """A spinner with a text, the time so far, and what is being compiled."""

    def __init__(self, text: str, compilation: Compilation) -> None:
        self.text, self.compilation = text, compilation
        self.began, self.spinner = time.perf_counter(), Spinner("dots")

    def __rich__(self) -> RenderableType:
        more = f"; {self.compilation}" if self.compilation.running else ""
        self.spinner.update(text=Text(f"{self.text} {duration(time.perf_counter() - self.began)}{more}"))
        return self.spinner


@contextlib.contextmanager
def waiting(text: str, *, quiet: bool = False, delay: float = 0.0) -> Iterator[None]:
    """Show what is being done: a spinner on a terminal, a line in a pipe, there after a `delay`."""
    console = Console(stderr=True)
    if process():
        yield
        return
    with contextlib.ExitStack() as stack:
        if console.is_terminal and not quiet and processes() == 1:
            line = _Waiting(text, stack.enter_context(watched(dispatch.current())))
            stack.enter_context(Live(line, console=console, refresh_per_second=PER_SECOND, transient=True))
        elif delay:
            timer = threading.Timer(delay, log, [f"{text} ..."])
            timer.daemon = True
            timer.start()
            stack.callback(timer.cancel)
        else:
            log(f"{text} ...")
            stack.enter_context(watched(dispatch.current(), log))
        yield


def require_tensorboard(*, wanted: bool) -> None:
    """Refuse to write event files without TensorBoard, before anything is trained."""
    if wanted and importlib.util.find_spec("tensorboard") is None:
        raise ConfigError("event files need the tensorboard package", hint="pip install 'glassformer[tensorboard]'")


@contextlib.contextmanager
def event_writer(folder: Path, *, wanted: bool) -> Iterator[Callable[[StepRecord], None]]:
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
