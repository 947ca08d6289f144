"""The panel that a terminal shows during training, for widths from 40 columns."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..config import TransformerConfig
from ..runs.folder import RECENT
from ..runs.stopwatch import Stopwatch
from ..training.loop import StepRecord
from ..training.recipe import Recipe
from .chart import BAR, DOT, LABELS, Curve, chart, is_logarithmic, short
from .compiling import Compilation

BORDERS = {"training": "none", "done": "green", "stopped early": "green", "interrupted": "yellow", "failed": "red"}


class Recent:
    """The mean of the last losses, without refused steps."""

    def __init__(self) -> None:
        self.losses: deque[float] = deque(maxlen=RECENT)

    def add(self, record: StepRecord) -> None:
        """Take in one step."""
        if not record.refused:
            self.losses.append(record.loss)

    @property
    def mean(self) -> float:
        """The mean; NaN before the first step."""
        return sum(self.losses) / len(self.losses) if self.losses else float("nan")


class Screen:
    """A panel of a run: `show` takes in a step, printing the panel draws the state.

    `metrics` are the lines of the run before it was resumed.
    """

    def __init__(
        self,
        title: str,
        meaning: str,
        clock: Stopwatch,
        compilation: Compilation,
        metrics: Iterable[dict[str, Any]] = (),
    ) -> None:
        self.title, self.meaning, self.clock, self.compilation = title, meaning, clock, compilation
        self.state = "training"
        self.curve, self.recent = Curve(), Recent()
        self.evaluations: list[StepRecord] = []
        self.best: StepRecord | None = None
        self.samples: list[tuple[str, str]] = []
        self.refusals: str | None = None
        self.before: list[tuple[int, float]] = []
        for line in metrics:
            if line["loss"] is not None:
                self.curve.add(line["step"], line["loss"])
            if line.get("val_loss") is not None:
                self.before.append((line["step"], line["val_loss"]))

    def show(self, record: StepRecord) -> None:
        """Take in one step."""
        self.recent.add(record)
        if record.refused:
            self.refusals = refusal(record)
        else:
            self.curve.add(record.step, record.loss)
        if record.evaluation is not None:
            self.evaluations.append(record)
            self.best = record if record.is_best else self.best
        if record.step == self.clock.total or record.stop:
            self.state = "stopped early" if record.stop and record.step < self.clock.total else "done"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - 4  # border and padding
        title = self.title if self.state == "training" else f"{self.title}: {self.state}"
        parts = Group(*self._parts(width, ascii_only=options.ascii_only))
        yield Panel(parts, title=Text(title), title_align="left", border_style=BORDERS[self.state])

    def _parts(self, width: int, *, ascii_only: bool) -> Iterator[Any]:
        yield self._progress()
        yield from flowed(self._pace(), width)
        if self.compilation.running:
            yield Text(str(self.compilation), style="yellow")
        yield from flowed(self._losses(), width)
        rows = chart(self.curve, self._dots, width, ascii_only=ascii_only)
        if rows:
            yield from rows
            yield self._axis(width, ascii_only=ascii_only)
        yield Text(self.meaning, style="dim")
        for question, reply in self.samples:
            line = Text(f"{question!r} {'->' if ascii_only else '→'} {reply!r}", overflow="ellipsis", no_wrap=True)
            if ascii_only and line.cell_len > width:
                line = Text(line.plain[: width - 3] + "...", no_wrap=True)
            yield line
        if self.refusals:
            yield Text(self.refusals, style="bold red")

    def _progress(self) -> Table:
        """Return a line with the step, a bar and the percentage; the bar pulses before the first step."""
        done, total = self.clock.done, self.clock.total
        waits = self.compilation.running or (done == self.clock.first and self.state == "training")
        bar = ProgressBar(total=total, completed=done, pulse=waits, animation_time=self.clock.seconds)
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True, justify="right", width=4)
        row.add_row(Text(f"step {done:,}/{total:,}"), bar, Text(f"{done / total:.0%}"))
        return row

    def _pace(self) -> Iterator[str]:
        clock, compiled = self.clock, self.compilation.seconds
        gone = f"{duration(clock.seconds)} {'in all' if self.state != 'training' else 'so far'}"
        yield gone if compiled < 1 else f"{gone}, {duration(compiled)} of it compiling"
        if clock.done > clock.first:
            if self.state == "training" and clock.remaining is not None:
                yield f"{duration(clock.remaining)} left"
            yield f"{clock.tokens_per_second:,.0f} tokens/s"

    def _losses(self) -> Iterator[str]:
        if self.recent.losses:
            yield f"training loss {short(self.recent.mean)}"
        last, best = self.evaluations[-1] if self.evaluations else None, self.best
        if last is not None and last.evaluation is not None:
            mark = " (the best)" if last is best and len(self.evaluations) > 1 else ""
            yield f"validation loss {short(last.evaluation.loss)} at step {last.step:,}{mark}"
            if last.evaluation.accuracy is not None:
                yield f"{last.evaluation.accuracy:.2%} right"
        if best is not None and best.evaluation is not None and best is not last:
            yield f"the best {short(best.evaluation.loss)} at step {best.step:,}"

    @property
    def _dots(self) -> list[tuple[int, float]]:
        found = [(record.step, record.evaluation.loss) for record in self.evaluations if record.evaluation is not None]
        return [(step, loss) for step, loss in self.before + found if math.isfinite(loss)]

    def _axis(self, width: int, *, ascii_only: bool) -> Text:
        """Return the line under the chart: first step, legend, last step; the legend is shortened to fit."""
        bar, dot = ("#", "o") if ascii_only else ("█", "●")
        marks = [(f"{bar} training", BAR), *([(f"{dot} validation", DOT)] if self._dots else [])]
        if is_logarithmic(self.curve, self._dots, width):
            marks.append(("log scale", ""))
        begin, end = f"{self.curve.first:,}", f"{self.curve.last:,}"
        room = width - LABELS - 1 - len(begin) - len(end)
        while marks and sum(len(words) + 2 for words, _ in marks) > room:
            words, style = marks.pop()
            if words == "log scale":
                marks.append(("log", style))
        legend = Text("  ").join(Text(words, style=f"not dim {style}") for words, style in marks)
        legend.align("center", room)
        return Text(" " * (LABELS + 1) + begin, style="dim", no_wrap=True).append_text(legend).append(end)


def meaning_of(recipe: Recipe, config: TransformerConfig, *, validates: bool) -> str:
    """Say what both losses average over: they may differ widely for good reasons."""
    taken = f"training loss: the mean of the last {RECENT} steps, each on its own batch"
    with_it = ["dropout"] if config.dropout or config.weight_dropout or config.input_dropout else []
    with_it += ["smoothed targets"] if recipe.label_smoothing else []
    taken += f", with {' and '.join(with_it)}" if with_it else ""
    measured = f"validation loss: on all of the {'validation' if validates else 'held-out'} data"
    measured += f", without {' or '.join(with_it)}" if with_it else ""
    return f"{taken}; {measured}{', by averaged weights' if recipe.ema else ''}"


def refusal(record: StepRecord) -> str:
    """Return the message about a refused step."""
    figures = f"loss {record.loss}, gradient norm {record.grad_norm}"
    return f"step {record.step:,} refused: its numbers are not finite ({figures}); the weights are unchanged"


def flowed(cells: Iterable[str], width: int, *, between: str = "   ") -> Iterator[Text]:
    """Join cells into lines of at most `width` characters, without breaking a cell."""
    line = ""
    for cell in cells:
        if line and len(line) + len(between) + len(cell) > width:
            yield Text(line)
            line = ""
        line += (between if line else "") + cell
    if line:
        yield Text(line)


def duration(seconds: float) -> str:
    """Write a time as 1:05 or 2:00:00."""
    total = round(seconds)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"
