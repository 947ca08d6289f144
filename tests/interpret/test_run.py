"""Runs with changes against the same model in PyTorch, its intermediate values changed there by plain hooks."""

import re
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, LengthError, ShapeError
from glassformer.core.quantized import quantize
from glassformer.core.tree import flatten
from glassformer.interpret import (
    add,
    batched_interventions,
    freeze,
    gradients,
    mean,
    put,
    resample,
    scale,
    scale_gradient,
    stop,
    take,
    unpacked,
    watch,
    zero,
)
from glassformer.interpret.names import MASK, axes_of

SIZES = {"width": 8, "heads": 2, "layers": 2, "context": 8}
MODELS = {
    "decoder": gf.DecoderConfig(vocab=7, **SIZES),
    "decoder, Llama": gf.DecoderConfig(
        vocab=7, **SIZES, positions="rotary", norm="rms", gated=True, activation="silu", kv_heads=1,
        attention_bias=False,
    ),
    "decoder, post": gf.DecoderConfig(vocab=7, **SIZES, norm_position="post", tied_head=False, head_bias=True),
    "encoder": gf.EncoderConfig(vocab=7, classes=3, pooling="cls", positions="sinusoidal", **SIZES),
    "encoder, BERT": gf.EncoderConfig(
        vocab=7, head="tokens", pooling="first", norm_position="post", embedding_norm=True, segments=2, **SIZES
    ),
    "encoder, mean": gf.EncoderConfig(vocab=7, classes=3, pooling="mean", positions="alibi", **SIZES),
    "encoder-decoder": gf.EncoderDecoderConfig(vocab=7, source_vocab=9, encoder_layers=1, **SIZES),
    "encoder-decoder, T5": gf.EncoderDecoderConfig(
        vocab=7, **SIZES, positions="relative", norm="rms", activation="relu", shared_embedding=True, head_scale=True,
        tied_head=True,         attention_bias=False, feed_forward_bias=False, scale_scores=False,
    ),
}  # fmt: skip
MASKED = np.array([[True] * 5, [True] * 3 + [False] * 2])
ROUNDS = 63  # for each of the eight models: 504 sets of changes in all


def watched(name, rng, *, seed=0):
    """A run of a model with every parameter drawn, so that no bias is zero."""
    config = MODELS[name]
    model = gf.build(config)
    params = flatten(model.init(0, np.float64))
    params = {key: x + 0.1 * rng.standard_normal(x.shape) for key, x in params.items()}
    tokens = np.random.default_rng(seed).integers(0, 7, (2, 6))
    targets = tokens[:, 0] % 3 if config.architecture == "encoder" and config.head == "classes" else tokens[:, 1:]
    batch = gf.Batch(tokens[:, :-1], targets, MASKED)
    if config.architecture == "encoder-decoder":
        batch = batch._replace(source=tokens[:, 1:5], source_mask=np.array([[True] * 4, [True] * 2 + [False] * 2]))
    return watch(model, gf.tree.rebuilt(model.specs(), params), batch)


class Hooks:
    """PyTorch's own run of the same thing, with the same changes made to its tensors."""

    def __init__(self, run):
        from torch_twin import F, Twin, torch

        self.torch, self.run, self.seen = torch, run, {}
        params = {name: torch.tensor(x, requires_grad=True) for name, x in flatten(run.params).items()}
        self.params = params
        self.logits = Twin(run.model.config, params, {}, self.point).logits(run.batch)
        targets = torch.tensor(run.batch.targets)
        self.loss = F.cross_entropy(self.logits.reshape(-1, self.logits.shape[-1]), targets.reshape(-1))

    def point(self, name, x):
        address = self.run.addresses.get(name)
        if address is None or address in self.seen:
            return x
        for change in self.run.changes:
            if self.run.addresses.get(change.name) == address:
                x = self.changed(x, change)
        if x.is_floating_point():
            x.retain_grad() if x.requires_grad else x.requires_grad_()
        self.seen[address] = x
        return x

    def changed(self, x, change):
        index = tuple(map(self.torch.tensor, change.where.index(change.name, tuple(x.shape), self.run.heads)))
        if change.word == "freeze":
            value = self.run.plain[change.name]
        else:
            value = change.value
        value = self.torch.tensor(np.asarray(value))
        value = value.expand(x.shape)[index] if change.whole else value.expand(x[index].shape)
        y = x.clone()
        y[index] = value.to(x.dtype) if change.factor == 0 else change.factor * x[index] + value
        return y


