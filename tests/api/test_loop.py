"""A loop of one's own around the steps: it can be left, goes on where it was, and gives the threads back."""

import copy
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import glassformer as gf
from glassformer.core import registry, threads
from glassformer.core.errors import CheckpointError, ConfigError, DataError
from runs import TINY, assert_same_bits, assert_same_run

SMALL = {**TINY["majority"], "steps": 6, "eval_every": 2}


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["internal_api"] == "openblas"]


def test_left_and_taken_up_again_it_has_the_bits_of_one_that_was_not():
    loop = gf.Loop("majority", **SMALL)
    for record in loop:
        if record.step == 3:
            break
    half = loop.now
    rest = [record.step for record in loop]
    assert rest == [4, 5, 6]
    assert len(half.history) == 3
    whole = gf.train("majority", **SMALL, show=False)
    assert_same_bits(loop.best.params, whole.params)
    assert loop.history.loss.tolist() == whole.history.loss.tolist()


def test_a_model_taken_out_stays_as_it_is_and_the_best_one_has_the_lowest_validation_loss():
    loop = gf.Loop("majority", **SMALL)
    for record in loop:
        if record.step == 1:
            taken = loop.now
            before = gf.tree.tree_map(np.array, taken.params)
    assert_same_bits(taken.params, before)
    after = gf.tree.flatten(loop.now.params)
    assert any((array != after[name]).any() for name, array in gf.tree.flatten(taken.params).items())

    loop = gf.Loop("majority", **SMALL, lr=0.3, warmup=0)
    list(loop)
    assert np.isclose(loop.best.evaluate().loss, loop.history.val_loss.min())

    loop = gf.Loop("majority", **{**SMALL, "eval_every": 100})
    next(iter(loop))
    assert_same_bits(loop.best.params, loop.now.params)


def test_threads_of_products_are_few_while_a_step_is_taken_and_as_before_in_between(monkeypatch):
    loop, seen = gf.Loop("majority", **SMALL), []
    trainer = loop.session.trainer
    step = trainer.step

    def noted(*arguments, **settings):
        seen.append(set(blas_threads()))
        return step(*arguments, **settings)

    monkeypatch.setattr(trainer, "step", noted)
    threads._libraries.cache_clear()  # another test may have loaded one since they were counted
    with threadpool_limits(2, user_api="blas"):
        left = iter(loop)
        next(left)  # never taken up again
        assert set(blas_threads()) == {2}
    assert seen == [{1}]


class Louder(gf.Decoder):
    """A decoder whose loss is ten times as large."""

    def loss_and_grads(self, params, batch, **settings):
        loss, grads = super().loss_and_grads(params, batch, **settings)
        return 10 * loss, grads


def test_a_model_of_ones_own_class_or_execution_is_trained_as_it_is(tmp_path):
    tokens, base = np.random.default_rng(0).integers(0, 50, (32, 9)), gf.build("tiny-decoder")
    own, params = Louder(base.config, base.execution), base.init(0)
    plain, louder = (gf.Loop(tokens, model, steps=2, batch=8, params=params) for model in (base, own))
    assert np.isclose(next(iter(louder)).loss, 10 * next(iter(plain)).loss)
    assert isinstance(louder.now.model, Louder)
    with pytest.raises(ConfigError, match="does not know the class Louder"):
        gf.train("counting", own, out=tmp_path / "run", show=False)

    execution = gf.Execution(tile=4, remat=True)
    loop = gf.Loop(np.zeros((16, 9), int), gf.build("tiny-decoder", execution), steps=1, batch=8)
    assert loop.session.model.execution == execution
    with pytest.raises(ConfigError, match="settings of the engine jax"):
        gf.Loop(np.zeros((16, 9), int), gf.build("tiny-decoder", gf.Execution(scan=True)), steps=1, batch=8)


def test_what_would_change_nothing_is_refused_and_the_last_parameters_are_kept_on_demand():
    loop = gf.Loop("majority", **SMALL)
    with pytest.raises(AttributeError):
        loop.lr = 0.5
    with pytest.raises(ValueError, match="read-only"):
        loop.now.params["embedding"]["tokens"]["table"][:] = 0

    loop = gf.Loop("majority", **{**SMALL, "lr": 0.3, "warmup": 0}, keep="last")
    list(loop)
    assert_same_bits(loop.best.params, loop.now.params)


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_frozen_parameters_keep_their_bits_and_the_others_move(engine, optimizer):
    settings = {**SMALL, "layers": 2, "optimizer": optimizer, "weight_decay": 0.1, "ema": 0.9}
    with gf.use_engine(engine):
        loop = gf.Loop("majority", **settings, freeze=["embedding", "blocks.0.*"])
        before = gf.tree.flatten(loop.now.params)
        list(loop)
    for name, array in gf.tree.flatten(loop.now.params).items():
        assert (array == before[name]).all() == name.startswith(("embedding.", "blocks.0.")), name


