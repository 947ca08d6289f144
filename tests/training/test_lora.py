"""LoRA: exact gradients, frozen weights, and adapters that merge into the weights and come out again."""

import re
from dataclasses import replace

import numpy as np
import pytest

from glassformer import ops
from glassformer.core.dispatch import use_engine
from glassformer.core.errors import ConfigError
from glassformer.core.tree import count, flatten, leaf, tree_map
from glassformer.layers import Block, Linear, register_block
from glassformer.models import Batch, build
from glassformer.proofs import lora_cases, prove, prove_case
from glassformer.training import Adapted, LoRA
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainable import Parametrization
from glassformer.training.trainer import Trainer, start
from runs import assert_same_bits

TOKENS = np.array([[1, 4, 1, 0, 7], [1, 1, 8, 3, 3]])
SETTINGS = {"vocab": 9, "width": 16, "heads": 4, "layers": 2, "context": 8, "dropout": 0.0}
MODELS = {"GPT-2": ("gpt2", {}), "Llama": ("llama-2-7b", {"feed_forward": 24, "kv_heads": 2})}


def model_and_params(name, dtype=np.float32):
    preset, settings = MODELS[name]
    model = build(preset, **SETTINGS, **settings)
    params = model.init(3, dtype)
    rng = np.random.default_rng(4)
    return model, tree_map(lambda x: (x + 0.1 * rng.standard_normal(x.shape)).astype(dtype), params)


def scattered(lora, params, dtype=np.float32):
    rng = np.random.default_rng(5)
    return tree_map(lambda x: (x + 0.2 * rng.standard_normal(x.shape)).astype(dtype), lora.init(params, 1, dtype))


def logits(model, params):
    return model.forward(params, TOKENS)[0]


@pytest.mark.parametrize("case", lora_cases(), ids=lambda case: case.name)
def test_gradients_are_exact_through_the_whole_model(case):
    check = prove_case(case)
    assert check.ok
    assert check.error <= 1e-11


def test_a_wrong_gradient_is_noticed(monkeypatch):
    right = LoRA.backward
    monkeypatch.setattr(LoRA, "backward", lambda *args: tree_map(lambda g: 1.001 * g, right(*args)))
    [row] = prove(lora_cases()[2:3])
    assert (row.name, row.ok) == ("LoRA", False)


