"""Gradients of every recorded value of imported GPT-2, BERT and T5, against `retain_grad` on transformers' own.

Small models of `transformers` with random weights are written to a folder, and read from there as published ones are.
Hooks keep what each of their modules read and returned, and what each softmax read.
"""

import contextlib
import re

import numpy as np
import pytest

from family_models import VOCAB, doubled, exact_copy, model_of, quiet, saved
from glassformer import Batch
from glassformer.interpret import gradients, watch
from glassformer.weights.folder import open_folder

EXACT = {"rtol": 1e-11, "atol": 1e-11}
STATISTICS = (".mean", ".rstd", ".rrms")
"""What a norm of PyTorch keeps to itself; `test_run.py` compares these with norms that are written out."""

# Our names, N being the layer, and where transformers has the same value: what a module returned, or what it read (<).
# Names of the same value stand together.
GPT2 = {
    "embedding.tokens": "transformer.wte",
    "embedding.positions": "transformer.wpe",
    "embedding|embedding.output": "transformer.drop",
    "blocks.N.attention_norm.x": "<transformer.h.N.ln_1",
    "blocks.N.attention_norm|blocks.N.attention.query.x": "transformer.h.N.ln_1",
    "blocks.N.attention.query": "transformer.h.N.attn.c_attn",
    "blocks.N.attention.attend.q": "transformer.h.N.attn.c_attn",
    "blocks.N.attention.key|blocks.N.attention.attend.k": "transformer.h.N.attn.c_attn",
    "blocks.N.attention.value|blocks.N.attention.attend.v": "transformer.h.N.attn.c_attn",
    "blocks.N.attention.attend.scores": "<transformer.h.N.attn.softmax",
    "blocks.N.attention.attend.weights": "transformer.h.N.attn.softmax",
    "blocks.N.attention.output.x": "<transformer.h.N.attn.c_proj",
    "blocks.N.attention|blocks.N.attention.output": "transformer.h.N.attn.c_proj",
    "blocks.N.feed_forward_norm.x": "<transformer.h.N.ln_2",
    "blocks.N.feed_forward_norm|blocks.N.feed_forward.up.x": "transformer.h.N.ln_2",
    "blocks.N.feed_forward.up|blocks.N.feed_forward.activation.x": "transformer.h.N.mlp.c_fc",
    "blocks.N.feed_forward.activation|blocks.N.feed_forward.down.x": "<transformer.h.N.mlp.c_proj",
    "blocks.N.feed_forward|blocks.N.feed_forward.down": "transformer.h.N.mlp",
    "blocks.N|blocks.N.output": "transformer.h.N",
    "final_norm.x|blocks": "<transformer.ln_f",
    "final_norm|head.logits.x": "transformer.ln_f",
    "head|head.logits|logits": "lm_head",
}
LAYER = "bert.encoder.layer.N"
BERT = {
    "embedding.tokens": "bert.embeddings.word_embeddings",
    "embedding.positions": "bert.embeddings.position_embeddings",
    "embedding.segments": "bert.embeddings.token_type_embeddings",
    "embedding.norm.x": "<bert.embeddings.LayerNorm",
    "embedding|embedding.norm|embedding.output": "bert.embeddings.dropout",
    "blocks.N.attention.query.x": f"<{LAYER}.attention.self.query",
    "blocks.N.attention.query": f"{LAYER}.attention.self.query",
    "blocks.N.attention.attend.q": f"{LAYER}.attention.self.query",
    "blocks.N.attention.key|blocks.N.attention.attend.k": f"{LAYER}.attention.self.key",
    "blocks.N.attention.value|blocks.N.attention.attend.v": f"{LAYER}.attention.self.value",
    "blocks.N.attention.attend.scores": f"<{LAYER}.attention.self.softmax",
    "blocks.N.attention.attend.weights": f"{LAYER}.attention.self.softmax",
    "blocks.N.attention.output.x": f"<{LAYER}.attention.output.dense",
    "blocks.N.attention|blocks.N.attention.output": f"{LAYER}.attention.output.dense",
    "blocks.N.attention_norm.x": f"<{LAYER}.attention.output.LayerNorm",
    "blocks.N.attention_norm|blocks.N.feed_forward.up.x": f"{LAYER}.attention.output.LayerNorm",
    "blocks.N.feed_forward.up|blocks.N.feed_forward.activation.x": f"{LAYER}.intermediate.dense",
    "blocks.N.feed_forward.activation|blocks.N.feed_forward.down.x": f"<{LAYER}.output.dense",
    "blocks.N.feed_forward|blocks.N.feed_forward.down": f"{LAYER}.output.dense",
    "blocks.N.feed_forward_norm.x": f"<{LAYER}.output.LayerNorm",
    "blocks.N|blocks.N.feed_forward_norm|blocks.N.output": LAYER,
    "blocks|head.linear.x": "<cls.predictions.transform.dense",
    "head.linear|head.activation.x": "cls.predictions.transform.dense",
    "head.activation|head.norm.x": "<cls.predictions.transform.LayerNorm",
    "head.norm|head.logits.x": "cls.predictions.transform.LayerNorm",
    "head|head.logits|logits": "cls.predictions.decoder",
}


