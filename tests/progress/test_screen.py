"""The panel that a terminal shows, at widths from 40 columns."""

import io
import math
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from glassformer.config import config_from_dict
from glassformer.core import dispatch
from glassformer.core.format import compact
from glassformer.progress.screen import MOST, ROWS, Curve, Screen, chart, meaning_of
from glassformer.progress.stopwatch import Stopwatch, duration
from glassformer.training.evaluate import Evaluation
from glassformer.training.loop import StepRecord
from glassformer.training.recipe import Recipe

SIZES = {"vocab": 65, "context": 16, "width": 32, "heads": 4, "layers": 1}
CONFIG = config_from_dict({"architecture": "decoder", **SIZES, "dropout": 0.1})
ENGINE = dispatch.engines().find("cpu")
MEANING = meaning_of(Recipe(), CONFIG, validates=False)
SAMPLES = [("The loop ", "goes on until the condition is false. [1] See also the statement that breaks it off early")]


class StillClock(Stopwatch):
    """A clock that stands still, while or after something was compiled for so long."""

    def __init__(self, total, done=0, *, seconds=0.0, kernels=0, compiled=0.0, running=False):
        super().__init__(total, done)
        self.still, self.kernels, self.compiled, self._depth = seconds, kernels, compiled, int(running)

    @property
    def seconds(self):
        return self.still

    @property
    def compiling(self):
        return self.compiled


def record(step, *, evaluation=None, best=False, **settings):
    """What a step of a model that learns to write did: the loss falls from 4.2 and wavers."""
    loss = 1.6 + 2.6 * math.exp(-step / 60) + 0.15 * math.sin(step * 1.7)
    loss, accuracy = settings.pop("loss", loss), settings.pop("accuracy", None)
    judged = None if evaluation is None else Evaluation(evaluation, accuracy=accuracy, examples=100, targets=6400)
    return StepRecord(step, loss, 1e-3, 0.5, 768, 0.02, evaluation=judged, is_best=best, **settings)


def trained(steps, *, total=600, seconds=0.0, evaluations=(), **compiled):
    """A screen that has seen so many steps; `evaluations` are losses by step."""
    clock = StillClock(total, seconds=seconds, **compiled)
    screen = Screen("text", MEANING, clock, ENGINE)
    evaluations, lowest = dict(evaluations), math.inf
    for step in range(1, steps + 1):
        loss = evaluations.get(step)
        best = loss is not None and loss < lowest
        lowest = loss if best else lowest
        one = record(step, evaluation=loss, best=best)
        clock.still = seconds * step / steps
        clock.add(one)
        screen.show(one)
    return screen


def compiling():
    return trained(0, seconds=7.4, kernels=12, compiled=6.1, running=True)


def evaluated():
    screen = trained(300, seconds=41.0, evaluations={150: 2.1034, 300: 1.8702})
    screen.samples = SAMPLES
    return screen


def refused():
    screen = trained(200, seconds=30.0, evaluations={150: 2.1034})
    one = record(201, loss=float("nan"), refused=True)
    screen.clock.add(one)
    screen.show(one)
    return screen


def large():
    """Long numbers, and losses that reach far."""
    screen = trained(0, total=1_200_000, seconds=86_000)
    screen.title = "addition"
    for step in range(1000, 1_150_001, 1000):
        loss = 4.0 * math.exp(-step / 100_000) + 1e-5
        one = record(step, loss=loss, evaluation=loss / 2 if step % 50_000 == 0 else None, best=True, accuracy=0.99951)
        screen.clock.add(one)
        screen.show(one)
    screen.clock.tokens = 12_345_678_901
    return screen


def end():
    screen = trained(600, seconds=83.0, kernels=23, compiled=14.2, evaluations={150: 2.1034, 300: 1.8702, 600: 1.7105})
    screen.samples = SAMPLES
    return screen


WORDS = {
    compiling: ["text", "0:07 so far", "compiling kernels, number 12", "on all of the held-out data", "0%"],
    evaluated: ["0:41 so far", "0:41 left", "validation loss 1.8702 (the best)", "'The loop ' → 'goes on until", "50%"],
    refused: ["step 201 refused", "gradient norm 0.5", "validation loss 2.1034 at step 150", "1:00 left", "34%"],
    large: ["addition", "the best", "99.95% right", "log"],
    end: ["text: done", "1:23 in all, 0:14 of it compiling", "validation loss 1.7105 (the best)", "100%"],
}


