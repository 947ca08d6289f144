"""LoRA under JAX: the steps of the NumPy loop over a frozen model, and runs that start from one."""

import itertools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from devices import answer
from devices import start as start_script
from engines.jax.adapt_on_devices import DECODER, EVERYWHERE, RECIPE, TEXT, scattered
from glassformer.config import config_from_dict
from glassformer.core.dispatch import set_engine, use_engine
from glassformer.core.errors import ConfigError
from glassformer.core.execution import Execution
from glassformer.core.tree import count, flatten, tree_map
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.models import build
from glassformer.runs.run import read_base
from glassformer.runs.start import new_session, resume_session
from glassformer.training import Adapted, LoRA, load_checkpoint
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer, start
from runs import PROSE, assert_same_bits, assert_same_run, command, tiny_session, untimed

pytestmark = pytest.mark.usefixtures("unseen_figures")

HERE = Path(__file__).parent
PLAN = {"steps": 10, "eval_every": 4, "save_every": 3, "warmup": 2, "lr": 0.02, "batch": 4, "ema": 0.5}
ADAPTERS = {"lora_rank": 2, "lora_targets": "*attention.*.w,*.table"}


class Way(NamedTuple):
    """One way to train adapters."""

    kind: type
    limit: float
    execution: Execution
    recipe: dict
    lora: LoRA = EVERYWHERE