def t5_stack(stack, *kinds):
    """The names of one stack of T5, whose blocks are lists of sublayers."""
    found = {
        f"{stack}.final_norm.x|{stack}.blocks": f"<{stack}.final_layer_norm",
        f"{stack}.final_norm|{stack}": f"{stack}.final_layer_norm",
        f"{stack}.blocks.N|{stack}.blocks.N.output": f"{stack}.block.N",
    }
    for number, kind in enumerate(kinds):
        ours, home = f"{stack}.blocks.N.{kind}", f"{stack}.block.N.layer.{number}"
        found[f"{ours}_norm.x"] = f"<{home}.layer_norm"
        if kind == "feed_forward":
            found[f"{ours}_norm|{ours}.up.x"] = f"{home}.layer_norm"
            found[f"{ours}.up|{ours}.activation.x"] = f"{home}.DenseReluDense.wi"
            found[f"{ours}.activation|{ours}.down.x"] = f"<{home}.DenseReluDense.wo"
            found[f"{ours}|{ours}.down"] = f"{home}.DenseReluDense.wo"
            continue
        inner = f"{home}.{'SelfAttention' if kind == 'attention' else 'EncDecAttention'}"
        found[f"{ours}_norm|{ours}.query.x"] = f"{home}.layer_norm"
        found[f"{ours}.query"] = f"{inner}.q"
        found |= {f"{ours}.attend.{part}": f"{inner}.{part}" for part in "qkv"}
        found[f"{ours}.attend.scores"] = f"<{inner}.softmax"
        found[f"{ours}.attend.weights"] = f"{inner}.softmax"
        found[f"{ours}.output.x"] = f"<{inner}.o"
        found[f"{ours}|{ours}.output"] = f"{inner}.o"
        found |= {f"{ours}.key": f"{inner}.k", f"{ours}.value": f"{inner}.v"}
        if kind == "cross_attention":
            found[f"{ours}.key.x|{ours}.value.x"] = f"<{inner}.k"
        else:
            found[f"{ours}.attend.bias|{stack}.relative"] = (
                f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
            )
    return found


T5 = {
    "source_embedding|source_embedding.output|source_embedding.tokens": "<encoder.block.0.layer.0.layer_norm",
    "embedding|embedding.output|embedding.tokens": "<decoder.block.0.layer.0.layer_norm",
    **t5_stack("encoder", "attention", "feed_forward"),
    **t5_stack("decoder", "attention", "cross_attention", "feed_forward"),
    "head.logits.x": "<lm_head",
    "head|head.logits|logits": "lm_head",
}
FAMILIES = {"gpt2": GPT2, "bert, tokens": BERT, "t5": T5}


