"""A batch in shards: the loss and the gradients of the whole, the same bits every time."""

import json
from dataclasses import replace

import numpy as np
import pytest

from compare import assert_same
from glassformer import ops
from glassformer.config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from glassformer.core.dispatch import current, use_engine
from glassformer.core.errors import ConfigError
from glassformer.core.threads import at_most
from glassformer.core.tree import flatten, tree_map
from glassformer.engines.cpu.trainer import loss_and_grads, suitable_shards
from glassformer.models import Batch, build
from glassformer.ops import IGNORE
from glassformer.runs.folder import CONFIG
from glassformer.runs.run import open_run
from glassformer.runs.start import resume_session
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer
from proof_cases import MODEL_CASES
from runs import assert_same_bits, assert_same_run, edit_config, tiny_session

SIZES = {"vocab": 11, "width": 8, "heads": 2, "layers": 2, "context": 8}
CONFIGS = {
    "encoder": EncoderConfig(**SIZES, classes=3),
    "decoder": DecoderConfig(**SIZES),
    "encoder-decoder": EncoderDecoderConfig(**SIZES),
}
CASES = [
    case
    for case in MODEL_CASES
    if case.has_loss
    and case.batch.tokens.ndim == 2
    and "class_weights" not in case.settings
    and "key" not in case.settings
]


@pytest.fixture(autouse=True)
def two_cores():
    with at_most(2):
        yield


def make(name, rng, *, examples=5, dropout=0.0):
    """A model in float64 and a batch whose targets are ignored here and there, in the first sequences most."""
    config = CONFIGS[name]
    model = build(replace(config, dropout=dropout))
    params = tree_map(lambda p: p.astype(np.float64), model.init(0))
    tokens, targets, source = rng.integers(SIZES["vocab"], size=(3, examples, 6))
    mask = np.arange(6) < rng.integers(1, 7, size=(examples, 1))
    if name == "encoder":
        return model, params, Batch(tokens, np.where(np.arange(examples) == 1, IGNORE, targets[:, 0] % 3), mask)
    targets = np.where(rng.random((examples, 6)) < np.linspace(0.9, 0.1, examples)[:, None], IGNORE, targets)
    return model, params, Batch(tokens, targets, mask, source if name == "encoder-decoder" else None)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("shards", [2, 3, 5])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_shards_give_the_loss_and_the_gradients_of_the_whole(rng, name, shards, smoothing):
    model, params, batch = make(name, rng)
    have = loss_and_grads(model, params, batch, shards=shards, smoothing=smoothing)
    assert_same(have, model.loss_and_grads(params, batch, smoothing=smoothing))
    assert list(flatten(have[1])) == list(flatten(params))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shards_give_the_gradients_of_the_whole_for_every_kind_of_model(case):
    have = loss_and_grads(case.model, case.params, case.batch, shards=2, **case.settings)
    assert_same(have, case.model.loss_and_grads(case.params, case.batch, **case.settings))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_shard_without_any_target_counts_for_nothing(rng, name):
    model, params, batch = make(name, rng, examples=4)
    targets = batch.targets.copy()
    targets[:2] = IGNORE
    targets[3] = 1
    batch = batch._replace(targets=targets)
    assert_same(loss_and_grads(model, params, batch, shards=2), model.loss_and_grads(params, batch))


def test_where_no_target_counts_all_is_zero(rng):
    model, params, batch = make("decoder", rng)
    batch = batch._replace(targets=np.full_like(batch.targets, IGNORE))
    loss, grads = loss_and_grads(model, params, batch, shards=2)
    assert loss == 0
    assert all(not x.any() for x in flatten(grads).values())


@pytest.mark.parametrize("examples", [0, 1, 2])
def test_there_are_no_more_shards_than_sequences(rng, examples):
    model, params, batch = make("decoder", rng, examples=examples)
    assert_same(loss_and_grads(model, params, batch, shards=8), model.loss_and_grads(params, batch))


def test_a_sequence_is_not_cut_nothing_written_to_and_an_error_of_a_shard_is_that_of_the_step(rng):
    model, params, batch = make("decoder", rng)
    alone = Batch(batch.tokens[4], batch.targets[4])
    assert_same(loss_and_grads(model, params, alone, shards=2), model.loss_and_grads(params, alone))
    model, params, batch = make("decoder", rng)
    before = tree_map(np.copy, (params, batch))
    loss_and_grads(model, params, batch, shards=2)
    assert_same_bits((params, batch), before)
    model, params, batch = make("decoder", rng)
    with pytest.raises(ConfigError, match="the batch has no targets"):
        loss_and_grads(model, params, batch._replace(targets=None), shards=2)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_same_number_of_shards_gives_the_same_bits(rng, name, dropout):
    model, params, batch = make(name, rng, dropout=dropout)
    key = ops.new_key(3) if dropout else None
    first, *others = (loss_and_grads(model, params, batch, shards=3, key=key) for _ in range(4))
    for other in others:
        assert_same_bits(other, first)
    with at_most(1):  # however many cores there are to compute them
        assert_same_bits(loss_and_grads(model, params, batch, shards=3, key=key), first)