def test_a_run_with_frozen_parameters_continues_to_the_same_bits(tmp_path):
    settings = {**SMALL, "layers": 2, "freeze": ["blocks.1"], "save_every": 2}
    for record in gf.Loop("majority", **settings, out=tmp_path / "run"):
        if record.step == 3:
            break
    whole = gf.train("majority", **settings, show=False)
    assert_same_bits(gf.resume(tmp_path / "run", show=False).params, whole.params)


def test_what_cannot_be_frozen_is_refused(tmp_path):
    for freeze, message in {
        ("embeding",): "embedding",
        ("blocks.7.*",): "matches no parameter",
        ("*",): "no parameter to train",
        (3,): "list of texts",
    }.items():
        with pytest.raises(ConfigError, match=message):
            gf.Loop("majority", **SMALL, freeze=list(freeze), out=tmp_path / "run")
    trained = gf.train("majority", **SMALL, show=False)
    with pytest.raises(ConfigError, match="LoRA freezes"):
        gf.Loop("majority", trained, lora=2, freeze="embedding")
    execution = gf.Execution(scan=True)
    with pytest.raises(ConfigError, match="in 1 of 2 blocks"):
        gf.Loop("majority", **{**SMALL, "layers": 2}, freeze="blocks.0", execution=execution)
    assert not (tmp_path / "run").exists()


@dataclass(frozen=True)
class SignDescent(gf.training.Optimizer):
    """Every number moves by lr."""

    def slots(self, name, p):
        return ()

    def move(self, name, p, g, memory, *scalars):
        return p - scalars[0] * p.__array_namespace__().sign(g), {}


def halving(step):
    return 0.5**step


def squared(logits, targets):
    """Half of the squared distance between the logits and the one-hot targets, in the mean over those that count."""
    xp = logits.__array_namespace__()
    counted = (targets != gf.ops.IGNORE)[..., None]
    away = counted * (logits - (targets[..., None] == xp.arange(logits.shape[-1])))
    return (away * away).sum() / (2 * counted.sum()), (away, counted.sum())


def squared_backward(dloss, saved):
    away, count = saved
    return (dloss / count * away).astype(away.dtype)


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
def test_an_optimizer_a_schedule_and_a_loss_of_ones_own(engine):
    recipe = {"optimizer": SignDescent, "schedule": halving, "loss": (squared, squared_backward)}
    with gf.use_engine(engine):
        loop = gf.Loop("majority", **{**SMALL, "lr": 0.01}, warmup=0, keep="last", **recipe)
        before, data, model = loop.now.params, loop.session.task, loop.now.model
        first, *rest = list(loop)
    logits, _ = model.predict(before, data.train.batch(0, loop.session.run.recipe.batch, 0))
    targets = data.train.batch(0, loop.session.run.recipe.batch, 0).targets
    assert np.isclose(first.loss, squared(logits, targets)[0], rtol=1e-4)
    assert [record.lr for record in (first, *rest)] == [0.01 * 0.5**step for step in range(6)]
    moved = gf.tree.flatten(loop.now.params)["classifier.w"] - gf.tree.flatten(before)["classifier.w"]
    assert np.abs(moved).max() < 0.0201
    held, _ = model.predict(loop.now.params, next(data.held_out.batches(10_000)))
    expected, _ = squared(np.asarray(held), next(data.held_out.batches(10_000)).targets)
    assert np.isclose(rest[-1].evaluation.loss, expected, rtol=1e-4)


def test_gradients_of_a_loss_of_ones_own_are_those_of_cross_entropy_where_it_is_the_same():
    pair = gf.ops.cross_entropy, gf.ops.cross_entropy_backward
    gf.register_loss("the_same", *pair)
    one, other = (gf.train("majority", **SMALL, **own, show=False) for own in ({}, {"loss": "the_same"}))
    assert_same_bits(one.params, other.params)


