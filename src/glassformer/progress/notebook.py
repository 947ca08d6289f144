"""Training in a notebook: a curve that is redrawn in place; elsewhere, the panel or the lines of `display`."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

import numpy as np

from ..arrays import Array
from ..runs.session import Session
from ..runs.stopwatch import Stopwatch
from ..training import Evaluation, StepRecord

Tell = Callable[[StepRecord], None]
"""Shows one step, which the clock has counted already."""

WIDTH, HEIGHT, MARGIN = 560, 180, 44
POINTS = 280
"""A curve has at most this many points, each the mean of consecutive steps."""
FAR = 30.0
"""Losses that differ by more than this factor are drawn on a logarithmic scale."""
SECONDS = 0.25
"""Between two drawings, at least."""


@contextlib.contextmanager
def shown(session: Session, clock: Stopwatch, *, wanted: bool) -> Iterator[Tell]:
    """Yield what shows steps: in a notebook a curve, else what the command shows."""
    if not wanted:
        yield lambda record: None
    elif is_notebook():
        from .display import compiling, timed

        curve = Curve(session.task.name, clock)
        with compiling(session, curve.say) as compilation:
            try:
                yield timed(curve.show, clock, compilation)
            finally:
                curve.finish()
    else:
        from .display import display

        with display(session, clock) as tell:
            yield tell


def is_notebook() -> bool:
    """Tell whether this runs in a Jupyter notebook: IPython is there already, and a kernel behind it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class Curve:
    """The losses as one picture that is redrawn in place."""

    def __init__(self, title: str, clock: Stopwatch) -> None:
        self.title, self.clock = title, clock
        self.steps: list[int] = []
        self.losses: list[float] = []
        self.validation: list[tuple[int, float]] = []
        self.drawn = 0.0
        self.handle: Any = None
        self.last: StepRecord | None = None
        self.evaluation: Evaluation | None = None
        self.note = ""  # what else there is to say of the last steps

    def show(self, record: StepRecord) -> None:
        """Add one step, and redraw if it is time."""
        from .screen import refusal

        self.last = record
        if np.isfinite(record.loss):
            self.steps.append(record.step)
            self.losses.append(record.loss)
        if record.evaluation is not None:
            self.evaluation = record.evaluation
            if np.isfinite(record.evaluation.loss):
                self.validation.append((record.step, record.evaluation.loss))
        if record.refused:
            self.note = refusal(record)
        if record.stop:
            self.note = "stopped early: the validation loss no longer improves"
        if time.monotonic() - self.drawn > SECONDS:
            self.drawn = time.monotonic()
            self._draw()

    def say(self, text: str) -> None:
        """Say something in the place of the picture, before there is one."""
        self._put(f"<div>{escape(f'{self.title}: {text}')}</div>")

    def finish(self) -> None:
        """Draw the last state."""
        if self.last is not None:
            self._draw()

    def _draw(self) -> None:
        assert self.last is not None
        words = f"{self.title}: {figures(self.last, self.clock, self.evaluation)}"
        note = f"<div>{escape(self.note)}</div>" if self.note else ""
        self._put(f"<div>{escape(words)}</div>{note}{self.picture()}")

    def _put(self, content: str) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found]

        if self.handle is None:
            self.handle = display(HTML(content), display_id=True)
        else:
            self.handle.update(HTML(content))

    def picture(self) -> str:
        """Return the curves as SVG, in colors that can be told apart on light and on dark pages."""
        training = np.array([self.steps, self.losses], dtype=np.float64)
        points = [_means(training), np.array(self.validation, dtype=np.float64).reshape(-1, 2).T]
        every = np.concatenate(points, axis=1)
        if not every.size:
            return ""
        low, high = every[1].min(), every[1].max()
        first, last = every[0].min(), every[0].max()
        # On an even scale, losses that fall by a large factor would all lie on the ground.
        steep = low > 0 and high > FAR * low
        scale = np.log if steep else np.positive

        def placed(curve: Array) -> str:
            x = MARGIN + (WIDTH - MARGIN - 8) * (curve[0] - first) / max(last - first, 1)
            y = 8 + (HEIGHT - 24) * (scale(high) - scale(curve[1])) / max(scale(high) - scale(low), 1e-12)
            return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))

        lines = [
            f'<polyline points="{placed(curve)}" fill="none" stroke="{color}" stroke-width="1.8"/>'
            for curve, color in zip(points, ("#0072b2", "#d55e00"), strict=True)
            if curve.size
        ]
        style = 'fill="currentColor" font-size="10" font-family="sans-serif"'
        # A point may stand for several steps; the words name the first and the last of all.
        begin, end = (choose([*self.steps, *(step for step, _ in self.validation)]) for choose in (min, max))
        how = " · losses on a log scale" if steep else ""
        words = [
            f'<text x="0" y="14" {style}>{high:.3g}</text><text x="0" y="{HEIGHT - 14}" {style}>{low:.3g}</text>',
            f'<text x="{MARGIN}" y="{HEIGHT - 2}" {style}>step {begin:,}{how}</text>',
            f'<text x="{WIDTH - 8}" y="{HEIGHT - 2}" {style} text-anchor="end">{end:,}</text>',
        ]
        said = f"Losses from step {begin} to {end}: between {low:.3g} and {high:.3g}"
        shape = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" style="max-width: 100%; height: auto"'
        return f'<svg {shape} role="img" aria-label="{said}">{"".join([*lines, *words])}</svg>'


def figures(record: StepRecord, clock: Stopwatch, evaluation: Evaluation | None) -> str:
    """Say in one line how far a training is, with the last evaluation."""
    parts = [f"step {record.step:,}/{clock.total:,}", f"loss {record.loss:.4f} (blue)"]
    if evaluation is not None:
        parts.append(f"validation {evaluation.loss:.4f} (orange)")
        if evaluation.accuracy is not None:
            parts.append(f"right {evaluation.accuracy:.2%}")
    parts.append(f"{clock.tokens_per_second:,.0f} tokens/s")
    if clock.remaining is not None:
        left = round(clock.remaining)
        parts.append(f"{left // 60}:{left % 60:02} left")
    return ", ".join(parts)


def _means(curve: Array) -> Array:
    """Return a curve (2, N) with at most POINTS points, each the mean of a stretch."""
    size = max(1, -(-curve.shape[1] // POINTS))
    cuts = range(size, curve.shape[1], size)
    return np.stack([[part.mean() for part in np.split(row, list(cuts))] for row in curve]) if curve.size else curve
