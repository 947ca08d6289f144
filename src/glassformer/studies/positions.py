"""Positions: which scheme goes on beyond the length that it was trained on?

Position coupling: tokens that belong together stand at the same place (Cho et al. 2024, McLeish et al. 2024).

    tokens   @3  5  2  +  4  7  =  9  9        25 + 74 = 99, the last digits first
    places   3   4  5  3  4  5  3  4  5        @3 says that counting starts at 3; each sign starts it again

Digits of equal worth share a vector, so that the next digit of a sum depends on those one place up, however long the
numbers are. Sequences to train on start anywhere, so that every vector is learned.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..config import TransformerConfig
from ..core import registry
from ..core.arrays import Array, namespace
from ..core.dispatch import recorded
from ..data.arrays import array_task
from ..data.examples import Examples, decoder_examples
from ..layers import Positions, register_positions
from ..runs.session import TrainingSession
from .measures import on_accelerator, session_on
from .study import Figures, Rows, Study

SCHEMES = ("coupled", "rotary", "alibi", "relative", "sinusoidal", "learned", "none")
STEPS = {"copy": 500, "reverse": 500, "addition": 1000}
MODEL, RECIPE = ("width", "layers", "norm", "gated"), ("steps", "batch", "lr", "weight_decay")
RIGHT = 0.95  # share of exactly right answers up to which a length counts as reached
SYMBOLS, PLUS, EQUALS, START = 10, 10, 11, 12  # ids 0 … 9 are letters or digits; START + n starts the count at n


@dataclass(frozen=True)
class CoupledPositions(Positions):
    """Learned vectors by place, counted from the last sign on; all places lie below the context.

    mirrored   letters behind the first sign count down, as those of a word that is written backward
    """

    context: int
    mirrored: bool = False
    vectors = "learned"

    @recorded
    def places(self, tokens: Array) -> Array:
        """Return the places (..., T) of tokens (..., T), the first of which says where counting starts."""
        xp = namespace(tokens)
        is_letter = (tokens < SYMBOLS) & (xp.arange(tokens.shape[-1]) > 0)
        part = xp.cumsum(~is_letter, axis=-1)  # 1 behind the first token, 2 behind the first sign, 3 behind the second
        first, second = (xp.sum(is_letter & (part == n), axis=-1, keepdims=True) for n in (1, 2))
        count = xp.cumsum(is_letter, axis=-1) - xp.where(part > 1, first, 0) - xp.where(part > 2, second, 0)
        if self.mirrored:
            count = xp.where(part > 1, first + 1 - count, count)
        start = xp.maximum(tokens[..., :1] - START, 0)
        return xp.clip(start + count, 0, self.context - 1)


def register_coupled() -> None:
    """Make coupled positions known by the names "coupled" and "coupled_mirrored"."""
    for name, mirrored in (("coupled", False), ("coupled_mirrored", True)):
        if name not in registry.known("positions"):
            register_positions(name, partial(_build, mirrored=mirrored))


def _build(config: TransformerConfig, *, bidirectional: bool, mirrored: bool) -> CoupledPositions:
    return CoupledPositions(config.context, mirrored)


def sequences(operation: str, lengths: Array, rng: np.random.Generator, starts: tuple[int, int] = (0, 1)) -> Examples:
    """Return a sequence of each length, whose count starts anywhere from `starts[0]` to below `starts[1]`.

    copy, reverse   letters, then the same, or the same backward
    addition        two numbers and their sum, the last digits first, each with a zero behind: a sum is no longer
    """
    rows: list[Array] = []
    prompts: list[int] = []
    for n, count in zip(*np.unique(lengths, return_counts=True), strict=True):
        first = START + rng.integers(*starts, size=(count, 1))
        a, b = rng.integers(SYMBOLS, size=(2, count, n))
        question, answer = [a], a[:, ::-1] if operation == "reverse" else a
        if operation == "addition":
            a, b = (np.pad(x, ((0, 0), (0, 1))) for x in (a, b))
            question, answer = [a, np.full((count, 1), PLUS), b], np.zeros_like(a)
            carry = np.zeros(count, dtype=a.dtype)
            for at in range(n + 1):
                carry, answer[:, at] = np.divmod(a[:, at] + b[:, at] + carry, SYMBOLS)
        prompt = np.concatenate([first, *question, np.full((count, 1), EQUALS)], axis=1)
        rows += list(np.concatenate([prompt, answer], axis=1))
        prompts += [prompt.shape[1]] * int(count)
    return decoder_examples(rows, prompts)


def _grid(quick: bool) -> list[dict[str, Any]]:
    small = {"longest": 10, "tested": 40, "width": 64, "batch": 64, "lr": 3e-3}
    if quick:
        small |= {"longest": 5, "tested": 15, "width": 32, "steps": 200}
        return [{"operation": "copy", "scheme": scheme, **small} for scheme in ("coupled", "rotary", "learned", "none")]
    if on_accelerator():
        # As published: one wide layer, in which vectors of many places can be told apart; others get a second one.
        large = {"longest": 30, "tested": 100, "width": 256, "norm": "rms", "gated": True, "batch": 256, "lr": 1e-3,
                 "weight_decay": 0.0, "steps": 4000}  # fmt: skip
        layers = {"coupled": 1, "rotary": 2}
        return [{"operation": "addition", "scheme": scheme, "layers": n, **large} for scheme, n in layers.items()]
    return [{"operation": operation, "scheme": scheme, **small, "steps": steps}
            for operation, steps in STEPS.items() for scheme in SCHEMES]  # fmt: skip


def start(point: dict[str, Any], seed: int) -> tuple[TrainingSession, list[int]]:
    """Begin the training of a point on sequences of 1 to `longest` letters; return it with the lengths of its tests."""
    operation, scheme, longest, tested = (point[name] for name in ("operation", "scheme", "longest", "tested"))
    rng = np.random.default_rng(seed)
    # Vectors at both ends are used less often in training; a test starts behind those at the beginning.
    starts = [(0, tested + longest), (longest, longest + 1)] if scheme == "coupled" else [(0, 1)] * 2
    lengths = sorted({min(round(longest * times), tested) for times in (0.5, 1, 1.2, 1.5, 2, 2.5, 3)} | {tested})
    drawn = rng.integers(1, longest + 1, size=100 * point["batch"] * max(1, longest // 10) * 3)
    train = sequences(operation, drawn, rng, starts[0])
    # Tests of all lengths are padded to the longest, so that JAX compiles one program for them.
    asked = np.repeat(lengths, 200)
    tests = sequences(operation, asked, rng, starts[1])
    task = replace(array_task(train, validation=tests), groups=tuple(map(str, asked)))
    register_coupled()
    backward = scheme == "coupled" and operation == "reverse"
    model = {"positions": "coupled_mirrored" if backward else scheme, "vocab": START + tested + longest,
             "context": 3 * tested + 6, "layers": 2, "heads": 4, "head_width": max(32, point["width"] // 4),
             "tied_head": False, **{name: point[name] for name in MODEL if name in point}}  # fmt: skip
    recipe = {"weight_decay": 0.1, **{name: point[name] for name in RECIPE if name in point}}
    return session_on(task, seed, model, {**recipe, "warmup": 100, "eval_every": 10**6}), lengths


def measure(point: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train; return the share of right answers by length."""
    session, lengths = start(point, seed)
    *_, last = session.steps()
    return scores(point["longest"], lengths, last.evaluation)