def test_gradients_are_those_of_automatic_differentiation(jax):
    rng = np.random.default_rng(0)
    lora = LoRA(rank=2, alpha=5.0, targets=("w",))
    w, a, b, x, dy = (rng.standard_normal(shape) for shape in ((4, 3), (4, 2), (2, 3), (5, 4), (5, 3)))

    def function(adapters):
        return (x @ lora.merge({"w": w}, adapters)["w"] * dy).sum()

    adapters = {"w": {"a": jax.numpy.asarray(a), "b": jax.numpy.asarray(b)}}
    expected = jax.grad(function)(adapters)
    for name, grad in flatten(lora.backward(adapters, {"w": x.T @ dy})).items():
        np.testing.assert_allclose(grad, leaf(expected, name), rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_new_adapters_change_nothing(name):
    model, params = model_and_params(name)
    lora = LoRA(rank=3)
    merged = lora.merge(params, lora.init(params, 0))
    np.testing.assert_array_equal(logits(model, merged), logits(model, params))


@pytest.mark.parametrize("targets", [("*attention.query.w", "*attention.value.w"), ("*.w",), ("blocks.1.*.down.w",)])
@pytest.mark.parametrize("name", MODELS)
def test_only_targets_change_and_the_others_are_the_same_arrays(name, targets):
    _, params = model_and_params(name)
    before = tree_map(np.copy, params)
    lora = LoRA(rank=2, targets=targets)
    adapters = scattered(lora, params)
    merged = flatten(lora.merge(params, adapters))
    assert_same_bits(params, before)
    own = {key.rpartition(".")[0] for key in flatten(adapters)}
    for key, array in flatten(params).items():
        assert (merged[key] is array) == (key not in own)
    assert list(merged) == list(flatten(params))


@pytest.mark.parametrize("name", MODELS)
def test_a_merged_model_is_one_with_adapters_beside_its_weights(name, monkeypatch):
    model, params = model_and_params(name)
    lora = LoRA(rank=3, alpha=4.0, targets=("*attention.*.w", "*feed_forward.*.w"))
    adapters = scattered(lora, params)
    merged = logits(model, lora.merge(params, adapters))
    assert np.abs(merged - logits(model, params)).max() > 0.1

    right = Linear.forward

    def beside(self, own, x):
        y, saved = right(self, own, x)
        return (y + lora.scale * ((x @ own["a"]) @ own["b2"]), saved) if "a" in own else (y, saved)

    leaves = flatten(params)
    for key, array in flatten(adapters).items():
        matrix, _, part = key.rpartition(".")
        leaf(params, matrix.removesuffix(".w"))["b2" if part == "b" else "a"] = array
    monkeypatch.setattr(Linear, "forward", beside)
    unmerged = logits(model, params)
    assert len(flatten(params)) == len(leaves) + len(flatten(adapters))
    assert np.abs(merged - unmerged).max() <= 1e-6 * np.abs(unmerged).max()


def test_adapters_act_by_alpha_over_rank_and_first_values_follow_the_seed():
    params = {"w": np.zeros((3, 2), dtype=np.float32)}
    adapters = {"w": {"a": np.ones((3, 2), np.float32), "b": np.ones((2, 2), np.float32)}}
    merged = LoRA(rank=2, alpha=3.0, targets=("w",)).merge(params, adapters)
    np.testing.assert_array_equal(merged["w"], np.full((3, 2), 3.0))

    params = {"w": np.ones((4, 4), dtype=np.float16)}
    lora = LoRA(rank=1, targets=("w",))
    adapters = lora.init(params, 0)
    assert {array.dtype for array in flatten(adapters).values()} == {np.dtype(np.float32)}
    assert lora.merge(params, adapters)["w"].dtype == np.float16

    model, params = model_and_params("GPT-2")
    lora = LoRA(rank=4)
    first = lora.init(params, 7)
    assert_same_bits(lora.init(model.specs(), 7), first)
    for name, array in flatten(first).items():
        assert array.shape == ((16, 4) if name.endswith(".a") else (4, 16))
        assert array.any() == name.endswith(".a")
    assert count(first) == 2 * 2 * (16 * 4 + 4 * 16)
    assert not np.array_equal(flatten(first)["blocks.0.attention.query.w.a"], flatten(lora.init(params, 8)))


class Repeated:
    """The same batch at every step."""

    def batch(self, step, size, seed):
        return Batch(TOKENS, np.roll(TOKENS, -1, axis=1))


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_training_learns_with_frozen_weights(name, accumulate):
    model, params = model_and_params(name)
    before = tree_map(np.copy, params)
    frozen = tree_map(lambda x: x.setflags(write=False) or x, params)
    adapted = Adapted(frozen, LoRA(rank=4, targets=("*.w",)))
    recipe = Recipe(steps=60, batch=2, lr=5e-2, warmup=2, accumulate=accumulate, optimizer="adamw", ema=0.5)
    state = start(model, recipe, adapted.lora.init(params, 0))
    assert count(state.optimizer) == 2 * count(state.params) + 1
    steps = list(training_steps(Trainer(model, recipe, adapted), Repeated(), state))
    assert steps[-1][1].loss < 0.6 * steps[0][1].loss
    assert_same_bits(params, before)


def test_microbatches_of_adapters_are_one_large_batch():
    model, params = model_and_params("GPT-2", np.float64)
    lora = LoRA(rank=2)
    adapted, losses = Adapted(params, lora), []
    for parts in (1, 2):
        recipe = Recipe(steps=3, batch=2, accumulate=parts)
        state = start(model, recipe, scattered(lora, params, np.float64))
        *_, (state, record) = training_steps(Trainer(model, recipe, adapted), Repeated(), state)
        losses.append((record.loss, record.grad_norm))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank of LoRA is 0.*at least 1"),
        ({"rank": 2.5}, "rank of LoRA is 2.5"),
        ({"alpha": 0}, "alpha of LoRA is 0"),
        ({"alpha": float("inf")}, "alpha of LoRA is inf"),
        ({"targets": []}, "LoRA has no targets"),
        ({"targets": "query"}, "targets of LoRA is 'query'"),
        ({"rnak": 2}, "LoRA has no setting 'rnak'.*did you mean 'rank'"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=re.compile(message, re.DOTALL)):
        LoRA.from_dict(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"targets": ("blocks.*.attention.qurey.w",)},
            r"'blocks\.\*\.attention\.qurey\.w' of LoRA matches no.*did you mean 'blocks\.\*\.attention\.query\.w'",
        ),
        (
            {"targets": ("*attention.query.*",)},
            r"matches blocks\.0\.attention\.query\.b, which has shape \(16,\).*end the pattern in \.w",
        ),
        ({"rank": 17}, r"rank of LoRA is 17, but blocks\.0\.attention\.query\.w is a matrix of 16 × 16.*at most 16"),
    ],
)
def test_targets_must_be_matrices_that_exist(settings, message):
    model, _ = model_and_params("GPT-2")
    with pytest.raises(ConfigError, match=re.compile(message, re.DOTALL)):
        LoRA(**settings).init(model.specs())


