"""Steps in the memory of the state before: the same numbers as steps that leave it alone."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.core.dispatch import current, use_engine
from glassformer.core.errors import ShapeError
from glassformer.core.threads import at_most
from glassformer.core.tree import flatten, tree_map
from glassformer.engines.cpu.trainer import InPlaceTrainer, in_place
from glassformer.models import Batch, build
from glassformer.runs.run import Ready
from glassformer.runs.start import resume_session, start_session
from glassformer.training import OPTIMIZERS, SGD, Adam, AdamW, Lion, Muon
from glassformer.training.loop import training_steps
from glassformer.training.optimizer import Optimizer
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer, start
from runs import assert_same_bits, tiny_session

CASES = {
    "sgd": SGD(momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": Adam(weight_decay=0.1),
    "adamw": AdamW(weight_decay=0.1),
    "lion": Lion(weight_decay=0.1),
    "muon": Muon(weight_decay=0.1),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
both_engines = pytest.mark.parametrize("engine", ["cpu", "numpy"])


@pytest.fixture
def session(tmp_path):
    return tiny_session("majority", tmp_path / "run", dropout=0.1)


def make_params(kind, *, width=4):
    rng = np.random.default_rng(0)
    shapes = {"tokens": {"table": (7, width)}, "blocks": [{"w": (width, 6), "b": (6,)} for _ in range(2)], "scale": ()}
    return _drawn(rng, shapes, kind)


def _drawn(rng, shapes, kind):
    if isinstance(shapes, dict):
        return {name: _drawn(rng, part, kind) for name, part in shapes.items()}
    if isinstance(shapes, list):
        return [_drawn(rng, part, kind) for part in shapes]
    return np.asarray(rng.normal(size=shapes)).astype(kind)


def make_grads(params, step):
    rng = np.random.default_rng(step)
    return tree_map(lambda p: np.asarray(rng.normal(size=p.shape)).astype(p.dtype), params)


@every_optimizer
@both_engines
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_steps_in_place_give_the_bits_of_steps_that_are_not(name, engine, kind):
    optimizer = CASES[name]
    with use_engine(engine):
        params = make_params(kind)
        state = optimizer.init(params)
        own, own_state = tree_map(np.copy, (params, state))
        step_in_place = in_place(optimizer, own, own_state)
        for step in range(5):
            grads = make_grads(params, step)
            before = tree_map(np.copy, grads)
            params, state = optimizer.update(params, grads, state, lr=0.02 / (1 + step))
            step_in_place(flatten(grads), 0.02 / (1 + step))
            assert_same_bits(grads, before)
        assert_same_bits(own, params)
        assert_same_bits(own_state, state)


@every_optimizer
def test_the_arrays_stay_where_they_are_and_large_ones_are_shared_out_among_cores(name):
    params = make_params("float32")
    state = CASES[name].init(params)
    arrays = list(flatten((params, state)).values())
    in_place(CASES[name], params, state)(flatten(make_grads(params, 0)), 0.1)
    assert all(a is b for a, b in zip(flatten((params, state)).values(), arrays, strict=True))
    assert state["step"] == 1

    with at_most(3):
        params = make_params("float32", width=20_000)
        state = CASES[name].init(params)
        want, want_state = CASES[name].update(params, make_grads(params, 0), state, lr=0.1)
        in_place(CASES[name], params, state)(flatten(make_grads(params, 0)), 0.1)
    assert_same_bits(params, want)
    assert_same_bits(state, want_state)


def test_what_does_not_fit_is_refused_before_anything_is_written():
    params = {"w": np.ones((2, 2))}
    state = Adam().init(params)
    before = tree_map(np.copy, (params, state))
    with pytest.raises(ShapeError, match="the gradient of w is missing"):
        in_place(Adam(), params, state)({}, 0.1)
    with pytest.raises(ShapeError, match="state does not fit the parameters: see w"):
        in_place(Adam(), params, Lion().init(params))
    assert_same_bits((params, state), before)


@pytest.mark.parametrize(
    ("optimizer", "lr", "bounded"),
    [
        (Adam(), 0.1, True),
        (AdamW(), 0.999, True),
        (Lion(), 0.1, True),
        (Adam(), 1.0, False),
        (Lion(), 2.0, False),
        (Adam(eps=0.0), 0.1, False),  # 0 / 0
        (Adam(beta1=0.9, beta2=0.5), 0.1, False),  # the mean remembers for longer than the square
        (AdamW(weight_decay=1e30), 0.1, False),
        (Lion(weight_decay=1e30), 0.1, False),
        (SGD(), 1e-6, False),
        (Muon(), 0.1, True),
        (Muon(), 1.0, False),
        (Muon(weight_decay=20.0), 0.1, False),
        (Muon(eps=0.0), 0.1, False),  # of the rest
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Optimizer) else str(value),
)
def test_only_steps_that_cannot_leave_the_range_of_numbers_are_taken_unseen(optimizer, lr, bounded):
    assert optimizer.is_bounded(lr) is bounded


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_ten_steps_have_the_losses_of_the_path_as_written(name, rng):
    tokens = rng.integers(0, 19, (10, 6, 13))
    losses = {}
    for engine in ("cpu", "numpy"):
        with use_engine(engine):
            model = build("tiny-decoder", vocab=19, width=16, heads=2, layers=2, context=12)
            trainer = current().executor.trainer(model, Recipe(optimizer=name, lr=0.01, steps=10, batch=6))
            state, losses[engine] = trainer.first(), []
            for part in tokens:
                state, figures = trainer.step(state, Batch(part[:, :-1], part[:, 1:]), 0.01, keep=lambda *_: None)
                losses[engine].append(figures.loss)
    assert losses["cpu"][-1] != pytest.approx(losses["cpu"][0], rel=1e-3)
    np.testing.assert_allclose(losses["cpu"], losses["numpy"], rtol=1e-6)


@pytest.mark.parametrize("kind", [Adam, AdamW, Lion, Muon])
def test_bounded_steps_stay_finite_whatever_the_gradients(kind):
    optimizer = kind(weight_decay=0.1)
    params = {"blocks": [{"w": np.array([[0.0, 1.0, -1e30, 1e-30]], np.float32)}], "scale": np.ones(4, np.float32)}
    state = optimizer.init(params)
    step = in_place(optimizer, params, state)
    for scale in (1e18, 0.0, -1e18, 1e-30, 1e18, -1e-38, 3e38, -3e38):
        with np.errstate(all="ignore"):
            step({name: np.full_like(p, scale) for name, p in flatten(params).items()}, 0.999)
        assert all(np.isfinite(p).all() for p in flatten(params).values())


def nothing(*_):
    """Keep no state: whoever passes this lets steps overwrite each other."""


def trained(session, recipe, trainer, **settings):
    """The states and records of all steps, each copied as it comes."""
    steps = training_steps(trainer(session.model, recipe), session.task.train, start(session.model, recipe), **settings)
    return [(tree_map(np.copy, state), replace(record, seconds=0.0)) for state, record in steps]


@every_optimizer
@pytest.mark.parametrize("ema", [None, 0.9])
def test_states_are_the_same_whether_or_not_they_overwrite_each_other(session, name, ema):
    recipe = Recipe(steps=6, batch=8, optimizer=name, lr=0.01, ema=ema, clip=1.0, eval_every=3)
    for evaluate in (None, session.evaluate):
        want = trained(session, recipe, Trainer, evaluate=evaluate)
        for keep in (None, nothing):
            have = trained(session, recipe, InPlaceTrainer, evaluate=evaluate, keep=keep)
            for (state, record), (expected, expected_record) in zip(have, want, strict=True):
                assert_same_bits(state, expected)
                assert record == expected_record


def test_steps_in_place_follow_the_state_that_they_are_given(session):
    recipe = Recipe(steps=4, batch=8, lr=0.01)
    trainer = InPlaceTrainer(session.model, recipe)
    for _ in range(2):  # the second state lies elsewhere in memory
        *_, (state, _) = training_steps(trainer, session.task.train, trainer.first(), keep=nothing)
        assert state.optimizer["step"] == 4
    *_, (want, _) = training_steps(trainer, session.task.train, trainer.first())
    assert_same_bits(state.params, want.params)


def test_a_step_before_an_evaluation_leaves_the_state_before_alone(session):
    recipe = Recipe(steps=4, batch=8, lr=0.01, eval_every=2)
    trainer = InPlaceTrainer(session.model, recipe)
    state = trainer.first()
    steps = training_steps(trainer, session.task.train, state, evaluate=session.evaluate, keep=nothing)
    first, second, third, _ = (state for state, _ in steps)
    assert first.params is state.params
    assert second.params is not first.params  # whoever interrupts the evaluation still has the first
    assert third.params is second.params


def test_a_state_that_overwrites_is_kept_before_it_is_given_out(session):
    recipe = Recipe(steps=4, batch=8, lr=0.01, eval_every=2)
    trainer, kept = InPlaceTrainer(session.model, recipe), []
    steps = training_steps(
        trainer,
        session.task.train,
        trainer.first(),
        evaluate=session.evaluate,
        keep=lambda *pair: kept.append(pair),
    )
    given = list(steps)
    assert kept == [given[0], given[2]]


def test_a_refused_step_overwrites_nothing_and_states_have_memory_of_their_own(session):
    recipe = Recipe(steps=3, batch=8, lr=1e300, optimizer="sgd", warmup=0, schedule="constant", clip=0.0)
    first = tree_map(np.copy, start(session.model, recipe).params)
    have = trained(session, recipe, InPlaceTrainer, keep=nothing)
    assert all(record.refused for _, record in have)
    assert_same_bits(have[-1][0].params, first)

    recipe = Recipe(steps=4, batch=8, ema=0.9)
    trainer, state = InPlaceTrainer(session.model, recipe), start(session.model, recipe)._replace(step=2, best=0.5)
    put = trainer.put(state)
    assert_same_bits(put, state)
    assert (put.step, put.best) == (2, 0.5)
    assert not any(np.shares_memory(x, y) for x, y in zip(arrays(put), arrays(state), strict=True))


def arrays(tree):
    return [x for x in flatten(tree).values() if isinstance(x, np.ndarray)]


def test_a_session_writes_neither_to_what_it_was_given_nor_to_models_taken_from_it(session):
    given = tree_map(np.copy, session.state.params)
    before = tree_map(np.copy, given)
    other = start_session(replace(session.run, ready=Ready(session.task, given)))
    for _ in other.steps():
        if other.state.step == 3:
            break
    assert_same_bits(given, before)
    assert not any(np.shares_memory(x, y) for x, y in zip(arrays(given), arrays(other.state.params), strict=True))

    steps = session.steps()
    next(steps)
    early = session.trained
    before = tree_map(np.copy, early.params)
    for _ in range(3):
        next(steps)
    assert_same_bits(early.params, before)


def test_a_record_whose_writing_failed_is_written_with_the_state(session, monkeypatch):
    monkeypatch.setattr("glassformer.runs.session.WRITE_EVERY", -1.0)  # written at once
    steps = session.steps()
    next(steps)
    with monkeypatch.context() as patch:
        patch.setattr(type(session.sink), "append", lambda *args: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            next(steps)
    session.save()
    assert [line["step"] for line in session.run.metrics()] == [1, 2]
    session.save()  # not once too often
    assert [line["step"] for line in session.run.metrics()] == [1, 2]
    assert resume_session(session.run.folder).state.step == 2


def taken_in_place(optimizer):
    """The parameters before and after two steps that may overwrite them."""
    model = build("tiny-decoder", layers=1)
    trainer = InPlaceTrainer(model, Recipe(steps=2, batch=2))
    trainer.optimizer = optimizer
    tokens = np.random.default_rng(0).integers(0, 50, (2, 5))
    state = trainer.first(model.init(0))
    with use_engine("cpu"):
        for _ in range(2):
            state, _ = trainer.step(state, Batch(tokens, tokens), 1e-2, keep=lambda *_: None)
    return model.init(0), state.params


def test_a_replaced_method_of_an_optimizer_runs(monkeypatch):
    monkeypatch.setattr(AdamW, "move", lambda self, name, p, g, memory, *scalars: (p, memory), raising=False)
    assert_same_bits(*taken_in_place(AdamW()))


def test_a_subclass_that_overrides_update_runs():
    class Still(AdamW):
        def update(self, params, grads, state, *, lr):
            return params, state

    assert_same_bits(*taken_in_place(Still()))


def test_weights_that_lie_in_columns_as_in_published_files_are_trained_in_rows():
    model = build("tiny-decoder")
    given = tree_map(np.asfortranarray, model.init(0))
    moved = InPlaceTrainer(model, Recipe(steps=1)).first(given).params
    for name, x in flatten(moved).items():
        assert x.flags.c_contiguous
        assert not np.shares_memory(x, flatten(given)[name])
        np.testing.assert_array_equal(x, flatten(given)[name])
