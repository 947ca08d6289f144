"""The guard: a step that is not finite never reaches the weights, the optimizer or a checkpoint."""

from types import SimpleNamespace

import numpy as np
import pytest

from glassformer.core.errors import CheckpointError, TrainingError
from glassformer.core.tree import flatten, tree_map
from glassformer.runs.start import resume_session
from glassformer.training import LATEST, all_finite, load_checkpoint, save_checkpoint
from glassformer.training.loop import REFUSALS, training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer, start
from runs import assert_same_bits, command, options, tiny_session


class Poisoned:
    """A model whose gradients, or whose loss, are not finite on the given calls."""

    def __init__(self, model, calls, value, *, what="gradients"):
        self.model, self.calls, self.value, self.what, self.seen = model, calls, value, what, 0

    def __getattr__(self, name):
        return getattr(self.model, name)

    def loss_and_grads(self, *args, **settings):
        loss, grads = self.model.loss_and_grads(*args, **settings)
        self.seen += 1
        if self.seen not in self.calls:
            return loss, grads
        if self.what == "loss":
            return np.asarray(self.value, loss.dtype), grads
        grads = tree_map(np.copy, grads)
        grads["embedding"]["tokens"]["table"][0, 0] = self.value  # one number is enough
        return loss, grads


@pytest.fixture
def session(tmp_path):
    return tiny_session("majority", tmp_path / "run", steps=40, eval_every=5, save_every=1, ema=0.9)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("what", ["gradients", "loss"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_poisoned_step_is_refused_and_the_run_goes_on(session, value, what, clip):
    recipe = Recipe(steps=6, batch=8, clip=clip, ema=0.9)
    model = Poisoned(session.model, {3, 4}, value, what=what)
    steps = list(training_steps(Trainer(model, recipe), session.task.train, start(session.model, recipe)))
    assert [record.refused for _, record in steps] == [False, False, True, True, False, False]
    good = steps[1][0]
    for state, record in steps[2:4]:
        for part in ("params", "optimizer", "ema"):
            assert_same_bits(getattr(state, part), getattr(good, part))
        line = record.to_dict()
        assert line["refused"] is True
        assert None in (line["loss"], line["grad_norm"])
    assert [state.refused for state, _ in steps] == [0, 0, 1, 2, 0, 0]
    assert all_finite((steps[-1][0].params, steps[-1][0].ema))


def test_a_step_out_of_the_range_of_the_weights_is_refused(session):
    # Loss and gradients are finite; lr · gradient is not.
    recipe = Recipe(steps=3, batch=8, optimizer="sgd", lr=1e300, warmup=0, schedule="constant", clip=0.0)
    first = start(session.model, recipe)
    steps = list(training_steps(Trainer(session.model, recipe), session.task.train, first))
    assert all(record.refused and np.isfinite(record.loss) for _, record in steps)
    assert_same_bits(steps[-1][0].params, first.params)


def test_many_refusals_in_a_row_end_the_run(session):
    session.trainer.model = Poisoned(session.model, set(range(8, 100)), np.nan)
    taken = []
    with pytest.raises(TrainingError, match=f"the last {REFUSALS} steps were refused, up to step 17") as caught:
        taken.extend(record.step for record in session.steps())
    assert "the weights are those of the last good step" in str(caught.value)
    assert "learning rate" in str(caught.value)
    assert taken == list(range(1, 17))
    assert isinstance(caught.value, ArithmeticError)


def test_the_latest_checkpoint_stays_finite_and_loads(session):
    session.trainer.model = Poisoned(session.model, set(range(8, 100)), np.inf)
    steps = session.steps()
    for _ in range(16):
        next(steps)
        arrays, meta = load_checkpoint(session.run.folder, LATEST)
        assert all_finite(arrays)
    with pytest.raises(TrainingError):
        next(steps)
    assert meta["step"] == 16
    assert meta["refused"] == REFUSALS - 1
    resumed = resume_session(session.run.folder)
    assert_same_bits(resumed.state.params, session.state.params)
    record = next(resumed.steps())  # the cause has gone: it goes on
    assert not record.refused
    assert record.step == 17


def test_a_weight_that_went_bad_in_memory_is_never_saved(session):
    steps = session.steps()
    for _ in range(3):
        next(steps)
    flatten(session.state.params)["embedding.tokens.table"][0, 0] = np.nan
    with pytest.raises(TrainingError, match=r"params\.embedding\.tokens\.table is not finite after step 4") as caught:
        list(steps)
    assert "it was not saved" in caught.value.fact
    arrays, meta = load_checkpoint(session.run.folder, LATEST)
    assert meta["step"] == 3
    assert all_finite(arrays)


def test_a_state_spread_over_devices_is_looked_at_before_it_is_saved_and_after_it_was_read(session, monkeypatch):
    next(session.steps())
    wrong: list[str | None] = ["params.w"]
    parts = SimpleNamespace(
        needed=True,
        latest=lambda folder: 7,
        load=lambda folder, specs: (session.state._replace(step=7), []),
        not_finite=lambda state: wrong[0],
        save=lambda folder, state: saved.append(state.step),
    )
    saved: list[int] = []
    monkeypatch.setattr(type(session.trainer), "parts", parts)
    with pytest.raises(TrainingError, match=r"params\.w is not finite after step 1, .* it was not saved"):
        session.save()
    with pytest.raises(CheckpointError, match=r"run cannot be gone on from: params\.w is not finite after step 7"):
        resume_session(session.run.folder)
    assert not saved
    wrong[0] = None
    session.save()
    assert saved == [1]


@pytest.mark.parametrize("wrong", [None, 0, 1])
def test_every_device_is_looked_at(jax, session, wrong):
    from glassformer.engines.jax.trainer import ShardedStates

    parts = [np.where(number == wrong, np.inf, np.ones(3)) for number in range(2)]
    shards = [SimpleNamespace(data=part, replica_id=0) for part in parts]
    copy = SimpleNamespace(data=np.full(3, np.nan), replica_id=1)  # which another device writes
    params = {"v": jax.numpy.ones(3), "n": np.int32(3), "w": SimpleNamespace(addressable_shards=[*shards, copy])}
    states = ShardedStates(SimpleNamespace(placement=SimpleNamespace(mesh=None)))
    assert states.not_finite(session.state._replace(params=params)) == (None if wrong is None else "params.w")


def test_a_checkpoint_that_is_not_finite_is_not_gone_on_from(session):
    next(session.steps())
    arrays, meta = load_checkpoint(session.run.folder, LATEST)
    flat = {name: np.array(array) for name, array in arrays.items()}
    name = next(name for name in flat if name.startswith("optimizer.") and flat[name].ndim == 2)
    flat[name][0, 0] = np.inf
    save_checkpoint(session.run.folder, LATEST, flat, meta)
    with pytest.raises(CheckpointError, match=f"{name} is not finite after step 1"):
        resume_session(session.run.folder)


def test_the_command_says_what_was_refused_and_goes_on(tmp_path, monkeypatch):
    from glassformer.models import Encoder

    original, calls = Encoder.loss_and_grads, []

    def poisoned(self, *args, **settings):
        loss, grads = original(self, *args, **settings)
        calls.append(loss)
        return (loss * np.nan if len(calls) == 3 else loss), grads

    monkeypatch.setattr(Encoder, "loss_and_grads", poisoned)
    result = command("train", "majority", *options("majority"), "--steps", 5, "--out", tmp_path / "run")
    assert result.code == 0
    assert "step 3 refused: its numbers are not finite (loss nan" in result.err
    assert "the weights are unchanged" in result.err
