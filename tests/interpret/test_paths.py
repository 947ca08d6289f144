"""Path patching and edge attribution, inputs and results of heads, beside a model with split inputs in PyTorch."""

import math

import numpy as np
import pytest

from glassformer import Batch, Decoder, DecoderConfig, EncoderDecoder
from glassformer.core.errors import ConfigError, LengthError
from glassformer.core.tree import flatten
from glassformer.interpret import (
    Logit,
    Sum,
    add,
    all_receivers,
    all_senders,
    at,
    attribute_edges,
    gradients,
    head_results,
    patch_heads,
    patch_path,
    patch_paths,
    patch_sublayers,
    put,
    take,
    watch,
    zero,
)
from glassformer.plots import path_map

TARGET = Logit(1, against=0)
SENDER = at("blocks.0.attention.output.x", head=1)


@pytest.fixture
def padded(decoder):
    model, params, batch = decoder
    other = batch._replace(tokens=(batch.tokens + 1) % 7)
    return watch(model, params, batch), watch(model, params, other)


def test_a_receiver_reads_the_stream_plus_what_the_sender_wrote(padded):
    run, source = padded
    w = run.params["blocks"][0]["attention"]["output"]["w"][4:]
    wrote = (source[SENDER.name] - run[SENDER.name])[..., 4:] @ w
    told = run.changed(put("blocks.0", run["blocks.0"] + wrote))
    for name in ("blocks.1.attention.attend.k", "blocks.1.attention.output.x"):
        alone = run.changed(take(name, told, head=0))
        found = patch_path(run, source, SENDER, at(name, head=0), TARGET)
        assert found.effect != 0
        assert np.isclose(found.effect, TARGET.value(alone) - TARGET.value(run), rtol=1e-9)


def test_paths_lead_from_the_source_to_the_target(encoder_decoder):
    model, params, batch = encoder_decoder
    run = watch(model, params, batch)
    source = watch(model, params, batch._replace(source=(batch.source + 1) % 9))
    sender = at("encoder.blocks.0.feed_forward")
    first, second = (
        patch_path(run, source, sender, at(f"decoder.blocks.{n}.cross_attention"), TARGET).effect for n in range(2)
    )
    assert first != 0 != second
    blind = patch_path(run, source, sender, at("decoder.blocks.0.attention"), TARGET)
    assert blind.effect == 0  # attention to the target itself comes before any look at the source


def test_freezing_what_would_not_move_is_not_warned_of(padded, caplog):
    run, source = padded
    patch_path(run, source, SENDER, at("logits"), TARGET)
    assert not caplog.records


def test_what_is_no_path_is_refused(padded, decoder):
    run, source = padded
    with pytest.raises(ConfigError, match="does not come before"):
        patch_path(run, source, at("blocks.1.attention"), at("blocks.0.attention"), TARGET)
    with pytest.raises(ConfigError, match="there is no value"):
        patch_path(run, source, at("blocks.0.atention"), at("logits"), TARGET)
    model, params, batch = decoder
    short = watch(model, params, batch._replace(tokens=batch.tokens[:, 1:], targets=None, mask=None))
    with pytest.raises(LengthError, match="as many tokens"):
        patch_path(run, short, SENDER, at("logits"), TARGET)


SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 12}
MORE = {
    "gated": {"gated": True, "kv_heads": 1, "norm": "rms", "positions": "rotary"},
    "parallel": {"block": "parallel"},
    "no norms": {"norm": "none"},
    "post-norm": {"norm_position": "post"},
    "post-norm, RMS": {"norm_position": "post", "norm": "rms", "gated": True, "kv_heads": 1},
    "post-norm and a last norm": {"norm_position": "post", "final_norm": True, "embedding_norm": True},
}
EXACT = {"rtol": 0, "atol": 1e-12}
SUBLAYERS = [f"blocks.{n}.{kind}" for n in range(2) for kind in ("attention", "feed_forward")]


@pytest.fixture
def runs(rng):
    return _two_runs(rng)


def _two_runs(rng, **settings):
    model = Decoder(DecoderConfig(**SIZES, activation="relu", **settings))
    params = model.init(0, np.float64)
    params = {**params, "blocks": [_moved(block, rng) for block in params["blocks"]]}
    tokens = rng.integers(0, 7, (2, 5))
    return [watch(model, params, Batch(some)) for some in (tokens, (tokens + 2) % 7)]


def _moved(tree, rng):
    """Parameters with scales and biases that do something."""
    if isinstance(tree, dict):
        return {name: _moved(part, rng) for name, part in tree.items()}
    return tree + 0.3 * rng.standard_normal(tree.shape)