def drawn(run, other, rng):
    """A change of any kind to any value, at some of its entries."""
    name = str(rng.choice(list(run)))
    shape = run[name].shape
    where = {}
    for axis, size in zip(axes_of(name, len(shape)), shape, strict=True):
        if size > 1 and rng.random() < 0.4:
            where[axis] = rng.choice([int(rng.integers(size)), -1]).item() if rng.random() < 0.7 else slice(0, size, 2)
    if name.endswith("attention.output.x") and "feature" not in where and rng.random() < 0.5:
        where["head"] = int(rng.integers(run.heads))
    if name.endswith(MASK):
        return put(name, bool(rng.integers(2)), **where)
    kinds = [
        lambda: put(name, float(rng.standard_normal()), **where),
        lambda: zero(name, **where),
        lambda: scale(name, 1.5, **where),
        lambda: add(name, float(rng.standard_normal()), **where),
        lambda: take(name, other, **where),
        lambda: mean(name, [run, other], **where),
        lambda: resample(name, run, [1, 0], **where) if "example" in axes_of(name, len(shape)) else zero(name, **where),
        lambda: freeze(name, **where),
    ]
    return kinds[rng.integers(len(kinds))]()


@pytest.mark.parametrize("name", MODELS)
def test_changed_runs_equal_hooks_in_pytorch(name, rng, torch):
    run, other = watched(name, rng), watched(name, rng, seed=1)
    for _ in range(ROUNDS):
        changes = [drawn(run, other, rng) for _ in range(rng.integers(1, 5))]
        changed = run.changed(*changes)
        with torch.no_grad():
            expected = Hooks(changed).logits.numpy()
        error = np.abs(changed.logits - expected).max() / max(np.abs(expected).max(), 1)
        assert error <= 1e-12, [(c.word, c.name) for c in changes]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_all_values_equal_pytorch(name, rng, torch):
    run, other = watched(name, rng), watched(name, rng, seed=1)
    for count in (0, 1, 2, 3):
        changed = run.changed(*(drawn(run, other, rng) for _ in range(count)))
        ours, hooks = gradients(changed), Hooks(changed)
        hooks.loss.backward()
        missing = {own for own in run if own not in ours}
        assert all(own.endswith((MASK, "cos", "sin")) for own in missing)
        for own in ours:
            tensor = hooks.seen[run.addresses[own]]
            expected = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
            np.testing.assert_allclose(ours[own], expected, rtol=1e-11, atol=1e-11, err_msg=own)
        for own, gradient in flatten(ours.params).items():
            grad = hooks.params[own].grad
            expected = np.zeros(gradient.shape) if grad is None else grad.numpy()
            np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-11, err_msg=own)


def test_many_changes_at_once_equal_one_by_one(rng):
    for name in MODELS:
        run = watched(name, rng)
        other = watched(name, rng, seed=1)
        shared = ("positions", "bias")  # no axis of examples: the same for all variants
        sets = []
        while len(sets) < 12:
            changes = [drawn(run, other, rng) for _ in range(rng.integers(1, 3))]
            if not any(change.name.endswith(shared) for change in changes):
                sets.append(changes)
        together = batched_interventions(run, sets, lambda _, logits: logits, memory=1 << 16)
        for changes, logits in zip(sets, together, strict=True):
            np.testing.assert_allclose(logits, run.changed(*changes).logits, rtol=1e-12, atol=1e-12)


def test_blocks_before_the_first_change_are_not_run_again_and_nothing_is_changed_in_place(rng):
    run = watched("decoder", rng)
    changed = run.changed(zero("blocks.1.feed_forward"))
    assert changed.calls[1].result is run.calls[1].result
    assert changed["blocks.0.attention.attend.weights"] is run["blocks.0.attention.attend.weights"]
    assert changed["blocks.1"] is not run["blocks.1"]

    run = watched("encoder-decoder", rng)
    before = {name: run[name].copy() for name in run}
    params = {name: x.copy() for name, x in flatten(run.params).items()}
    tokens = run.batch.tokens.copy()
    for change in (scale("decoder.blocks.0", 3.0), add("embedding.tokens.table", 1.0), put("tokens", 2, position=1)):
        assert not np.array_equal(run.changed(change).logits, run.logits)
    gradients(run)
    assert all(np.array_equal(run[name], before[name]) for name in run)
    assert all(np.array_equal(x, params[name]) for name, x in flatten(run.params).items())
    assert np.array_equal(run.batch.tokens, tokens)


@pytest.mark.usefixtures("numpy_engine")
def test_parameters_in_blocks_are_unpacked_and_others_stay_themselves(rng):
    model = gf.build(MODELS["decoder"].replace(width=32))
    params = model.init(0)
    params["blocks"][0]["attention"]["query"]["w"] = quantize(params["blocks"][0]["attention"]["query"]["w"], "Q8_0")
    plain = unpacked(params)
    assert plain["blocks"][0]["attention"]["query"]["w"].dtype == np.float32
    assert plain["blocks"][0]["attention"]["key"]["w"] is params["blocks"][0]["attention"]["key"]["w"]
    again = flatten(unpacked(plain))
    assert all(leaf is again[name] for name, leaf in flatten(plain).items())
    batch = gf.Batch(rng.integers(0, 7, (1, 4)))
    assert np.array_equal(watch(model, params, batch).logits, watch(model, plain, batch).logits)