def test_parts_of_a_recipe_that_cannot_be_used_are_refused(tmp_path):
    for name, value, message in [
        ("optimizer", gf.training.AdamW(), "no class of optimizers"),
        ("schedule", 3, "cannot be called"),
        ("loss", squared, "a pair of functions"),
        ("loss", "focal", "there is no loss 'focal'"),
        ("schedule", lambda step: 1.0, "the name of a part"),
    ]:
        with pytest.raises(ConfigError, match=message):
            gf.Loop("majority", **{**SMALL, name: value})
    with pytest.raises(ConfigError, match="squared has no label_smoothing"):
        gf.Loop("majority", **SMALL, loss=(squared, squared_backward), label_smoothing=0.1)


def test_a_run_names_the_part_that_is_not_registered_here(tmp_path, monkeypatch):
    gf.train("majority", **SMALL, schedule=halving, out=tmp_path / "run", show=False)
    assert len(gf.resume(tmp_path / "run", steps=8, show=False).history) == 8
    monkeypatch.delitem(registry._own["schedule"], "halving")
    with pytest.raises(CheckpointError, match=r"gf.register_schedule\(\"halving\", function\)"):
        gf.load(tmp_path / "run")


def drawn(count, size=8):
    rng = np.random.default_rng(0)
    for _ in range(count):
        tokens = rng.integers(0, 50, (size, 9))
        yield gf.Batch(tokens[:, :-1], tokens[:, 1:])


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
def test_the_batches_of_a_generator_are_used_one_after_the_other(engine):
    held = next(drawn(1))
    with gf.use_engine(engine):
        loop = gf.Loop(drawn(4), gf.build("tiny-decoder"), steps=5, validation=held)
        params, model = loop.now.params, loop.now.model
        next(iter(loop))
        with pytest.raises(DataError, match="ended after 4 steps"):
            list(loop)
    assert len(loop.history) == 4
    assert np.isclose(loop.history.loss[0], model.loss(params, next(drawn(1))), rtol=1e-4)
    copy.deepcopy(loop.now)
    trained = gf.train(drawn(2), loop.now, steps=2, validation=held, show=False)
    assert len(trained.history) == 2


def test_a_generator_that_cannot_be_used_is_refused_and_callbacks_get_the_record_of_each_step(tmp_path):
    model, held = gf.build("tiny-decoder"), next(drawn(1))
    with pytest.raises(ConfigError, match="validation"):
        gf.Loop(drawn(3), model)
    with pytest.raises(ConfigError, match="remembers its data"):
        gf.Loop(drawn(3), model, validation=held, out=tmp_path / "run")
    with pytest.raises(DataError, match="8 examples instead of 4"):
        gf.Loop(drawn(3), model, validation=held, batch=4)
    with pytest.raises(DataError, match="cannot be trained on"):
        gf.Loop(iter(["a"]), model, validation=held)

    seen = []
    model = gf.train("majority", **SMALL, callbacks=[seen.append], show=False)
    assert [record.step for record in seen] == model.history.step.tolist()


@pytest.mark.parametrize("engine", ["cpu", "jax"])
def test_the_training_accuracy_is_that_of_the_batch_of_the_step(engine, tmp_path):
    with gf.use_engine(engine):
        loop = gf.Loop("majority", **SMALL, keep="last", out=tmp_path / "run")
        list(loop)
    recipe, data = loop.session.run.recipe, loop.session.task.train
    batch = data.batch(5, recipe.batch, recipe.seed)
    logits, _ = loop.now.model.predict(loop.now.params, batch)
    assert loop.history.train_accuracy.shape == (3,)
    assert np.isclose(loop.history.train_accuracy[-1], (logits.argmax(-1) == batch.targets).mean())


PLAN = {**TINY["majority"], "steps": 6, "eval_every": 2, "save_every": 2}


def test_a_resumed_run_ends_with_the_same_bits_as_one_never_interrupted_also_past_its_end(tmp_path):
    gf.train("majority", out=tmp_path / "whole", show=False, **PLAN)
    list(itertools.islice(gf.Loop("majority", out=tmp_path / "cut", **PLAN), 3))
    model = gf.resume(tmp_path / "cut", show=False)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    assert len(model.history) == 6
    assert model.classify(["0" * 8])

    gf.train("majority", out=tmp_path / "run", show=False, **PLAN)
    assert [record.step for record in gf.Loop.resume(tmp_path / "run", steps=8)] == [7, 8]
    with pytest.raises(ConfigError, match="has taken 8 steps already"):
        gf.Loop.resume(tmp_path / "run", steps=8)