def test_every_shard_drops_by_a_key_of_its_own(rng):
    model, params, batch = make("decoder", rng, examples=4, dropout=0.5)
    batch = batch._replace(targets=np.ones_like(batch.targets))  # so that shards weigh the same
    key = ops.new_key(3)
    have = loss_and_grads(model, params, batch, shards=2, key=key)
    halves = [Batch(*(None if x is None else x[rows] for x in batch)) for rows in (slice(0, 2), slice(2, 4))]
    parts = [model.loss_and_grads(params, half, key=ops.fold_key(key, i)) for i, half in enumerate(halves)]
    assert_same(have, tree_map(lambda a, b: (a + b) / 2, *parts))


def test_a_large_step_has_one_shard_per_core_and_others_one(rng):
    model, params, batch = make("decoder", rng)
    trainer = Trainer(model, Recipe(shards=2))
    assert_same_bits(trainer.loss_and_grads(params, batch), model.loss_and_grads(params, batch))

    assert suitable_shards(LARGE, 8) == 2
    with at_most(4):
        assert suitable_shards(LARGE, 8) == 4
        assert suitable_shards(LARGE, 3) == 3  # no more than sequences

    assert suitable_shards(CONFIGS["decoder"], 32) == 1
    assert suitable_shards(LARGE, 1) == 1
    with at_most(1):
        assert suitable_shards(LARGE, 8) == 1
    for name, shards in (("cpu", 2), ("numpy", 1)):
        with use_engine(name):
            assert current().executor.shards(LARGE, 8) == shards


LARGE = DecoderConfig(vocab=256, width=384, heads=6, layers=6, context=256)


PLAN = {"steps": 8, "eval_every": 4, "save_every": 3, "dropout": 0.1, "ema": 0.9}


def finish(session):
    for _ in session.steps():
        pass
    return session


def stored(folder):
    return json.loads((folder / CONFIG).read_text(encoding="utf-8"))["recipe"]


def test_a_new_run_settles_on_a_number_of_shards_and_stores_it(tmp_path, monkeypatch):
    assert tiny_session("majority", tmp_path / "small").run.recipe.shards == stored(tmp_path / "small")["shards"] == 1
    monkeypatch.setattr(type(current().executor), "shards", lambda self, config, batch: batch)
    run = tiny_session("majority", tmp_path / "large", accumulate=2).run
    assert run.recipe.shards == stored(tmp_path / "large")["shards"] == 4  # half of a batch of 8 at a time
    assert open_run(tmp_path / "large").recipe.shards == 4


@pytest.mark.parametrize("task", ["majority", "lines", "dates"])
def test_a_run_in_shards_is_resumed_in_shards_bit_for_bit(task, tmp_path):
    whole = finish(tiny_session(task, tmp_path / "whole", **PLAN, shards=2))
    steps = tiny_session(task, tmp_path / "cut", **PLAN, shards=2).steps()
    for _ in range(5):
        next(steps)
    with at_most(4):  # on a machine that would have chosen otherwise
        resumed = resume_session(tmp_path / "cut")
        assert resumed.run.recipe.shards == 2
        finish(resumed)
    assert_same_run(tmp_path / "cut", whole.run.folder)


def test_shards_change_a_run_by_rounding_alone_and_a_run_from_before_them_goes_on_in_one_part(tmp_path):
    plan = {**PLAN, "dropout": 0.0}
    one, two = (finish(tiny_session("lines", tmp_path / str(n), **plan, shards=n)) for n in (1, 2))
    assert_same(two.state.params, one.state.params, 1e-4)
    session = tiny_session("majority", tmp_path / "run")
    edit_config(session.run.folder, lambda content: content["recipe"].pop("shards"))
    assert open_run(session.run.folder).recipe.shards is None
    next(resume_session(session.run.folder).steps())


@pytest.mark.parametrize("shards", [0, -1, "two"])
def test_a_number_of_shards_that_makes_no_sense_is_refused(tmp_path, shards):
    with pytest.raises(ConfigError, match="shards is"):
        tiny_session("majority", tmp_path / "run", shards=shards)
