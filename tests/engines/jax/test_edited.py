"""What is written is what runs where the engine jax has ways of its own: caches, first parameters, lookups, steps."""

from typing import NamedTuple

import numpy as np
import pytest

from glassformer.core import sources
from glassformer.core.dispatch import current, use_engine
from glassformer.core.tree import flatten, tree_map
from glassformer.layers import KeyValues, Layer
from glassformer.models import Batch, build
from glassformer.training import Recipe
from glassformer.training.optimizers import Adam


@pytest.mark.parametrize("window", [None, 3])
def test_jax_writes_with_an_edited_cache(monkeypatch, jax, window):
    model = build("tiny-decoder", window=window)
    params, prompt = model.init(0), [np.array([5, 3, 8, 2])]

    def logits(engine):
        with use_engine(engine):
            reader = current().executor.reader(model, params, prompt, None, chunk=8, room=3)
            reader.read(np.array([4]))
            return np.asarray(reader.logits)

    before, written = logits("jax"), KeyValues.append
    monkeypatch.setattr(KeyValues, "append", lambda self, k, v: written(self, k, 2 * v))
    np.testing.assert_allclose(logits("jax"), logits("numpy"), rtol=1e-4, atol=1e-5)
    assert np.abs(logits("jax") - before).max() > 1e-2


def test_jax_draws_first_parameters_by_an_edited_init(monkeypatch, jax):
    written = Layer.init
    monkeypatch.setattr(Layer, "init", lambda *given, **named: tree_map(lambda p: p + 1, written(*given, **named)))
    model, recipe, found = build("counting"), Recipe(seed=3), {}
    for engine in ("numpy", "jax"):
        with use_engine(engine):
            trainer = current().executor.trainer(model, recipe)
            found[engine] = flatten(trainer.take(trainer.first()).params)
    for name, array in found["numpy"].items():
        np.testing.assert_array_equal(found["jax"][name], array)


class OneBatch(NamedTuple):
    """Data with one batch."""

    all: Batch

    def batch(self, step, size, seed, rows=slice(None)):
        return Batch(*(None if part is None else part[rows] for part in self.all))


def test_jax_refuses_a_step_that_an_edited_optimizer_makes_infinite(monkeypatch, jax):
    tokens = np.array([[1, 2, 3, 4]])
    data = OneBatch(Batch(tokens, tokens))
    written, moved = Adam.scalars, {}
    monkeypatch.setattr(Adam, "scalars", lambda self, step, lr: written(self, step * 0, lr))
    for engine in ("numpy", "jax"):
        with use_engine(engine):
            trainer = current().executor.trainer(build("counting"), Recipe(optimizer="adam", batch=1))
            before = trainer.first()
            state, figures = trainer.step(before, trainer.batch(data, 0), 1e-3)
            moved[engine] = (
                [*figures][2],
                all(np.isfinite(p).all() for p in flatten(trainer.take(state).params).values()),
            )
    assert moved["numpy"] == (False, True)
    assert moved["jax"] == (False, True)


@pytest.mark.parametrize(
    ("file", "positions"),
    [
        ("ops/embedding.py", "learned"),
        ("layers/embedding.py", "sinusoidal"),
        ("layers/position.py", "rotary"),
        ("ops/position.py", "relative"),
    ],
)
def test_jax_trains_and_writes_where_it_cannot_trace_what_is_written(monkeypatch, jax, file, positions):
    """Lookups of positions that are not known yet and sums of rows are written in NumPy."""
    model = build("tiny-decoder", positions=positions, layers=1)
    params, tokens, found = model.init(0), np.array([[5, 3, 8, 3]]), {}
    monkeypatch.setattr(sources, "edited_files", lambda: {file})
    for engine in ("numpy", "jax"):
        with use_engine(engine):
            trainer = current().executor.trainer(model, Recipe(optimizer="sgd", batch=1))
            state, _ = trainer.step(trainer.first(params), trainer.batch(OneBatch(Batch(tokens, tokens)), 0), 0.1)
            reader = current().executor.reader(model, params, [tokens[0]], None, chunk=8, room=3)
            reader.read(np.array([4]))
            found[engine] = {**flatten(trainer.take(state).params), "logits": np.asarray(reader.logits)}
    for name, want in found["numpy"].items():
        np.testing.assert_allclose(found["jax"][name], want, rtol=1e-4, atol=1e-5)
