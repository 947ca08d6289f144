"""The logit lens: what the model would have said, had it stopped at any point of the residual stream.

    logits = head(norm x)        for the stream x at every point, not at the last alone

The stream has one width from the first block to the last, so the head can read it anywhere (nostalgebraist 2020). At
the last point it reads what it always reads: there the lens shows the model's own logits.

    seen = lens(run, positions=-1)
    seen.top(3)                     the three tokens that each point would have said
    seen.ranks(" Paris"), seen.probabilities(7)       by their texts, where the run has a tokenizer, or ids

    lens_course(gf.replay("runs/induction"), "qfzbmkq")     the same at one position, after steps of a recorded training

The tuned lens has an affine map before the head at every point, which learns to predict what the model will:

    h = x w + b      logits = head(norm h)      loss = mean of Σ p · (log p − log softmax(logits))

p is what the model predicts. Early points keep their vectors in a basis of their own, which a plain lens takes
for that of the last point; the map translates (Belrose et al. 2023). It begins as the identity, as a plain lens.

    tuned, losses = train_lens(tuned_lens(run), runs, steps=200)
    tuned.read(run).ranks(7)
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.dispatch import use_engine
from ..core.errors import ConfigError, LengthError, ShapeError
from ..core.format import percent
from ..core.settings import check_known
from ..core.show import Map, Result, Tabled, html_of
from ..ops.linear import LinearSaved
from ..training import Optimizer
from .gradients import Logit, token_text
from .names import LOGITS, Where
from .probes import descend
from .reading import watch_texts
from .run import Run
from .stream import Point, is_classifier, points, read_out, read_out_backward
from .sweep import Progress
from .tracing import TracingEngine

PIECE = 64
"""Logits of one piece: the largest of each piece is found first, then the largest of those."""


@dataclass(frozen=True, eq=False, repr=False)
class Lens(Tabled):
    """The predictions of the head at points of the stream: logits (N, B, T, V), or (N, B, classes).

    positions   (B, T) their numbers; None: all
    """

    run: Run
    points: list[Point]
    logits: Array
    positions: Array | None = None

    def probabilities(self, tokens: Any) -> Array:
        """Return the probability of chosen tokens at every point, (N, B, T): one token, or one for each position."""
        return np.exp(_taken(self.logits, self._ids(tokens)) - self._totals)

    def ranks(self, tokens: Any) -> Array:
        """Return how many tokens stand above the chosen ones at every point, (N, B, T): 0 for the likeliest."""
        chosen = _taken(self.logits, self._ids(tokens))
        return np.count_nonzero(self.logits > chosen[..., None], axis=-1)

    def top(self, count: int = 5) -> tuple[Array, Array]:
        """Return the likeliest tokens of every point and their probabilities, (N, B, T, count) each."""
        size = self.logits.shape[-1]
        if not 1 <= count <= size:
            raise ConfigError(f"the top {count} of {size:,} logits", hint=f"ask for 1 to {size:,}")
        rows = self.logits.reshape(-1, size)
        ids = np.stack([_largest(row, count) for row in rows]).reshape(*self.logits.shape[:-1], count)
        return ids, np.exp(np.take_along_axis(self.logits, ids, axis=-1) - self._totals[..., None])

    def result(self, token: int | str | None = None) -> Result:
        """Return a row for each point: what it predicts at the last position, and how surely at all of them.

        token   a token, or a class, whose probability and rank are shown beside
        """
        ids, odds = self.top(min(3, self.logits.shape[-1]))
        # The last position that is no padding.
        last = Logit(0).place(self.run, 0)[1] if self.positions is None and ids.ndim == 4 else -1
        rows, records = [], list[dict[str, Any]]()
        for n, point in enumerate(self.points):
            tokens, chances = (x[n, 0].reshape(-1, x.shape[-1])[last].tolist() for x in (ids, odds))
            says = [(self.run.label(i), p) for i, p in zip(tokens, chances, strict=True)]
            words = "  ".join(f"{token_text(self.run, i)} {percent(p)}" for i, (_, p) in zip(tokens, says, strict=True))
            rows.append([point.label, words, Map(odds[n, 0, ..., 0], 1.0)])
            records.append({"point": point.label, "name": point.name, "says": says})
        if token is not None:
            chosen, ranks = self.probabilities(token), self.ranks(token)
            for n, (row, record) in enumerate(zip(rows, records, strict=True)):
                p, rank = float(chosen[n, 0].reshape(-1)[last]), int(ranks[n, 0].reshape(-1)[last]) + 1
                row += [percent(p), f"{rank:,}"]
                record |= {"p": p, "rank": rank}
        beside = "" if token is None else f", beside {token_text(self.run, token)}"
        return Result(
            f"What each layer would predict{beside}",
            ("after", "predicts", "how surely, by position", *((">p", ">rank") if beside else ())),
            rows,
            notes=[] if len(self.run.logits) == 1 else [f"the first of {len(self.run.logits)} examples"],
            records=records,
            figure=self,
        )

    @cached_property
    def _totals(self) -> Array:
        """Return log Σ exp(logits) at every point and position, (N, B, T): what probabilities are measured by."""
        rows = self.logits.reshape(-1, self.logits.shape[-1])
        highest = rows.max(axis=-1)
        sums = [np.exp(row - top).sum() for row, top in zip(rows, highest, strict=True)]  # little memory in between
        return (highest + np.log(sums)).reshape(self.logits.shape[:-1])

    def _ids(self, tokens: Any) -> Array:
        """Return tokens, or classes, in the shape of the positions; refuse those that the model has no logit for."""
        ids = np.vectorize(self.run.token_id, otypes=[np.int64])(np.asarray(tokens, dtype=object))
        try:
            return np.broadcast_to(ids, self.logits.shape[:-1])
        except ValueError:
            fact = f"the tokens have shape {ids.shape}, the positions {self.logits.shape[1:-1]}"
            raise LengthError(fact, hint="give one token, or one for each example and position") from None


def lens(run: Run, *, at: str | Sequence[str] | None = None, positions: Any = None) -> Lens:
    """Read the stream of a run by its head, at all points, or at those named in `at`.

    `positions` are the ones to look at, all unless given; a point takes as much memory as their logits. A negative
    number counts from the end of each example, its padding left out.
    """
    chosen = chosen_points(run, at)
    numbers = _numbers(run, positions)
    index: Any = slice(None) if numbers is None else (np.arange(len(run.logits))[:, None], numbers)
    if is_classifier(run):
        return Lens(run, chosen, np.stack([read_point(run, run[point.name]) for point in chosen]))
    # All positions of all points as one sequence: the head, often the largest matrix of all, is gone through once.
    x = np.stack([run[point.name][index] for point in chosen])  # (N, B, T, D)
    logits = read_point(run, x.reshape(1, -1, x.shape[-1])).reshape(*x.shape[:3], -1)
    # Products of other shapes may differ in the last digit: what the model said is known already.
    said = [number for number, point in enumerate(chosen) if point == points(run)[-1]]
    logits[said] = run.logits[index]
    return Lens(run, chosen, logits, numbers)


def chosen_points(run: Run, at: str | Sequence[str] | None, stack: str | None = None) -> list[Point]:
    """Return the points of the stream by their names or labels, all unless given."""
    every = points(run, stack)
    if at is None:
        return every
    known = {key: point for point in every for key in point}
    at = [at] if isinstance(at, str) else at
    for name in at:
        check_known("there is no point of the stream", name, known)
    if not at:
        raise LengthError("there is no point to look at", hint="name some, or leave `at` out")
    return [known[name] for name in at]


def read_point(run: Run, x: Array) -> Array:
    """Return the logits that the head makes of the stream x (B, T, D)."""
    with use_engine(TracingEngine(forgets=True)):  # as the run itself computed
        return read_out(run, x)[0]


def _numbers(run: Run, positions: Any) -> Array | None:
    """Return the numbers of positions, (B, T); None for all."""
    if positions is None:
        return None
    if is_classifier(run):
        raise ConfigError("a classifier predicts for the sequence, not for positions", hint="leave positions out")
    examples, given = range(len(run.logits)), np.atleast_1d(positions)
    if given.dtype.kind == "i" and np.any(given < 0):  # from the end of each example, its padding left out
        return np.array([[Logit(0, int(n), example).place(run, 0)[1] for n in given] for example in examples])
    numbers = Where(position=positions).index(LOGITS, run.logits.shape, run.heads)[1].reshape(-1)
    return np.broadcast_to(numbers, (len(examples), len(numbers)))


def _taken(values: Array, ids: Array) -> Array:
    return np.take_along_axis(values, ids[..., None], axis=-1)[..., 0]


def _largest(row: Array, count: int) -> Array:
    """Return where the largest numbers of a row are, the largest first.

    They are in the pieces of the row with the largest maxima, so that only these are looked at one by one.
    """
    starts = np.arange(0, len(row), PIECE)
    if len(starts) > count:
        maxima = np.maximum.reduceat(row, starts)
        first = starts[np.argpartition(-maxima, count - 1)[:count]]
        places = np.sort((first[:, None] + np.arange(PIECE)).reshape(-1))
        places = places[places < len(row)]
    else:
        places = np.arange(len(row))
    return places[np.argsort(-row[places], kind="stable")[:count]]


# --- the lens over a training ----------------------------------------------------------------------------------------

COURSE, COLUMNS = 12, 8
"""Steps that a course has unless they are given, and points that its table shows at most; more leave out sublayers."""


class Recorded(Protocol):
    """A recorded training, such as `gf.replay(folder)`."""

    def frames(self, steps: Iterable[int]) -> Iterator[Any]: ...

    def spaced(self, count: int = ...) -> list[int]: ...


@dataclass(frozen=True, eq=False, repr=False)
class LensCourse(Lens):
    """The predictions at points of the stream after steps of a training: logits (N, steps, V), of one position.

    run   the last one, which names the tokens
    """

    steps: tuple[int, ...] = ()

    def result(self, token: int | str | None = None) -> Result:
        """Return a row for each step: what the points predict after it, or the probability of a token or class."""
        ids, odds = (found[..., 0].T for found in self.top(1))  # (steps, N)
        if token is not None:
            ids, odds = np.full_like(ids, self.run.token_id(token)), self.probabilities(token).T
        blocks = [n for n, point in enumerate(self.points) if point.is_block or n == 0]
        shown = blocks if len(self.points) > COLUMNS else range(len(self.points))
        rows: list[list[Any]] = [
            [step, *(f"{token_text(self.run, tokens[n])} {percent(shares[n])}" for n in shown)]
            for step, tokens, shares in zip(self.steps, ids, odds, strict=True)
        ]
        columns = (">step", *(self.points[n].label for n in shown))
        return Result("What the head predicts after steps of a training", columns, rows)


def lens_course(
    replay: Recorded,
    text: str = "",
    *,
    steps: Sequence[int] | None = None,
    at: Sequence[str] | None = None,
    position: int = -1,
    progress: Progress | None = None,
) -> LensCourse:
    """Read the stream by the head after each of some steps of a recorded training: of the model as it would be used.

    steps      those to look at; about twelve from the first to the last unless given
    at         points of the stream by name or label, as in `lens`; position: the token to look at
    """
    if not all(hasattr(replay, name) for name in ("frames", "spaced")):
        raise ConfigError(f"a {type(replay).__name__} is no recorded training", hint='open one: gf.replay("runs/mine")')
    chosen = replay.spaced(COURSE) if steps is None else [steps] if isinstance(steps, int) else list(steps)
    if not chosen:
        raise ConfigError("there are no steps to look at", hint="name some, or leave steps out")
    found, numbers = [], []
    for frame in replay.frames(chosen):
        run = watch_texts(frame.trained, text)
        seen = lens(run, at=at, positions=None if is_classifier(run) else position)
        found.append(seen.logits.reshape(len(seen.points), -1))
        numbers.append(frame.step)
        if progress is not None:
            progress(len(numbers), len(chosen))
    return LensCourse(run, seen.points, np.stack(found, axis=1), steps=tuple(numbers))


# --- the tuned lens --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TunedLens:
    """A map w (D, D) and b (D,) for each point; the last point, which the head reads anyway, needs none."""

    points: list[Point]
    maps: list[Tree]

    def read(self, run: Run) -> Lens:
        """Return what the head reads at every point, each translated by its map, and at the last."""
        _check(self, run)
        *early, last = [run[point.name] for point in self.points]
        every = [*(_affine(own, x)[0] for own, x in zip(self.maps, early, strict=True)), last]
        return Lens(run, self.points, np.stack([read_point(run, x) for x in every]))

    def _repr_html_(self) -> str:
        named = {point.label: own["w"] for point, own in zip(self.points, self.maps, strict=False)}
        return html_of(f"a tuned lens with a map for each of {len(named)} points", named)


def tuned_lens(run: Run) -> TunedLens:
    """Return a tuned lens for the model of a run, before it has learned anything."""
    every = chosen_points(run, None)
    x = run[every[0].name]
    width = x.shape[-1]
    return TunedLens(every, [{"w": np.eye(width, dtype=x.dtype), "b": np.zeros(width, x.dtype)} for _ in every[:-1]])


def lens_loss_and_grads(tuned: TunedLens, run: Run) -> tuple[Array, list[Tree]]:
    """Return how far every point is from what the model predicts in the end, (N,), and the gradients of its map.

    dlogits = (softmax(logits) − p) / count, and back through head, norm and map by their own backward passes.
    """
    _check(tuned, run)
    mask = None if is_classifier(run) else run.batch.mask
    real = np.ones(run.logits.shape[:-1]) if mask is None else np.asarray(mask, dtype=np.float64)
    counted = (real / max(real.sum(), 1)).astype(run.logits.dtype)  # the share of each prediction; none for padding
    losses, grads = [], []
    with use_engine(TracingEngine(forgets=True)):
        log_p = ops.log_softmax(run.logits)[0]
        p = np.exp(log_p)
        for own, point in zip(tuned.maps, tuned.points[:-1], strict=True):
            h, mapped = _affine(own, run[point.name])
            logits, saved = read_out(run, h)
            log_q = ops.log_softmax(logits)[0]
            losses.append(np.sum(counted * np.sum(p * (log_p - log_q), axis=-1)))
            dlogits = counted[..., None] * (np.exp(log_q) - p)
            _, dw, db = ops.linear_backward(read_out_backward(run, saved, dlogits), mapped)
            grads.append({"w": dw, "b": db})
    return np.array(losses), grads


def train_lens(
    tuned: TunedLens,
    runs: Run | Sequence[Run],
    *,
    steps: int = 100,
    optimizer: Optimizer | None = None,
    lr: float | None = None,
    progress: Progress | None = None,
) -> tuple[TunedLens, Array]:
    """Take steps over the runs in turn; return the lens, and the loss of every point before each step, (steps, N)."""
    data = [runs] if isinstance(runs, Run) else list(runs)
    if not data or steps < 1:
        raise ConfigError(f"there are {len(data)} runs and {steps} steps", hint="give at least one of each")
    maps, losses = descend(
        tuned.maps,
        lambda maps, step: lens_loss_and_grads(replace(tuned, maps=maps), data[step % len(data)]),
        steps, optimizer, lr, progress,
    )  # fmt: skip
    return replace(tuned, maps=maps), losses


def _affine(own: Tree, x: Array) -> tuple[Array, Any]:
    """Return x w + b, and what its backward needs."""
    return ops.linear(x, own["w"], own["b"])[0], LinearSaved(x, own["w"], own["b"])


def _check(tuned: TunedLens, run: Run) -> None:
    every = chosen_points(run, None)
    if tuned.points != every or tuned.maps[0]["b"].shape != run[every[0].name].shape[-1:]:
        raise ShapeError("this lens was made for another model", hint="make one with tuned_lens(run)")