class Kept:
    """What the modules of a model of transformers read ("<name") and returned ("name"), with their gradients."""

    def __init__(self, theirs, torch):
        self.torch, self.values, self.inside, self.softmax = torch, {}, "", torch.nn.functional.softmax
        for name, module in theirs.named_modules():
            module.register_forward_pre_hook(lambda _, read, own=name: self.keep_read(own, read))
            module.register_forward_hook(
                lambda _, read, y, own=name: self.keep(own, y[0] if isinstance(y, tuple) else y)
            )

    def keep_read(self, name, read):
        if name.rpartition(".")[2] in ("attn", "self", "SelfAttention", "EncDecAttention"):
            self.inside = name
        if read:
            self.keep(f"<{name}", read[0])

    def keep(self, name, value):
        if self.torch.is_tensor(value) and value.requires_grad:
            value.retain_grad()
            self.values[name] = value

    def softmax_kept(self, x, **settings):
        self.keep(f"<{self.inside}.softmax", x)
        y = self.softmax(x, **settings)
        self.keep(f"{self.inside}.softmax", y)
        return y

    @contextlib.contextmanager
    def looking(self):
        self.torch.nn.functional.softmax = self.softmax_kept
        try:
            yield
        finally:
            self.torch.nn.functional.softmax = self.softmax


def their_gradients(model, batch, torch):
    """The gradient of the loss for everything that the modules of transformers read and returned, by name."""
    theirs = exact_copy(model)
    theirs.set_attn_implementation("eager")
    kept = Kept(theirs, torch)
    given = {"input_ids": batch.tokens if batch.source is None else batch.source}
    if batch.source is not None:
        given["decoder_input_ids"] = batch.tokens
    with doubled(), kept.looking(), quiet():
        logits = theirs(**{name: torch.tensor(ids) for name, ids in given.items()}).logits
        targets = torch.tensor(batch.targets)
        torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1)).backward()
    return {name: value.grad.numpy() for name, value in kept.values.items() if value.grad is not None}


def as_ours(name, dx, shape):
    """A gradient of theirs in the shape that the value of this name has here."""
    last = name.rpartition(".")[2]
    if name.endswith(("relative", "bias")):
        return dx.transpose(2, 0, 1)  # (T, S, H)
    if name.endswith("positions"):
        return dx.sum(axis=0)
    heads = len(shape) == 4 and dx.ndim == 3
    width = shape[1] * shape[3] if heads else shape[-1]
    if dx.shape[-1] == 3 * width:  # GPT-2 has queries, keys and values in one matrix
        dx = np.split(dx, 3, axis=-1)["qkv".index(last[0])]
    return dx.reshape(*dx.shape[:2], shape[1], shape[3]).swapaxes(1, 2) if heads else dx


def their_name(table, name):
    """Where transformers has a value of ours; None for one that no module there returned or read."""
    layers = re.search(r"blocks\.(\d+)", name)
    general = re.sub(r"blocks\.\d+", "blocks.N", name)
    found = next((theirs for ours, theirs in table.items() if general in ours.split("|")), None)
    return found if layers is None or found is None else found.replace(".N", f".{layers[1]}")


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_imported_models_equal_those_that_pytorch_retains(family, torch, rng, tmp_path):
    model = model_of(family)
    loaded = open_folder(saved(family, tmp_path, model=model), np.float64)
    tokens, targets, source = (rng.integers(2, VOCAB, (2, 5)) for _ in range(3))
    batch = Batch(tokens, targets, source=source if family == "t5" else None)
    ours, theirs = gradients(watch(loaded.model, loaded.params, batch)), their_gradients(model, batch, torch)
    table = FAMILIES[family]
    compared = 0
    for name in ours:
        if name.endswith(STATISTICS):
            continue
        place = their_name(table, name)
        assert place in theirs, f"{name} is not compared: {place}"
        np.testing.assert_allclose(ours[name], as_ours(name, theirs[place], ours[name].shape), **EXACT, err_msg=name)
        compared += 1
    assert compared > 50