def test_settings_come_back_from_json():
    lora = LoRA(rank=3, alpha=2.5, targets=("*.w", "*.table"))
    assert LoRA.from_dict(lora.to_dict()) == lora


TARGETS = [
    {"lora": LoRA(rank=2)},
    {"lora": LoRA(rank=2, targets=("*.w",))},
    {"lora": LoRA(rank=2, targets=("embedding.tokens.table", "blocks.1.*.w"))},
    {"lora": LoRA(rank=2), "parts": ("head",)},
    {"lora": None, "parts": ("final_norm",)},
]


def both_ways(model, params, parametrization, trained, xp, freeze=()):
    """Return the gradients of what is trained, without and with marks on what is not; what was made with marks."""
    params, trained = (tree_map(xp.asarray, tree) for tree in (params, trained))
    parametrization = replace(parametrization.over(None if parametrization.base is None else params), freeze=freeze)
    effective = parametrization.effective(trained)
    found = []
    for given in (effective, parametrization.marked(model, effective, trained)):
        _, grads = model.loss_and_grads(given, Batch(*(xp.asarray(x) for x in (TOKENS, np.roll(TOKENS, -1, axis=1)))))
        found.append(flatten(parametrization.pull_back(trained, grads)))
    return *found, flatten(grads)


@pytest.mark.parametrize("engine", ["numpy", "cpu", "jax"])
@pytest.mark.parametrize("settings", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_same_when_those_of_frozen_weights_are_not_made(name, settings, engine, jax):
    model, params = model_and_params(name, np.float64)
    adapted = Adapted(params, **settings)
    trained = tree_map(lambda x: x + 0.1, adapted.first(1))
    with use_engine(engine):
        whole, marked, made = both_ways(model, params, adapted, trained, jax.numpy if engine == "jax" else np)
    assert list(marked) == list(whole) == list(flatten(trained))
    for key, grad in whole.items():
        np.testing.assert_allclose(marked[key], grad, rtol=1e-10, atol=1e-13)
    wanted = {key.removesuffix(".a").removesuffix(".b") for key in whole}
    assert not [key for key in made if key.endswith((".w", ".table")) and key not in wanted]


@pytest.mark.parametrize("preset", ["gpt2", "bert-base", "t5-small", "t5-v1.1-small"])
@pytest.mark.parametrize("freeze", [("embedding",), ("*.w",), ("*blocks.0", "*table")])
def test_freezing_makes_no_gradients_of_matrices_and_changes_no_other(preset, freeze):
    settings = {"vocab": 9, "width": 16, "heads": 4, "layers": 2, "context": 8, "dropout": 0.0, "feed_forward": 24}
    model = build(preset, **settings, **({} if preset[0] in "bg" else {"head_width": 4}))
    params = model.init(3, np.float64)
    batch = Batch(TOKENS, np.roll(TOKENS, -1, axis=1), source=TOKENS if preset[0] == "t" else None)
    own = Parametrization(freeze=freeze)
    marked = own.marked(model, params, params)
    whole, grads = (flatten(model.loss_and_grads(tree, batch)[1]) for tree in (params, marked))
    kept = flatten(own.moving(whole))
    assert {key for key in grads if key.endswith((".w", ".tokens.table"))} <= kept.keys()
    for key, grad in kept.items():
        np.testing.assert_allclose(grads[key], grad, rtol=1e-10, atol=1e-13)


def test_a_backward_pass_of_ones_own_is_given_all_and_counts(monkeypatch):
    model, params = model_and_params("GPT-2", np.float64)
    lora = LoRA(rank=2)
    adapted, adapters = Adapted(params, lora), scattered(lora, params, np.float64)
    right, _, _ = both_ways(model, params, adapted, adapters, np)
    written = ops.linear_backward

    def doubled(dy, saved):
        dx, dw, db = written(dy, saved)
        return dx, 2 * dw, db

    monkeypatch.setattr(ops, "linear_backward", doubled)
    _, twice, made = both_ways(model, params, adapted, adapters, np)
    assert made.keys() == flatten(params).keys()
    for key, grad in right.items():
        np.testing.assert_allclose(twice[key], 2 * grad, rtol=1e-10)


def test_a_block_of_ones_own_is_given_all_gradients():
    class Halved(Block):
        def backward(self, params, saved, dy):
            read, grads = super().backward(params, saved, dy)
            grads["feed_forward"]["up"]["w"] = grads["feed_forward"]["up"]["w"] / 2
            return read, grads

    register_block("halved", Halved)
    model = build("gpt2", **SETTINGS, block="halved")
    params = model.init(3, np.float64)
    lora = LoRA(rank=2, targets=("*.up.w",))
    adapters = scattered(lora, params, np.float64)
    whole, marked, _ = both_ways(model, params, Adapted(params, lora), adapters, np)
    assert_same_bits(marked, whole)