class Split:
    """A decoder in torch, in which every head's q, k and v, every MLP and the head read a stream of their own.

    wrote   what each sender wrote by name; reads: what each receiver was told by each sender, all leaves of one graph
    """

    def __init__(self, torch, run):
        self.torch, self.run, self.is_post = torch, run, run.model.config.norm_position == "post"
        self.p = {name: torch.tensor(x) for name, x in flatten(run.params).items()}
        self.wrote, self.reads = {}, {}

    def norm(self, name, x):
        F = self.torch.nn.functional
        return F.layer_norm(x, x.shape[-1:], self.p[f"{name}.gamma"], self.p[f"{name}.beta"], 1e-5)

    def read(self, name):
        """The stream of one receiver: x ← x + f, and with post-norm x ← norm(x + f), for what each sublayer f wrote."""
        self.reads[name] = {sender: x.detach().requires_grad_() for sender, x in self.wrote.items()}
        x = self.reads[name]["embedding"]
        for sublayer in SUBLAYERS:
            parts = [own for sender, own in self.reads[name].items() if sender.startswith(sublayer)]
            x = sum(parts, x)
            x = self.norm(f"{sublayer}_norm", x) if parts and self.is_post else x
        return x

    def before(self, name, x):
        return x if self.is_post else self.norm(name, x)

    def forward(self):
        torch, p, tokens = self.torch, self.p, self.torch.tensor(self.run.batch.tokens)
        x = p["embedding.tokens.table"][tokens] + p["embedding.positions.table"][: tokens.shape[1]]
        self.wrote["embedding"] = x
        causal = torch.ones(tokens.shape[1], tokens.shape[1]).tril().bool()
        for n in range(2):
            own, results = f"blocks.{n}.attention", {}
            for h in range(2):
                cut = slice(4 * h, 4 * h + 4)
                q, k, v = (
                    self.before(f"{own}_norm", self.read(f"{own}.attend.{letter}, head={h}"))
                    @ p[f"{own}.{matrix}.w"][:, cut] + p[f"{own}.{matrix}.b"][cut]
                    for letter, matrix in zip("qkv", ("query", "key", "value"), strict=True)
                )  # fmt: skip
                scores = (q @ k.transpose(-1, -2) / math.sqrt(4)).masked_fill(~causal, -math.inf)
                results[f"{own}.output.x, head={h}"] = scores.softmax(-1) @ v @ p[f"{own}.output.w"][cut]
            self.wrote |= results | {f"{own} bias": p[f"{own}.output.b"]}
            own = f"blocks.{n}.feed_forward"
            x = self.before(f"{own}_norm", self.read(own))
            hidden = torch.relu(x @ p[f"{own}.up.w"] + p[f"{own}.up.b"])
            self.wrote[own] = hidden @ p[f"{own}.down.w"] + p[f"{own}.down.b"]
        return self.before("final_norm", self.read("logits")) @ p["embedding.tokens.table"].T

    def gradients(self):
        """Return the gradient of the answer by each edge alone, by receiver and sender, by the chain rule."""
        grad, logits = self.torch.autograd.grad, self.forward()
        np.testing.assert_allclose(logits.detach(), self.run.logits, **EXACT)
        found = {}

        def send_back(name, y, dy=None):
            leaves = self.reads[name]
            found[name] = dict(zip(leaves, grad(y, [*leaves.values()], dy, retain_graph=True), strict=True))

        send_back("logits", logits[0, -1, 1] - logits[0, -1, 0])
        for sublayer in reversed(SUBLAYERS):
            for name in [one for one in self.reads if one.startswith(sublayer)]:
                head = name.partition(", ")[2]
                sender = f"{sublayer}.output.x, {head}" if head else sublayer
                send_back(name, self.wrote[sender], sum(told[sender] for told in found.values() if sender in told))
        return found


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_edges_equal_those_of_a_model_with_split_inputs(norm_position, rng, torch):
    run, source = _two_runs(rng, norm_position=norm_position)
    clean, other = Split(torch, run), Split(torch, source)
    slopes = clean.gradients()
    other.forward()
    found = attribute_edges(run, source, TARGET)
    assert [str(place) for place in found.senders] == [name for name in clean.wrote if "bias" not in name]
    for n, sender in enumerate(map(str, found.senders)):
        moved = (other.wrote[sender] - clean.wrote[sender]).detach()
        for m, receiver in enumerate(map(str, found.receivers)):
            leads = _level(sender) < _level(receiver)
            expected = float((moved * slopes[receiver][sender]).sum()) if leads else math.nan
            np.testing.assert_allclose(found.effect[n, m], expected, **EXACT)
    assert {*slopes} == {str(place) for place in found.receivers}
    rows = found.rows()
    assert len(rows) == np.isfinite(found.effect).sum()
    assert abs(rows[0]["effect"]) >= abs(rows[1]["effect"])
    assert "estimated effect" in repr(found)