def test_parameters_tokens_and_masks_can_be_changed(rng):
    run = watched("decoder", rng)
    table = run.params["embedding"]["tokens"]["table"]
    edited = gf.tree.rebuilt(run.params, {**flatten(run.params), "embedding.tokens.table": table * 2})
    expected = run.model.forward(edited, run.batch.tokens, mask=run.batch.mask)[0]
    np.testing.assert_array_equal(run.changed(scale("embedding.tokens.table", 2.0)).logits, expected)
    tokens = run.batch.tokens.copy()
    tokens[:, 2] = 5
    expected = run.model.forward(run.params, tokens, mask=run.batch.mask)[0]
    np.testing.assert_array_equal(run.changed(put("tokens", 5, position=2)).logits, expected)
    blind = run.changed(put("blocks.0.attention.attend.mask", False, head=0, position=3, key=1))
    assert np.all(blind["blocks.0.attention.attend.weights"][:, 0, 3, 1] == 0)
    assert np.all(run["blocks.0.attention.attend.weights"][0, 0, 3, 1] > 0)


def test_changes_that_alter_nothing_are_named(rng, caplog):
    run = watched("decoder", rng)
    changed = run.changed(scale("blocks.0", 1.0), zero("blocks.1.attention"))
    assert [(change.word, change.name) for change in changed.no_effect] == [("scale", "blocks.0")]
    assert "the change 'scale' of blocks.0 altered nothing" in caplog.text


def test_changes_that_alter_nothing_are_named_one_by_one_and_among_gradients(rng):
    run = watched("decoder", rng)
    first, second = zero("blocks.0", feature=1), scale("blocks.0", 3.0, feature=1)  # three times nothing
    assert run.changed(first, second).no_effect == (second,)
    run = watched("decoder", rng)
    stopped, same = stop("blocks.0"), scale_gradient("blocks.1", 1.0)
    assert gradients(run, changes=[stopped, same]).no_effect == (same,)


def test_parameters_and_tokens_can_be_frozen_or_others_and_gradients_stopped(rng):
    run = watched("decoder, post", rng)
    frozen = run.changed(put("tokens", 5), freeze("tokens", position=2), scale("head.b", 2.0), freeze("head.b"))
    assert frozen.batch.tokens[0].tolist() == [5, 5, run.batch.tokens[0, 2], 5, 5]
    np.testing.assert_array_equal(flatten(frozen.params)["head.b"], flatten(run.params)["head.b"])

    run = watched("decoder, post", rng)
    start = run.changed(put("tokens", 5, position=1), scale("head.w", 2.0), zero("blocks.0.attention"))
    variants = [[scale("blocks.1", 2.0)], [zero("blocks.1.feed_forward")]]
    expected = [start.changed(*changes).loss for changes in variants]
    np.testing.assert_allclose(batched_interventions(start, variants), expected, rtol=1e-12)

    run = watched("decoder", rng)
    stopped = gradients(run, changes=[stop("blocks.0")])
    assert np.all(stopped["embedding"] == 0)
    assert np.all(stopped.params["blocks"][0]["feed_forward"]["up"]["w"] == 0)
    plain = gradients(run)
    np.testing.assert_array_equal(stopped["blocks.1"], plain["blocks.1"])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (zero("blocks.0.atention"), ConfigError, "did you mean 'blocks.0.attention'"),
        (zero("blocks.2"), ConfigError, "there is no value or parameter"),
        (zero("blocks.0.attention.output.x", head=2), LengthError, "has no head 2"),
        (zero("blocks.0", head=0), ConfigError, "has no head"),
        (zero("blocks.0", position=5), LengthError, "has no position 5"),
        (zero("blocks.0", position="last"), ConfigError, "position is 'last'"),
        (zero("blocks.0.attention.output.x", head=0, feature=1), ConfigError, "give one of them"),
        (put("blocks.0", np.zeros(3)), ShapeError, "broadcasts"),
        (stop("blocks.0"), ConfigError, "about a gradient"),
        (put("tokens", 1.5, position=0), ConfigError, "give whole numbers"),
    ],
)
def test_what_does_not_fit_is_refused(rng, change, error, words):
    run = watched("decoder", rng)
    with pytest.raises(error, match=words):
        run.changed(change)


def test_runs_of_other_lengths_cannot_be_taken_from(rng):
    run = watched("decoder", rng)
    longer = watch(run.model, run.params, gf.Batch(np.ones((2, 7), dtype=int)))
    with pytest.raises(ShapeError, match="as many tokens"):
        run.changed(take("blocks.0", longer))


def test_the_page_about_looking_inside_runs_as_printed(capsys):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "looking_inside.md").read_text(encoding="utf-8")
    first, steered, few, _ = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(first + few, "looking_inside.md", "exec"), {})
    assert re.search(r"True\n\[.*\] True\nFalse\n$", capsys.readouterr().out)
    exec(compile(steered, "looking_inside.md", "exec"), {"gf": gf})
    assert capsys.readouterr().out == " 6 6 6 6 6\n"
    methods = re.findall(r"`interpret/(\w+\.py)`", page)
    assert len(methods) > 12
    assert all((Path(gf.__file__).parent / "interpret" / name).is_file() for name in methods)