WAYS = {
    "float64": Way(np.float64, 1e-10, Execution(), {"accumulate": 2, "ema": 0.7}),
    "float64, loop": Way(np.float64, 1e-10, Execution(scan=True, remat=True), {"weight_decay": 0.5}),
    "float64, one block": Way(np.float64, 1e-10, Execution(), {}, LoRA(rank=1, targets=("blocks.1.*.down.w",))),
    "bfloat16": Way(np.float32, 2e-2, Execution(precision="bfloat16"), {}, LoRA(rank=2)),
    "float16, loop": Way(np.float32, 2e-3, Execution(precision="float16", scan=True), {"accumulate": 2}, LoRA(rank=2)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_ten_steps_are_those_of_numpy_and_the_base_stays_as_it_is(jax, way):
    model, recipe = build(config_from_dict(DECODER)), Recipe(**{**RECIPE, "steps": 10, **way.recipe})
    base = tree_map(lambda x: x.astype(way.kind), model.init(1))
    before, first = tree_map(np.copy, base), scattered(way.lora, base)
    with use_engine("numpy"):
        state = start(model, recipe, tree_map(np.copy, first))
        *_, (last, _) = expected = list(training_steps(Trainer(model, recipe, Adapted(base, way.lora)), TEXT, state))
    with jax.enable_x64(way.kind is np.float64):
        training = JaxTrainer(model, recipe, way.execution, Adapted(base, way.lora))
        state = training.put(start(model, recipe, first))
        assert count(state.optimizer) == 2 * count(first) + 1
        *_, (state, _) = found = list(training_steps(training, TEXT, state))
        back = training.take(state)
        assert_same_bits(training.fetch(training.parametrization.base), before)
    for (_, record), (_, other) in zip(expected, found, strict=True):
        assert abs(other.loss - record.loss) <= way.limit * record.loss, f"step {record.step}"
        assert abs(other.grad_norm - record.grad_norm) <= 10 * way.limit * record.grad_norm, f"step {record.step}"
        assert not other.refused
    assert flatten(back.params).keys() == flatten(last.params).keys()
    if way.kind is np.float64:
        for name, x in flatten({"params": last.params, "optimizer": last.optimizer, "ema": last.ema}).items():
            have = flatten({"params": back.params, "optimizer": back.optimizer, "ema": back.ema})[name]
            np.testing.assert_allclose(have, x, rtol=1e-8, atol=1e-10, err_msg=name)


def test_an_evaluation_sees_merged_weights_and_copies_no_others(jax):
    model, recipe = build(config_from_dict(DECODER)), Recipe(**{**RECIPE, "steps": 2, "eval_every": 2})
    base = model.init(1)
    seen = []

    def evaluate(params):
        seen.append(params)
        return training.evaluate(params, TEXT, metric="none")

    training = JaxTrainer(model, recipe, Execution(), Adapted(base, LoRA(rank=2)))
    state = training.put(start(model, recipe, scattered(LoRA(rank=2), base)))
    [*_, (state, record)] = training_steps(training, TEXT, state, evaluate=evaluate)
    assert np.isfinite(record.evaluation.loss)
    merged = flatten(LoRA(rank=2).merge(base, training.fetch(state.params)))
    kept = flatten(training.parametrization.base)
    for name, x in flatten(seen[0]).items():
        np.testing.assert_allclose(x, merged[name], rtol=1e-6, atol=1e-7)
        same = x.unsafe_buffer_pointer() == kept[name].unsafe_buffer_pointer()
        assert same == (not name.endswith(("query.w", "value.w"))), name


def test_targets_of_some_blocks_cannot_be_a_loop():
    specs = build(config_from_dict(DECODER)).specs()
    EVERYWHERE.check_alike(specs)
    with pytest.raises(ConfigError, match=r"blocks\.\*\.attention\.query\.w in 1 of 2 blocks(.|\n)*leave out --scan"):
        LoRA(rank=1, targets=("blocks.0.attention.query.w",)).check_alike(specs)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "run"
    for _ in tiny_session("text", folder, steps=4, eval_every=2, layers=2).steps():
        pass
    return folder


@pytest.fixture(scope="module")
def prose(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "prose.txt"
    path.write_text(PROSE, encoding="utf-8")
    return path


def start_session(base, prose, folder, execution, **settings):
    pairs = {**PLAN, **ADAPTERS, **settings}
    return new_session(
        "text", folder, source=str(base), adapters=True, data=str(prose), settings=pairs, execution=execution
    )


def finish(session):
    for _ in session.steps():
        pass
    return session


@pytest.fixture(scope="module")
def whole(jax, base, prose, tmp_path_factory):
    """A finished run in bfloat16, the blocks as a loop."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return finish(start_session(base, prose, folder, Execution(precision="bfloat16", scan=True)))


def test_a_run_leaves_adapters_that_every_engine_reads(whole, base):
    arrays, meta = load_checkpoint(whole.run.folder, "latest")
    assert meta["step"] == 10
    names = {name for name in arrays if name.startswith("params.")}
    assert {"params.blocks.1.attention.query.w.a", "params.embedding.tokens.table.b"} <= names
    assert all(name.endswith((".a", ".b")) for name in names)
    merged, before = whole.trained.params, read_base(str(base)).params
    assert not np.array_equal(merged["embedding"]["tokens"]["table"], before["embedding"]["tokens"]["table"])
    assert_same_bits(merged["blocks"][0]["feed_forward"], before["blocks"][0]["feed_forward"])
    best = min(line["val_loss"] for line in whole.run.metrics() if "val_loss" in line)
    assert best < whole.run.metrics()[0]["loss"]
    set_engine("numpy")
    result = command("eval", whole.run.folder, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["val_loss"] == pytest.approx(best, rel=2e-2)
    assert whole.test(whole.load_params()).loss == pytest.approx(best, rel=1e-3)


def test_resumed_is_uninterrupted(whole, base, prose, tmp_path):
    session = start_session(base, prose, tmp_path / "cut", whole.run.execution)
    for _ in itertools.islice(session.steps(), 5):
        pass  # ended without a word, between two checkpoints
    assert_same_run(finish(resume_session(tmp_path / "cut")).run.folder, whole.run.folder)


def test_the_command_trains_as_numpy_does_and_resumes(base, prose, tmp_path):
    with use_engine("numpy"):
        plain = finish(start_session(base, prose, tmp_path / "numpy", None))
    pairs = [part for name, value in {**PLAN, **ADAPTERS}.items() for part in ("--set", f"{name}={value}")]
    args = ["train", "text", "--from", base, "--lora", "--data", prose, *pairs, "--json"]
    result = command(*args, "--engine", "jax", "--out", tmp_path / "jax")
    assert result.code == 0, result.err
    assert json.loads(result.out)["trained_parameters"] == count(plain.state.params)
    for line, other in zip(untimed(plain.run.folder), untimed(tmp_path / "jax"), strict=True):
        assert other == pytest.approx(line, rel=1e-5)
    set_engine("cpu")
    again = command("train", "--resume", tmp_path / "jax", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["val_loss"] == json.loads(result.out)["val_loss"]


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    return answer(start_script(HERE / "adapt_on_devices.py", tmp_path_factory.mktemp("run"), devices=4))


def test_four_devices_train_adapters_as_one_with_split_weights_and_whole_adapters(spread):
    model, recipe = build(config_from_dict(DECODER)), Recipe(**RECIPE)
    base = model.init(1)
    with use_engine("numpy"):
        state = start(model, recipe, scattered(EVERYWHERE, base))
        steps = training_steps(Trainer(model, recipe, Adapted(base, EVERYWHERE)), TEXT, state)
        losses = [record.loss for _, record in steps]
    np.testing.assert_allclose(spread["losses"], losses, rtol=1e-5)
    np.testing.assert_allclose(spread["again"], losses[-len(spread["again"]) :], rtol=1e-5)

    assert spread["base"]["blocks.attention.query.w"] == 4
    assert spread["merged"]["blocks.attention.query.w"] == 4
    assert set(spread["adapters"].values()) == {1}