def _level(name):
    """When a part reads and writes: attention of block 0, its feed-forward layer, attention of block 1, …"""
    if name in ("embedding", "logits"):
        return -1 if name == "embedding" else 99
    return 2 * int(name.split(".")[1]) + ("feed_forward" in name)


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder", "post-norm encoder_decoder", "encoder", *MORE])
def test_the_edges_of_a_sender_sum_to_its_estimate(architecture, request, rng):
    if architecture in MORE:
        model = Decoder(DecoderConfig(**SIZES, **MORE[architecture]))
        params, batch = model.init(0, np.float64), Batch(rng.integers(0, 7, (2, 5)))
    else:
        norms, _, fixture = architecture.rpartition(" ")
        model, params, batch = request.getfixturevalue(fixture)
        if norms:
            model = EncoderDecoder(model.config.replace(norm_position="post", final_norm=None))
            params = model.init(0, np.float64)
    run = watch(model, params, batch)
    part = "tokens" if batch.source is None else "source"
    source = watch(model, params, batch._replace(**{part: (getattr(batch, part) + 1) % 5}))
    edges = attribute_edges(run, source, TARGET)
    sums = dict(zip(map(str, edges.senders), np.nansum(edges.effect, axis=1), strict=True))
    heads = patch_heads(run, source, TARGET)
    for name, row in zip(heads.rows, heads.estimate, strict=True):
        for head, estimate in enumerate(row):
            assert sums[f"{name}.output.x, head={head}"] == pytest.approx(estimate, abs=1e-12)
    for stack in {"encoder", "decoder"} if architecture.endswith("encoder_decoder") else {None}:
        layers = patch_sublayers(run, source, TARGET, stack=stack)
        for name, row in zip(layers.rows, layers.estimate, strict=True):
            assert sums[name] == pytest.approx(row.sum(), abs=1e-12)


@pytest.mark.parametrize("hold", ["sublayers", "attention"])
def test_a_sweep_is_every_path_alone(runs, hold):
    run, source = runs
    found = patch_paths(run, source, TARGET, all_receivers(run), hold=hold, memory=1 << 18)
    for n, sender in enumerate(found.senders):
        for m, receiver in enumerate(found.receivers):
            if np.isnan(found.effect[n, m]):
                assert _level(str(sender)) >= _level(str(receiver))
                continue
            after = _by_hand(run, source, sender, receiver, hold)
            np.testing.assert_allclose(found.effect[n, m], TARGET.value(after) - TARGET.value(run), **EXACT)
    to_logits = patch_paths(run, source, TARGET, hold=hold)
    np.testing.assert_allclose(to_logits.effect[:, 0], found.effect[:, -1], **EXACT)
    one = patch_path(run, source, found.senders[1], at("blocks.1.feed_forward"), TARGET, hold=hold)
    column = [str(place) for place in found.receivers].index("blocks.1.feed_forward")
    assert one.effect == pytest.approx(found.effect[1, column], abs=1e-12)
    assert (one.run, one.source) == (TARGET.value(run), TARGET.value(source))
    assert "blocks.0.attention.output.x, head=1" in repr(found)


def _by_hand(run, source, sender, receiver, hold):
    """One path in two runs with changes, the values to hold put there by hand."""
    held = [f"blocks.{n}.{kind}" for n in range(2) for kind in ("attention", "feed_forward")]
    held = [name for name in held if hold == "sublayers" or name.endswith("attention")]
    later = [name for name in held if _level(name) > _level(str(sender)) and _level(name) != _level(str(receiver))]
    told = run.changed(take(sender.name, source, **sender.where), *(put(name, run[name]) for name in later))
    return told if receiver.name == "logits" else run.changed(take(receiver.name, told, **receiver.where))


@pytest.mark.parametrize("settings", [{}, *(own for name, own in MORE.items() if name.startswith("post-norm"))])
def test_estimates_are_exact_to_first_order(settings, rng):
    """For every sender and receiver, by patching the path."""
    run, _ = _two_runs(rng, **settings)
    near = run.changed(put("embedding", run["embedding"] + 1e-6 * rng.standard_normal(run["embedding"].shape)))
    exact, found = patch_paths(run, near, TARGET, all_receivers(run)), attribute_edges(run, near, TARGET)
    assert [str(place) for place in found.senders] == [str(place) for place in exact.senders]
    largest = np.nanmax(np.abs(exact.effect))
    np.testing.assert_allclose(found.effect, exact.effect, rtol=0, atol=1e-4 * largest)


