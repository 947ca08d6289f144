"""The panel of a run in training, for widths from 40 columns, with its curve."""

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
from rich.table import Column, Table
from rich.text import Text

from ..core.dispatch import Engine
from ..core.format import compact
from ..runs.folder import RECENT
from .stopwatch import Stopwatch, compilation, duration

if TYPE_CHECKING:
    from ..config import TransformerConfig
    from ..training.loop import StepRecord
    from ..training.recipe import Recipe

MOST = 512
"""The most points of a curve, so that memory does not grow with the number of steps."""
ROWS = 5
BAR, DOT = "cyan", "bold magenta"
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
        """Return the state of the run in one short line."""
        best = () if self.state == "training" else self._best()
        return "  ".join([f"step {self.clock.done:,}/{self.clock.total:,}", *self._losses(), *best, *self._pace()])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = self.title if self.state == "training" else f"{self.title}: {self.state}"
        lines = Group(*self._lines(options.max_width - 4, ascii_only=options.ascii_only))  # border and padding
        yield Panel(lines, title=Text(title), title_align="left", border_style=BORDERS[self.state])

    def _lines(self, width: int, *, ascii_only: bool) -> Iterator[Any]:
        done, total = self.clock.done, self.clock.total
        waits = self.clock.is_compiling or (done == self.clock.first and self.state == "training")
        bar = ProgressBar(total=total, completed=done, pulse=waits, animation_time=self.clock.seconds)
        row = Table.grid(Column(no_wrap=True), Column(ratio=1), Column(no_wrap=True), padding=(0, 1), expand=True)
        row.add_row(f"step {done:,}/{total:,}", bar, f"{done / total:4.0%}")
        yield row
        gone = f"{duration(self.clock.seconds)} so far"
        yield Columns([gone, *self._pace()] if self.state == "training" else self._pace(), padding=(0, 3))
        if self.clock.is_compiling:
            yield Text(compilation(self.clock, self.engine), style="yellow")
        yield Columns([*self._losses(), *self._best()], padding=(0, 3))
        yield from chart(self.curve, self.dots, width, ascii_only=ascii_only)
        yield Text(self.meaning, style="dim")
        for question, reply in self.samples:
            text = f"{question!r} {'->' if ascii_only else '→'} {reply!r}"
            line = Text(text, no_wrap=True, overflow="crop" if ascii_only else "ellipsis")
            yield line
        if self.refusal:
            yield Text(self.refusal, style="bold red")

    def _pace(self) -> Iterator[str]:
        clock, compiled = self.clock, self.clock.compiling
        if self.state != "training":
            yield f"{duration(clock.seconds)} in all" + (
                f", {duration(compiled)} of it compiling" if compiled >= 1 else ""
            )
        elif clock.remaining is not None:
            yield f"{duration(clock.remaining)} left"
        if clock.done > clock.first:
            yield f"{clock.tokens_per_second:,.0f} tokens/s"

    def _losses(self) -> Iterator[str]:
        if self.recent:
            yield f"training loss {compact(self.mean)}"
        last = self.last
        if last is not None and last.evaluation is not None:
            at = "" if last.step == self.clock.done else f" at step {last.step:,}"
            mark = " (the best)" if last is self.best and len(self.dots) > 1 else ""
            yield f"validation loss {compact(last.evaluation.loss)}{at}{mark}"
            if last.evaluation.accuracy is not None:
                yield f"{last.evaluation.accuracy:.2%} right"

    def _best(self) -> Iterator[str]:
        best = self.best
        if best is not None and best.evaluation is not None and best is not self.last:
            yield f"the best {compact(best.evaluation.loss)} at step {best.step:,}"


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


# --- the curve: bars for the training loss, dots for evaluations -----------------------------------------------------


class Curve:
    """A figure over the steps, averaged over stretches of equally many values."""

    def __init__(self) -> None:
        self.first, self.last, self.size = 0, 0, 1
        self._stretches: list[tuple[float, ...]] = []  # how many values, the sum of their steps, and their own

    def add(self, step: int, value: float) -> None:
        """Take in the value of a step; steps come in order, with gaps allowed."""
        self.first, self.last = self.first or step, step
        count, steps, values = 0.0, 0.0, 0.0
        if self._stretches and self._stretches[-1][0] < self.size:
            count, steps, values = self._stretches.pop()
        elif len(self._stretches) == MOST:
            self.size *= 2  # neighboring stretches are merged
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=True)
            self._stretches = [tuple(map(sum, zip(*pair, strict=True))) for pair in pairs]
        self._stretches.append((count + 1, steps + step, values + value))

    def points(self) -> list[tuple[float, float]]:
        """Return the mean step and the mean value of every stretch."""
        return [(steps / count, values / count) for count, steps, values in self._stretches]


def chart(curve: Curve, dots: Sequence[tuple[int, float]], width: int, *, ascii_only: bool = False) -> Iterator[Text]:
    """Draw a curve as bars and `dots` in lines of `width` columns, on a log scale if the values reach far."""
    points = curve.points()
    if not points:
        return
    levels, edge, dot = (" .:#", "|", "o") if ascii_only else (" ▁▂▃▄▅▆▇█", "┤", "●")
    steps, values = np.array([*points, *dots]).T
    count, inside, parts = len(points), width - 8, len(levels) - 1
    columns = (steps - curve.first) * (inside - 1) / max(curve.last - curve.first, 1)
    columns = columns.round().astype(int).clip(0, inside - 1)
    counts = np.bincount(columns[:count], minlength=inside)
    filled = np.maximum.accumulate(np.where(counts > 0, np.arange(inside), 0))  # a gap repeats what stands before it
    means = np.bincount(columns[:count], values[:count], minlength=inside)[filled] / counts[filled]
    values = np.concatenate((means, values[count:]))
    low, high = values.min(), values.max()
    logarithmic = 0 < 10 * low < high
    values = np.log(values) if logarithmic else values
    heights = 1 + ((values - values.min()) / (np.ptp(values) or 1.0) * (ROWS * parts - 1)).round().astype(int)
    for row in reversed(range(ROWS)):
        label = {ROWS - 1: compact(high), 0: compact(low)}.get(row, "")
        cells = [levels[min(max(height - row * parts, 0), parts)] for height in heights[:inside]]
        for column, height in zip(columns[count:], heights[inside:], strict=True):
            if (height - 1) // parts == row:
                cells[column] = dot
        line = Text("".join(cells), style=BAR)
        line.highlight_regex(dot, DOT)
        yield Text.assemble((f"{label:>7}{edge}", "dim"), line, no_wrap=True)
    begin, end = f"{curve.first:,}", f"{curve.last:,}"
    marks = [f"{levels[-1]} training", *([f"{dot} validation"] if dots else []), *(["log"] if logarithmic else [])]
    room = inside - len(begin) - len(end)
    while len("  ".join(marks)) + 2 > room:
        marks.pop()
    legend = Text(f"{'  '.join(marks):^{room}}")
    legend.highlight_regex(levels[-1], BAR)
    legend.highlight_regex(dot, DOT)
    yield Text.assemble((f"{'':8}{begin}", "dim"), legend, (end, "dim"), no_wrap=True)
