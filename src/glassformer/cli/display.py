"""What one sees while a model trains: a live panel on a terminal, plain lines in a pipe, nothing for programs.

Those who look at runs in TensorBoard get event files.
"""

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..cluster.collective import process, processes
from ..errors import ConfigError
from ..runs.session import Session, Stopwatch
from ..training.loop import StepRecord
from .output import talk

BARS = "▁▂▃▄▅▆▇█"

Show = Callable[[StepRecord, Stopwatch], None]
"""Shows one step."""


def show_line(record: StepRecord, clock: Stopwatch) -> None:
    """Print one line per evaluation, and one for every refused step, on stderr."""
    if record.refused:
        talk(refusal(record))
    if record.evaluation is None:
        return
    line = f"step {record.step:,}/{clock.total:,}  loss {record.loss:.4f}  val {record.evaluation.loss:.4f}"
    if record.evaluation.accuracy is not None:
        line += f"  right {record.evaluation.accuracy:.2%}"
    talk(f"{line}  {clock.tokens_per_second:,.0f} tokens/s  {duration(clock.remaining)} left")
    if record.stop:
        talk("stopped early: the validation loss no longer improves")


class LivePanel:
    """A panel that is drawn anew several times a second."""

    def __init__(self, session: Session, live: Live) -> None:
        self.session, self.live = session, live
        self.losses: list[float] = []
        self.samples: list[tuple[str, str]] = []
        self.validation: StepRecord | None = None
        self.refusals: str | None = None
        self.drawn = 0.0

    def show(self, record: StepRecord, clock: Stopwatch) -> None:
        """Take in one step, and draw anew if it is time."""
        if record.refused:
            self.refusals = refusal(record)
        else:
            self.losses.append(record.loss)
        if record.evaluation is not None:
            self.validation = record
            self.samples = self.session.trained.samples()
        if time.monotonic() - self.drawn > 0.1 or record.step == clock.total or record.evaluation is not None:
            self.drawn = time.monotonic()
            self.live.update(self._panel(record, clock))

    def _panel(self, record: StepRecord, clock: Stopwatch) -> Panel:
        figures = Table.grid(padding=(0, 3))
        cells = [f"step {record.step:,}/{clock.total:,}", f"loss {smoothed(self.losses):.4f}"]
        best = self.validation
        if best is not None and best.evaluation is not None:
            cells.append(f"validation {best.evaluation.loss:.4f}")
            if best.evaluation.accuracy is not None:
                cells.append(f"right {best.evaluation.accuracy:.2%}")
        cells += [f"{clock.tokens_per_second:,.0f} tokens/s", f"{duration(clock.remaining)} left"]
        figures.add_row(*cells)
        parts: list[Any] = [figures, ProgressBar(total=clock.total, completed=record.step)]
        parts.append(Text(sparkline(self.losses), style="cyan"))
        for question, reply in self.samples:
            parts.append(Text(f"{question!r} → {reply!r}", style="dim", overflow="ellipsis", no_wrap=True))
        if self.refusals:
            parts.append(Text(self.refusals, style="bold red"))
        return Panel(Group(*parts), title=self.session.task.name, title_align="left")


@contextlib.contextmanager
def display(session: Session, *, quiet: bool = False, console: Console | None = None) -> Iterator[Show]:
    """Yield what shows steps where the output goes: on a terminal, in a pipe, or nowhere."""
    console = console or Console(stderr=True)
    if process():
        yield lambda record, clock: None  # the first of several processes speaks for all
    elif console.is_terminal and not quiet and processes() == 1:
        with Live(console=console, refresh_per_second=8, transient=False) as live:
            yield LivePanel(session, live).show
    else:
        yield show_line


def smoothed(losses: list[float], count: int = 20) -> float:
    """Return the mean of the last losses."""
    last = losses[-count:]
    return sum(last) / len(last) if last else float("nan")


def sparkline(values: list[float], width: int = 60) -> str:
    """Draw values as a row of bars, each the mean of a stretch."""
    if not values:
        return ""
    size = max(1, -(-len(values) // width))
    means = [sum(values[i : i + size]) / len(values[i : i + size]) for i in range(0, len(values), size)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(BARS[int((value - low) / span * (len(BARS) - 1))] for value in means)


def duration(seconds: float) -> str:
    """Write a time the way people read it: 1:05, 2:00:00."""
    total = round(seconds)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def refusal(record: StepRecord) -> str:
    """Say that a step was refused."""
    figures = f"loss {record.loss}, gradient norm {record.grad_norm}"
    return f"step {record.step:,} refused: its numbers are not finite ({figures}); the weights are unchanged"


def require_tensorboard(*, wanted: bool) -> None:
    """Say what is missing for event files, before anything is trained."""
    if wanted and importlib.util.find_spec("tensorboard") is None:
        raise ConfigError("event files need the tensorboard package", hint="pip install 'glassformer[tensorboard]'")


@contextlib.contextmanager
def event_writer(folder: Path, *, wanted: bool) -> Iterator[Callable[[StepRecord], None]]:
    """Yield a function that writes one step's figures; it does nothing unless wanted."""
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