def scores(longest: int, lengths: list[int], found: Any) -> dict[str, Any]:
    """Return the shares of right answers in an evaluation of all lengths."""
    right = list(found.groups.values())
    reached = [length for n, length in enumerate(lengths) if min(right[: n + 1]) >= RIGHT]
    return {"trained": right[lengths.index(longest)], "twice": right[lengths.index(2 * longest)], "farthest": right[-1],
            "reach": max(reached, default=0), "lengths": lengths, "right": right}  # fmt: skip


def figures(rows: Rows) -> Figures:
    """Draw the share of right answers by length, a panel for each operation."""
    from ..plots import style

    names = rows.values("operation")
    figure, axes = style.row(len(names), 3.8, 3.2)
    for ax, operation in zip(axes, names, strict=True):
        for scheme, color in zip(SCHEMES, style.colors().series, strict=False):
            own = [row for row in rows.where(operation=operation) if row["scheme"] == scheme]
            if own:
                mean = np.mean([row["right"] for row in own], axis=0)
                ax.plot(own[0]["lengths"], mean, "o-", color=color, label=scheme, markersize=3)
        ax.axvline(rows[0]["longest"], color=style.colors().gray, linestyle=":")
        ax.set(title=operation, xlabel="symbols", ylabel="answers right", ylim=(-0.03, 1.03))
    figure.axes[-1].legend()
    words = "share of exactly right answers by length, means over seeds; training ended at the dotted line"
    return {"lengths": style.titled(figure, "Beyond the length of training", words)}


STUDY = Study(
    name="positions", question="Which positions go on beyond the length they were trained on?",
    published="Coupled positions, trained on additions of 1 to 30 digits, add 200 digits (Cho et al. 2024, Position "
    "Coupling); with Abacus embeddings, 20 digits of training reach 100 (McLeish et al. 2024).",
    grid=_grid, measure=measure, figures=figures, minutes=20,
    answers={"farthest": "highest", "reach": "highest"}, whole={"scheme": "none"}, by=("operation",),
    caveat=f"farthest: right answers at the longest test; reach: symbols up to which {RIGHT:.0%} are right.",
    columns=("operation", "scheme", "trained", "twice", "farthest", "reach"),
)  # fmt: skip