def drawn(screen, width, *, encoding="utf-8"):
    """The text of a screen, without colors."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace", newline="\n")
    Console(file=file, width=width, color_system=None, legacy_windows=False, _environ={}).print(screen)
    file.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize("state", WORDS, ids=lambda state: state.__name__)
def test_a_panel_tells_its_state(state):
    text = re.sub(r"[│\s]+", " ", drawn(state(), 100))
    for words in WORDS[state]:
        assert words in text


@pytest.mark.parametrize("width", [40, 47, 120])
@pytest.mark.parametrize("state", WORDS, ids=lambda state: state.__name__)
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_broken(state, width):
    text = drawn(state(), width)
    lines = text.splitlines()
    assert {cell_len(line) for line in lines} == {width}
    assert sum(line.startswith("╭") for line in lines) == sum(line.startswith("╰") for line in lines) == 1
    screen = state()
    assert f"step {screen.clock.done:,}/{screen.clock.total:,} " in text
    if screen.recent:
        assert f"training loss {compact(screen.mean)}" in text
        assert re.search(r"[\d,]+ tokens/s", text)
        assert len(set(re.findall("[▁▂▃▄▅▆▇█]", text))) > 4, "the curve is to be seen"


def test_ascii_terminals_get_ascii_and_a_resumed_run_its_whole_curve():
    text = drawn(evaluated(), 80, encoding="ascii")
    assert text.isascii()
    assert "\\u" not in text
    assert "#" in text

    clock = StillClock(600, 300)
    metrics = [{"step": step, "loss": 4.0 - step / 100} for step in range(1, 301)]
    metrics[99] |= {"loss": None, "refused": True}
    metrics[149] |= {"val_loss": 2.2}
    screen = Screen("text", MEANING, clock, ENGINE, metrics)
    assert drawn(screen, 80).count("●") == 2, "a dot, and what it means"
    assert (screen.curve.first, screen.curve.last) == (1, 300)
    assert "step 300/600" in drawn(screen, 80)
    assert "tokens/s" not in drawn(screen, 80), "nothing was measured yet"


def test_losses_are_smoothed_over_the_last_steps_that_counted():
    screen = trained(0)
    assert math.isnan(screen.mean)
    for loss in [9.0] * 5 + [1.0] * 20:
        screen.show(record(1, loss=loss))
    screen.show(record(2, loss=math.inf, refused=True))
    assert screen.mean == 1.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (5.4, "0:05"), (59.9, "1:00"), (65, "1:05"), (7200, "2:00:00"), (3661, "1:01:01")],
)
def test_durations_read_like_clocks(seconds, text):
    assert duration(seconds) == text


def curve_of(values, first=1):
    curve = Curve()
    for step, value in enumerate(values, first):
        curve.add(step, value)
    return curve


def bars(values, width, dots=(), **settings):
    return [row.plain for row in chart(curve_of(values), dots, width, **settings)]


def test_bars_rise_with_the_values_and_dots_stand_at_their_steps():
    *rows, axis = bars([8, 7, 6, 5, 4, 3, 2, 1], 16, [(1, 1.0), (8, 8.0)])
    assert rows[0] == " 8.0000┤█▂     ●"
    assert rows[-1] == " 1.0000┤●█████▇▁"
    assert [len(row) for row in rows] == [16] * ROWS
    assert axis.strip() == "1      8"
    assert bars([], 20) == []
    assert "".join(bars([2, 1], 60, ascii_only=True)).isascii()


def test_few_many_and_far_values_fill_the_width():
    assert bars([2, 1], 12)[0] == " 2.0000┤███ "
    assert bars([1, 3] * 500, 18)[ROWS - 1].startswith(" 2.0000┤")
    *rows, _ = bars([10.0, 1.0, 0.1, 0.01, 0.001], 13)
    assert [len(row[8:].rstrip()) for row in rows] == [1, 2, 3, 4, 5]


def test_a_curve_keeps_no_more_than_its_stretches_and_goes_on_over_gaps():
    curve = curve_of(range(10 * MOST))
    steps, values = zip(*curve.points(), strict=True)
    assert MOST / 2 <= len(steps) <= MOST
    assert list(values) == sorted(values)
    assert sum(values) / len(values) == pytest.approx((10 * MOST - 1) / 2, rel=0.01)
    assert (curve.first, curve.last) == (1, 10 * MOST)

    curve = Curve()
    curve.add(1, 5.0)
    curve.add(4, 2.0)
    assert next(chart(curve, (), 12)).plain == " 5.0000┤███ "
