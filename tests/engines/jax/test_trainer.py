"""Training under JAX: the steps of the NumPy loop, compiled as one program.

Compiling takes nearly all of the time, so models are as small as they can be, and compiled steps serve several tests.
"""

from typing import NamedTuple

import numpy as np
import pytest

from glassformer.config import config_from_dict
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import ConfigError, TrainingError
from glassformer.core.execution import Execution, separated
from glassformer.core.tree import flatten, tree_map
from glassformer.data.examples import Examples, Windows
from glassformer.engines.jax.trainer import JaxTrainer, LossScaling
from glassformer.models import Batch, build
from glassformer.ops import IGNORE
from glassformer.training.evaluate import evaluate
from glassformer.training.loop import REFUSALS, training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer, final_params, start
from runs import are_same, assert_same_bits

SIZES = {"vocab": 8, "width": 8, "heads": 2, "layers": 2, "context": 8, "feed_forward": 12}
FEW = {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile
MODELS = {
    "decoder": {"architecture": "decoder"},
    "llama": {
        "architecture": "decoder", "positions": "rotary", "norm": "rms", "gated": True, "activation": "silu", **FEW,
        "kv_heads": 1,
    },
    "encoder": {"architecture": "encoder", "classes": 3, "pooling": "cls"},
    "encoder-decoder": {"architecture": "encoder-decoder", "positions": "relative", "norm": "rms", **FEW, "layers": 1},
}  # fmt: skip
STEPS = {"steps": 10, "batch": 8, "warmup": 3, "lr": 0.01}


@pytest.fixture
def narrow(jax):
    """As where nobody asked JAX for float64."""
    with jax.enable_x64(False):
        yield


def model_of(name, **settings):
    settings, how = separated(settings)
    return build(config_from_dict({**SIZES, **MODELS[name], **settings}), Execution(**how))


def data_of(name):
    """Text in windows; for other models examples of different lengths, with padding and targets that do not count."""
    rng = np.random.default_rng(0)
    if name in ("decoder", "llama"):
        return Windows(rng.integers(0, 8, 300), 6)
    tokens, source = rng.integers(0, 8, (20, 6)), rng.integers(0, 8, (20, 5))
    mask = np.arange(6) < rng.integers(1, 7, 20)[:, None]
    if name == "encoder":
        return Examples(Batch(tokens, rng.integers(0, 3, 20), mask=mask))
    source_mask = np.arange(5) < rng.integers(1, 6, 20)[:, None]
    return Examples(Batch(tokens, np.where(mask, tokens, IGNORE), source=source, mask=mask, source_mask=source_mask))


class Way(NamedTuple):
    """One way to train."""

    model: str
    execution: Execution
    recipe: dict
    settings: dict = {}  # noqa: RUF012
    kind: type = np.float64


WAYS = {
    "list": Way("decoder", Execution(), {"clip": 0.5}, {"dropout": 0.2, "layers": 1}),
    "loop": Way(
        "decoder",
        Execution(scan=True),
        {"weight_decay": 0.5, "accumulate": 2, "ema": 0.7},
        {"dropout": 0.2, "norm": "rms", **FEW},
    ),
    "loop, float32": Way("encoder-decoder", Execution(scan=True), {"optimizer": "sgd"}, {}, np.float32),
    "remat": Way("decoder", Execution(remat=True), {"optimizer": "lion", "weight_decay": 0.5}, FEW),
    "loop, remat": Way("llama", Execution(scan=True, remat=True), {"optimizer": "sgd"}, {"dropout": 0.2}),
    "loop, muon": Way("llama", Execution(scan=True), {"optimizer": "muon", "weight_decay": 0.5, "clip": None}),
    "loop, adam": Way("encoder", Execution(scan=True), {"optimizer": "adam", "weight_decay": 0.5}, FEW),
    "padding": Way("encoder-decoder", Execution(), {"accumulate": 2, "label_smoothing": 0.2, "optimizer": "sgd"}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_ten_steps_are_those_of_numpy(jax, way):
    model, data, recipe = model_of(way.model, **way.settings), data_of(way.model), Recipe(**STEPS, **way.recipe)
    first = tree_map(lambda x: x.astype(way.kind), model.init(0))
    exact = way.kind is np.float64
    with use_engine("numpy"):
        reference = Trainer(model, recipe)
        *_, (last, _) = expected = list(training_steps(reference, data, reference.first(first)))
    with jax.enable_x64(exact):
        training = JaxTrainer(model, recipe, way.execution)
        *_, (state, _) = found = list(training_steps(training, data, training.put(start(model, recipe, first))))
        state = training.take(state)
    limit = 1e-10 if exact else 1e-5
    for (_, record), (_, other) in zip(expected, found, strict=True):
        assert abs(other.loss - record.loss) <= limit * record.loss, f"step {record.step}"
        assert abs(other.grad_norm - record.grad_norm) <= 10 * limit * record.grad_norm, f"step {record.step}"
        assert (other.step, other.lr, other.refused) == (record.step, record.lr, False)
    assert (state.step, state.refused) == (10, 0)
    assert flatten(state.optimizer)["step"] == 10
    if exact:
        assert_close({"params": state.params, "ema": state.ema}, {"params": last.params, "ema": last.ema})
        assert_close(state.optimizer, last.optimizer)


def assert_close(have, want):
    """Compare states by name; a bias of keys, which has no slope but rounding, may wander."""
    have, want = flatten(have), flatten(want)
    assert have.keys() == want.keys()
    for name, x in want.items():
        if not name.endswith("key.b"):
            np.testing.assert_allclose(have[name], x, rtol=1e-8, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def plain(jax):
    """A small classifier's training in float32, with an average, its data, and the state before the first step."""
    model, data = model_of("encoder", layers=1), data_of("encoder")
    training = JaxTrainer(model, Recipe(**STEPS, ema=0.5), Execution(scan=True))
    return training, data, start(model, training.recipe)


def all_steps(training, data, state):
    with np.errstate(all="ignore"):
        return list(training_steps(training, data, training.put(state)))


def test_a_state_comes_back_from_the_devices_bit_for_bit(jax, narrow):
    model = model_of("encoder-decoder")
    recipe = Recipe(**STEPS, optimizer="muon", ema=0.9)
    state = start(model, recipe)._replace(step=3, best=1.5, stale=2, refused=1)
    for execution in (Execution(), Execution(scan=True), Execution(precision="float16", scan=True)):
        training = JaxTrainer(model, recipe, execution)
        there = training.put(state)
        assert all(isinstance(leaf, jax.Array) for leaf in flatten(there.params).values())
        assert isinstance(there.params["decoder"]["blocks"], dict if execution.scan else list)
        back = training.take(there)
        for name in ("params", "optimizer", "ema"):
            assert_same_bits(getattr(back, name), getattr(state, name))
        assert back[4:7] == state[4:7] == (1.5, 2, 1)
        assert (back.scaling is None) == (execution.precision != "float16")
        assert training.put_params(there.params) is there.params
        assert_same_bits(training.fetch(training.put_params(state.params)), state.params)


def test_a_state_serves_the_next_a_run_continues_and_evaluates_as_numpy_does(plain, narrow):
    training, data, state = plain
    before = training.put(state)
    after, _ = training.step(before, training.batch(data, 0), 0.01)
    kept = [name for name, x in flatten(before.params).items() if not x.is_deleted()]
    assert not kept
    assert not any(x.is_deleted() for x in flatten(after.params).values())
    assert isinstance(flatten(state.params)["classifier.w"], np.ndarray)  # the state that was put is still there

    whole = all_steps(training, data, state)
    ahead = training_steps(training, data, training.put(state))
    for _ in range(4):
        middle, _ = next(ahead)
    rest = all_steps(training, data, training.take(middle))
    assert [record.loss for _, record in rest] == [record.loss for _, record in whole[4:]]
    assert_same_bits(training.take(rest[-1][0]).params, training.take(whole[-1][0]).params)

    groups = ["a", "b", "b", "c"] * 5
    expected = evaluate(training.model, state.params, data, metric="class", groups=groups)
    found = training.evaluate(training.put_params(state.params), data, metric="class", groups=groups)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    assert (found.accuracy, found.groups) == (expected.accuracy, expected.groups)
    assert (found.targets, found.examples) == (expected.targets, expected.examples) == (20, 20)


def test_evaluations_come_when_due_and_patience_ends_a_run(plain, narrow):
    training, data, state = plain
    seen = []

    def judge(params):
        seen.append(training.fetch(params))
        return training.evaluate(params, data)

    ahead = training_steps(training, data, training.put(state._replace(best=0.0, stale=4)), evaluate=judge)
    recipe = Recipe(**STEPS, ema=0.5, eval_every=2, patience=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "recipe", recipe)
        *_, (last, record) = list(ahead)
    assert (last.step, record.stop, record.is_best, last.stale) == (2, True, False, 5)
    assert_same_bits(seen[0], training.fetch(final_params(last, recipe)))  # the average is judged
    assert not are_same(seen[0], training.fetch(last.params))


def test_steps_that_are_not_numbers_move_nothing_and_end_a_run(plain, narrow):
    training, data, state = plain
    broken = tree_map(np.array, state.params)
    broken["classifier"]["w"][0, 0] = np.nan
    ahead = training_steps(training, data, training.put(state._replace(params=broken)))
    for number in range(1, REFUSALS):
        after, record = next(ahead)
        assert (record.refused, after.step, after.refused) == (True, number, number)
        assert np.isnan(record.loss)
    back = training.take(after)
    assert_same_bits(back.params, broken)
    assert_same_bits(back.optimizer, state.optimizer)
    assert_same_bits(back.ema, state.ema)
    with pytest.raises(TrainingError, match=rf"the last {REFUSALS} steps were refused, up to step {REFUSALS}"):
        next(ahead)


def test_a_step_beyond_the_range_of_the_weights_is_refused(jax, narrow):
    model, data = model_of("decoder", layers=1, **FEW), data_of("decoder")
    recipe = Recipe(**{**STEPS, "lr": 3e38, "warmup": 0}, optimizer="sgd", weight_decay=0.0, clip=None)
    training = JaxTrainer(model, recipe, Execution())
    params = tree_map(lambda x: x * np.float32(4), model.init(0))
    after, record = next(training_steps(training, data, training.put(start(model, recipe, params))))
    assert record.refused
    assert np.isfinite([record.loss, record.grad_norm]).all()
    assert_same_bits(training.take(after).params, params)


@pytest.fixture(scope="module")
def half(jax):
    """Training in float16 whose scale grows after four good steps, its data, first state, and losses in float32."""
    model, data, recipe = model_of("decoder", layers=1, **FEW), data_of("decoder"), Recipe(**STEPS)
    training = JaxTrainer(model, recipe, Execution(precision="float16"))
    training.scaling = LossScaling(patience=4)
    with use_engine("numpy"):
        reference = Trainer(model, recipe)
        losses = [record.loss for _, record in training_steps(reference, data, reference.first())]
    return training, data, start(model, recipe), np.array(losses)


def check_half(training, steps, losses, limit):
    """Refuse losses that are far from those of float32, or too near, and a state in another type."""
    found = np.array([record.loss for _, record in steps])
    assert 1e-7 < np.abs(found - losses).max() < limit
    assert not any(record.refused for _, record in steps)
    last = steps[-1][0]
    trees = flatten([last.params, last.optimizer])
    assert {str(x.dtype) for name, x in trees.items() if not name.endswith("step")} == {"float32"}


def test_half_precision_stays_close_and_only_float16_has_a_scale(half, narrow):
    training, data, state, losses = half
    steps = all_steps(training, data, state)
    check_half(training, steps, losses, 0.01)
    last = training.take(steps[-1][0])
    assert last.scaling["scale"] == 2.0**15 * 2 * 2
    assert last.scaling["good"] == 10 - 4 - 4

    training = JaxTrainer(training.model, training.recipe, Execution(precision="bfloat16", scan=True))
    steps = all_steps(training, data, state)
    check_half(training, steps, losses, 0.05)
    assert steps[-1][0].scaling is None


def test_a_scale_that_is_too_large_halves_and_its_steps_move_nothing(half, narrow):
    training, data, state, _ = half
    huge = {"scale": np.float32(2.0**24), "good": np.int32(3)}
    ahead = training_steps(training, data, training.put(state._replace(scaling=huge)))
    refusals = 0
    for after, record in ahead:
        back = training.take(after)
        if not record.refused:
            break
        refusals += 1
        assert (after.step, after.refused) == (refusals, 0)  # a scale on its way down is not the run's fault
        assert_same_bits(back.params, state.params)
        assert_same_bits(back.optimizer, state.optimizer)
        assert (back.scaling["scale"], back.scaling["good"]) == (2.0 ** (24 - refusals), 0)
    assert 0 < refusals < 9
    assert (back.scaling["scale"], back.scaling["good"]) == (2.0 ** (24 - refusals), 1)
    assert not are_same(back.params, state.params)
    assert record.grad_norm < 100  # in its true size


def test_a_scale_that_cannot_shrink_is_the_runs_fault(half, narrow):
    training, data, state, _ = half
    broken = tree_map(lambda x: x * np.float32(np.nan), state.params)
    low = {"scale": np.float32(4.0), "good": np.int32(0)}
    ahead = training_steps(training, data, training.put(state._replace(params=broken, scaling=low)))
    seen = [next(ahead)[0] for _ in range(4)]
    assert [float(state.scaling["scale"]) for state in seen[-1:]] == [1.0]
    assert [state.refused for state in seen] == [0, 1, 2, 3]


def test_the_scale_follows_its_rules():
    scaling = LossScaling(first=8.0, largest=16.0, patience=3)
    state = scaling.init()
    yes, no = np.bool_(True), np.bool_(False)
    seen = []
    for moved in (yes, yes, yes, yes, no, yes, no, no, no, no, no):
        state = scaling.update(state, moved)
        seen.append((float(state["scale"]), int(state["good"])))
    grown, shrunk = [(8, 1), (8, 2), (16, 0), (16, 1), (8, 0), (8, 1)], [(4, 0), (2, 0), (1, 0), (1, 0), (1, 0)]
    assert seen == grown + shrunk
    assert state["scale"] == 1 < scaling.init()["scale"]
    for _ in range(9):
        state = scaling.update(state, yes)
    assert state["scale"] == 8
    for _ in range(9):
        state = scaling.update(state, yes)
    assert state["scale"] == 16
    assert state["scale"].dtype == np.float32
    assert state["good"].dtype == np.int32


def test_the_scale_is_undone():
    grads = {"w": np.array([2.0, -4.0], np.float32), "b": [np.array(8.0)]}
    true = LossScaling().undo(grads, {"scale": np.float32(4.0)})
    assert_same_bits(true, {"w": np.array([0.5, -1.0], np.float32), "b": [np.array(2.0)]})


def test_numpy_has_no_bfloat16_and_computes_in_float16():
    batch = data_of("decoder").batch(0, 4, 0)
    params = model_of("decoder").init(0)
    with pytest.raises(ConfigError, match=r"NumPy has no bfloat16(.|\n)*hint: compute in \"float16\""):
        build(model_of("decoder").config, compute="bfloat16").loss_and_grads(params, batch)
    loss, grads = model_of("decoder").loss_and_grads(params, batch)
    near, others = build(model_of("decoder").config, compute="float16").loss_and_grads(params, batch)
    assert 0 < abs(float(near) - float(loss)) < 1e-2
    assert {str(x.dtype) for x in flatten(others).values()} == {"float32"}
    for name, x in flatten(grads).items():
        np.testing.assert_allclose(flatten(others)[name], x, atol=1e-2, err_msg=name)