def test_what_has_no_path_is_refused(runs):
    run, source = runs
    for wrong in ("logits", ["logits"]):
        with pytest.raises(ConfigError, match="takes Place") as error:
            patch_paths(run, source, TARGET, wrong)
        assert 'at("logits")' in error.value.hint
    with pytest.raises(ConfigError, match="takes Logit"):
        patch_paths(run, source, Sum("blocks.0"))
    with pytest.raises(ConfigError, match="no place for a path"):
        patch_paths(run, source, TARGET, senders=[])
    with pytest.raises(LengthError, match="has no head 2"):
        patch_paths(run, source, TARGET, at("blocks.1.attention.attend.q", head=2))
    with pytest.raises(ConfigError, match="takes Run"):
        attribute_edges("run", source, TARGET)
    with pytest.raises(ConfigError, match="has changes"):
        attribute_edges(run.changed(zero("blocks.0.attention")), source, TARGET)
    for settings in ({"block": "no_residual"}, {"block": "no_residual", "norm_position": "post"}):
        model = Decoder(DecoderConfig(**SIZES, **settings))
        after = watch(model, model.init(0), run.batch)
        with pytest.raises(ConfigError, match="not made by adding what its parts wrote, and by norms"):
            attribute_edges(after, after, TARGET)
    assert len(all_senders(after)) == 7  # paths need no sum
    assert np.all(patch_paths(after, after, TARGET).effect == 0)


def test_figures_have_a_cell_for_each_path(runs):
    found = attribute_edges(*runs, TARGET)
    image = path_map(found).axes[0].images[0].get_array()
    np.testing.assert_array_equal(np.ma.filled(image, np.nan), found.effect[::-1])
    one = path_map(patch_paths(*runs, TARGET))
    assert [text.get_text() for text in one.axes[0].get_yticklabels()] == ["blocks.1", "blocks.0", "embedding"]


@pytest.mark.parametrize("matrix", ["query", "key", "value"])
def test_queries_keys_and_values_have_inputs_of_their_own(runs, rng, matrix):
    run, _ = runs
    name = f"blocks.1.attention.{matrix}"
    own, step = flatten(run.params), rng.standard_normal((2, 5, 8))
    changed = run.changed(add(f"{name}.input", step))
    x = run["blocks.1.attention_norm"]
    alone = run.changed(put(name, (x + step) @ own[f"{name}.w"] + own[f"{name}.b"]))
    np.testing.assert_allclose(changed.logits, alone.logits, **EXACT)
    others = [f"blocks.1.attention.{one}" for one in ("query", "key", "value") if one != matrix]
    assert all(np.array_equal(changed[one], run[one]) for one in others)
    # One head alone: what it makes of the changed input.
    head = run.changed(take(f"blocks.1.attention.attend.{matrix[0]}", changed, head=1))
    assert not np.array_equal(head.logits, changed.logits)
    # The gradients of a matrix that read another input, by the complex step.
    grads = gradients(changed, TARGET)
    for leaf in (f"{name}.w", f"{others[0]}.w", "blocks.0.feed_forward.up.w"):
        probe = run.changed(add(leaf, 1e-30j, row=3, feature=2), add(f"{name}.input", step))
        assert grads.param(leaf)[3, 2] == pytest.approx(TARGET.value(probe).imag / 1e-30, abs=1e-12)


def test_inputs_of_the_readers_share_the_gradient_of_what_they_read(run):
    grads, name = gradients(run), list(run)
    norms = [one for one in name if one.endswith("attention_norm") and f"{one.removesuffix('_norm')}.key.input" in run]
    for norm in norms:
        own = norm.removesuffix("_norm")
        reads = ("query",) if own.endswith("cross_attention") else ("query", "key", "value")
        np.testing.assert_allclose(grads[norm], sum(grads[f"{own}.{one}.input"] for one in reads), **EXACT)
    assert norms


def test_results_of_heads_sum_to_what_attention_adds(run):
    for name in [one.removesuffix(".output.x") for one in run if one.endswith("attention.output.x")]:
        results = head_results(run, name)
        batch, length, width = run[name].shape
        assert results.shape == (batch, 2, length, width)
        total = results.sum(axis=1) + flatten(run.params)[f"{name}.output.b"]
        np.testing.assert_allclose(total, run[name], **EXACT)
        w = flatten(run.params)[f"{name}.output.w"]
        np.testing.assert_allclose(results[:, 1], run[f"{name}.output.x"][..., 4:] @ w[4:], **EXACT)
    with pytest.raises(ConfigError, match="there is no value"):
        head_results(run, "blocks.7.attention")
