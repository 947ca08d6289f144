"""What one sees while a model trains: a live panel on a terminal, plain lines in a pipe, nothing for programs."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..parallel.together import process, processes
from ..training.loop import StepRecord
from ..training.session import Session, Stopwatch

BARS = "▁▂▃▄▅▆▇█"


class Display:
    """Shows nothing; base of the others."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, record: StepRecord, clock: Stopwatch) -> None:
        """Show one step."""


class LineDisplay(Display):
    """One line per evaluation, and one for every refused step, on stderr."""

    def show(self, record: StepRecord, clock: Stopwatch) -> None:
        if record.refused:
            print(refusal(record), file=sys.stderr, flush=True)
        if record.evaluation is None:
            return
        line = f"step {record.step:,}/{clock.total:,}  loss {record.loss:.4f}  val {record.evaluation.loss:.4f}"
        if record.evaluation.accuracy is not None:
            line += f"  right {record.evaluation.accuracy:.2%}"
        line += f"  {clock.tokens_per_second:,.0f} tokens/s  {duration(clock.remaining)} left"
        print(line, file=sys.stderr, flush=True)
        if record.stop:
            print("stopped early: the validation loss no longer improves", file=sys.stderr, flush=True)


class LiveDisplay(Display):
    """A panel that is drawn anew several times a second."""

    def __init__(self, session: Session, console: Console) -> None:
        super().__init__(session)
        self.live = Live(console=console, refresh_per_second=8, transient=False)
        self.losses: list[float] = []
        self.samples: list[tuple[str, str]] = []
        self.validation: StepRecord | None = None
        self.refusals: str | None = None
        self.drawn = 0.0

    def __enter__(self) -> Self:
        self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.__exit__(kind, error, trace)

    def show(self, record: StepRecord, clock: Stopwatch) -> None:
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


def open_display(session: Session, *, quiet: bool = False) -> Display:
    """Return the display that suits where the output goes."""
    console = Console(stderr=True)
    if process():
        return Display(session)  # the first of several processes speaks for all
    if console.is_terminal and not quiet and processes() == 1:
        return LiveDisplay(session, console)
    return LineDisplay(session)


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
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def refusal(record: StepRecord) -> str:
    """Say that a step was refused."""
    figures = f"loss {record.loss}, gradient norm {record.grad_norm}"
    return f"step {record.step:,} refused: its numbers are not finite ({figures}); the weights are unchanged"
