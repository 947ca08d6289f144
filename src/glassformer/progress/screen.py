"""The panel of a run in training, for widths from 40 columns, and the curve in it, drawn with characters."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..core.dispatch import Engine
from ..runs.folder import RECENT
from .stopwatch import Stopwatch, compilation

if TYPE_CHECKING:
    from ..config import TransformerConfig
    from ..training.loop import StepRecord
    from ..training.recipe import Recipe

MOST = 512
"""The most points of a curve, so that memory does not grow with the number of steps."""
HEIGHT = 6
LABELS = 7
"""Columns for the numbers on the left."""
BAR, DOT = "cyan", "bold magenta"
LEVELS = (" ▁▂▃▄▅▆▇█", "┤", "●")
ASCII_LEVELS = (" .:#", "|", "o")
"""Characters from empty to full, the edge, and a dot; the second set for terminals that show ASCII only."""
FAR = 10
"""A curve is drawn on a log scale when its largest value is this many times its smallest."""
BORDERS = {"training": "none", "done": "green", "stopped early": "green", "interrupted": "yellow", "failed": "red"}


class Screen:
    """The state of a run in training: `show` takes in a step, `line` says it in one line, printing draws a panel.

    `metrics` are the lines of the run before it was resumed.
    """

    def __init__(
        self, title: str, meaning: str, clock: Stopwatch, engine: Engine, metrics: Iterable[dict[str, Any]] = ()
    ) -> None:
        self.title, self.meaning, self.clock, self.engine = title, meaning, clock, engine
        self.state = "training" if clock.done < clock.total else "done"
        self.curve = Curve()
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.dots: list[tuple[int, float]] = []
        self.last: StepRecord | None = None  # with an evaluation
        self.best: StepRecord | None = None
        self.samples: list[tuple[str, str]] = []
        self.refusal = ""
        for line in metrics:
            if line["loss"] is not None:
                self.curve.add(line["step"], line["loss"])
            if line.get("val_loss") is not None:
                self.dots.append((line["step"], line["val_loss"]))

    def show(self, record: StepRecord) -> None:
        """Take in one step."""
        if record.refused:
            figures = f"loss {record.loss}, gradient norm {record.grad_norm}"
            fact = f"step {record.step:,} refused: its numbers are not finite ({figures})"
            self.refusal = f"{fact}; the weights are unchanged"
        else:
            self.recent.append(record.loss)
            self.curve.add(record.step, record.loss)
        if record.evaluation is not None:
            self.last, self.best = record, record if record.is_best else self.best
            if math.isfinite(record.evaluation.loss):
                self.dots.append((record.step, record.evaluation.loss))
        if record.step == self.clock.total or record.stop:
            self.state = "stopped early" if record.stop and record.step < self.clock.total else "done"

    @property
    def mean(self) -> float:
        """The mean of the last losses, without refused steps; NaN before the first step."""
        return sum(self.recent) / len(self.recent) if self.recent else math.nan

    def line(self) -> str:
        """Return the state of the run in one line."""
        return "  ".join([f"step {self.clock.done:,}/{self.clock.total:,}", *self._losses(), *self._pace()])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - 4  # border and padding
        title = self.title if self.state == "training" else f"{self.title}: {self.state}"
        parts = Group(*self._parts(width, ascii_only=options.ascii_only))
        yield Panel(parts, title=Text(title), title_align="left", border_style=BORDERS[self.state])

    def _parts(self, width: int, *, ascii_only: bool) -> Iterator[Any]:
        yield self._progress()
        yield Columns(self._pace(), padding=(0, 3))
        if self.clock.is_compiling:
            yield Text(compilation(self.clock, self.engine), style="yellow")
        yield Columns(self._losses(), padding=(0, 3))
        rows = chart(self.curve, self.dots, width, ascii_only=ascii_only)
        if rows:
            yield from rows
            yield self._axis(width, ascii_only=ascii_only)
        yield Text(self.meaning, style="dim")
        for question, reply in self.samples:
            line = Text(f"{question!r} {'->' if ascii_only else '→'} {reply!r}", overflow="ellipsis", no_wrap=True)
            if ascii_only and line.cell_len > width:
                line = Text(line.plain[: width - 3] + "...", no_wrap=True)
            yield line
        if self.refusal:
            yield Text(self.refusal, style="bold red")

    def _progress(self) -> Table:
        """Return a line with the step, a bar and the percentage; the bar pulses before the first step."""
        done, total = self.clock.done, self.clock.total
        waits = self.clock.is_compiling or (done == self.clock.first and self.state == "training")
        bar = ProgressBar(total=total, completed=done, pulse=waits, animation_time=self.clock.seconds)
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(ratio=1)
        row.add_column(no_wrap=True, justify="right", width=4)
        row.add_row(Text(f"step {done:,}/{total:,}"), bar, Text(f"{done / total:.0%}"))
        return row

    def _pace(self) -> Iterator[str]:
        clock, compiled = self.clock, self.clock.compiling
        gone = f"{duration(clock.seconds)} {'in all' if self.state != 'training' else 'so far'}"
        yield gone if compiled < 1 else f"{gone}, {duration(compiled)} of it compiling"
        if clock.done > clock.first:
            if self.state == "training" and clock.remaining is not None:
                yield f"{duration(clock.remaining)} left"
            yield f"{clock.tokens_per_second:,.0f} tokens/s"

    def _losses(self) -> Iterator[str]:
        if self.recent:
            yield f"training loss {short(self.mean)}"
        last, best = self.last, self.best
        if last is not None and last.evaluation is not None:
            mark = " (the best)" if last is best and len(self.dots) > 1 else ""
            yield f"validation loss {short(last.evaluation.loss)} at step {last.step:,}{mark}"
            if last.evaluation.accuracy is not None:
                yield f"{last.evaluation.accuracy:.2%} right"
        if best is not None and best.evaluation is not None and best is not last:
            yield f"the best {short(best.evaluation.loss)} at step {best.step:,}"

    def _axis(self, width: int, *, ascii_only: bool) -> Text:
        """Return the line under the chart: first step, legend, last step; the legend is shortened to fit."""
        bar, dot = ("#", "o") if ascii_only else ("█", "●")
        marks = [(f"{bar} training", BAR), *([(f"{dot} validation", DOT)] if self.dots else [])]
        if is_logarithmic(*limits(self.curve.columns(width - LABELS - 1), self.dots)):
            marks.append(("log", ""))
        begin, end = f"{self.curve.first:,}", f"{self.curve.last:,}"
        room = width - LABELS - 1 - len(begin) - len(end)
        while marks and sum(len(words) + 2 for words, _ in marks) > room:
            marks.pop()
        legend = Text("  ").join(Text(words, style=f"not dim {style}") for words, style in marks)
        legend.align("center", room)
        return Text(" " * (LABELS + 1) + begin, style="dim", no_wrap=True).append_text(legend).append(end)


def meaning_of(recipe: Recipe, config: TransformerConfig, *, validates: bool, sampled: int | None = None) -> str:
    """Return in words what both losses average over: they may differ widely for good reasons.

    validates   whether there is validation data; sampled: how many windows of a long text are measured
    """
    taken = f"training loss: the mean of the last {RECENT} steps, each on its own batch"
    with_it = ["dropout"] if config.dropout or config.weight_dropout or config.input_dropout else []
    with_it += ["smoothed targets"] if recipe.label_smoothing else []
    taken += f", with {' and '.join(with_it)}" if with_it else ""
    part = "all" if sampled is None else f"{sampled:,} random windows"
    measured = f"validation loss: on {part} of the {'validation' if validates else 'held-out'} data"
    measured += f", without {' or '.join(with_it)}" if with_it else ""
    return f"{taken}; {measured}{', by averaged weights' if recipe.ema else ''}"


def duration(seconds: float) -> str:
    """Write a time as 1:05 or 2:00:00."""
    total = round(seconds)
    hours, minutes = total // 3600, total // 60 % 60
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


# --- the curve: bars for the training loss, dots for evaluations -----------------------------------------------------


class Curve:
    """A figure over the steps, averaged over intervals of equal length."""

    def __init__(self) -> None:
        self.first, self.last, self.size = 0, 0, 1
        self._sums, self._counts = np.zeros(MOST), np.zeros(MOST)

    def add(self, step: int, value: float) -> None:
        """Take in the value of a step; steps come in order, with gaps allowed."""
        self.first, self.last = self.first or step, step
        while (place := (step - self.first) // self.size) >= MOST:
            self.size *= 2  # neighboring intervals are merged
            empty = np.zeros(MOST // 2)
            self._sums, self._counts = (np.append(x[::2] + x[1::2], empty) for x in (self._sums, self._counts))
        self._sums[place] += value
        self._counts[place] += 1

    def columns(self, width: int) -> list[float]:
        """Return `width` means over equal parts of the curve; an empty list for an empty curve."""
        found: list[float] = []
        used = (self.last - self.first) // self.size + 1
        for column in range(width if self.first else 0):
            begin = column * used // width
            part = slice(begin, max(begin + 1, (column + 1) * used // width))
            count = self._counts[part].sum()
            # An interval whose steps were all refused repeats the one before.
            found.append(float(self._sums[part].sum() / count) if count else found[-1])
        return found


def chart(
    curve: Curve, dots: Sequence[tuple[int, float]], width: int, *, height: int = HEIGHT, ascii_only: bool = False
) -> list[Text]:
    """Draw a curve and dots in rows of `width` columns, with the highest and the lowest value on the left.

    The curve spans the width from its first step to its last. Values are finite.
    """
    levels, edge, dot = ASCII_LEVELS if ascii_only else LEVELS
    inside = width - LABELS - 1
    values = curve.columns(inside)
    if not values:
        return []
    low, high = limits(values, dots)
    parts = len(levels) - 1
    heights = [_height(value, low, high, height * parts) for value in values]
    places = set()
    for step, value in dots:
        column = min((step - curve.first) * (inside - 1) // max(curve.last - curve.first, 1), inside - 1)
        places.add((column, (_height(value, low, high, height * parts) - 1) // parts))
    rows = []
    for row in reversed(range(height)):
        label = high if row == height - 1 else low if row == 0 else None
        text = Text(f"{'' if label is None else short(label):>{LABELS}}{edge}", style="dim", no_wrap=True)
        bars = [levels[min(max(reached - row * parts, 0), parts)] for reached in heights]
        marked = [column for column in range(inside) if (column, row) in places]
        for column in marked:
            bars[column] = dot
        text.append("".join(bars), style=f"not dim {BAR}")
        for column in marked:
            text.stylize(DOT, LABELS + 1 + column, LABELS + 2 + column)
        rows.append(text)
    return rows


def is_logarithmic(low: float, high: float) -> bool:
    """Return whether values between these two are drawn on a log scale."""
    return low > 0 and high > FAR * low


def limits(values: Sequence[float], dots: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return the lowest and the highest of all values."""
    seen = [*values, *(value for _, value in dots)]
    return min(seen), max(seen)


def _height(value: float, low: float, high: float, most: int) -> int:
    """Return the height of a value, from 1 to `most`."""
    if is_logarithmic(low, high):
        value, low, high = math.log(value), math.log(low), math.log(high)
    return 1 if high <= low else 1 + round((value - low) / (high - low) * (most - 1))


def short(value: float) -> str:
    """Write a number in at most seven columns: 1.8702, 0.0002, 12.35, 3.1e-05."""
    if value and not 1e-4 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.{4 if abs(value) < 10 else 2 if abs(value) < 1000 else 0}f}"
