"""Lens, attribution, ablation and patching of a random GPT-2, against plain hooks on Hugging Face's."""

import numpy as np
import pytest

from glassformer import Batch
from glassformer.interpret import (
    Logit,
    ablate_heads,
    ablate_layers,
    attribute,
    lens,
    patch_heads,
    patch_stream,
    watch,
)
from hf_weights import pair
from oracles import require

TARGET = Logit(3, against=5)


@pytest.fixture(scope="module")
def gpt2():
    theirs, model, params = pair("gpt2")
    rng = np.random.default_rng(0)
    clean, other = (rng.integers(0, 13, (1, 6)) for _ in range(2))
    runs = [watch(model, params, Batch(tokens, np.roll(tokens, -1, axis=1))) for tokens in (clean, other)]
    return theirs, runs


def their_logits(theirs, tokens, *hooks):
    """Logits with hooks on what modules return, (module, function), or read, ("before", module, function)."""
    torch = require("torch")
    handles = []
    for *before, module, hook in hooks:
        handles.append(module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook))
    with torch.no_grad():
        logits = theirs(torch.tensor(np.array(tokens))).logits.numpy()
    for handle in handles:
        handle.remove()
    return logits


def kept(theirs, tokens, module, *, before=False):
    """What a module returned, or read."""
    found = []

    def hook(own, read, returned=None):
        value = read if before else returned
        found.append((value[0] if isinstance(value, tuple) else value).clone())

    their_logits(theirs, tokens, *([("before", module, hook)] if before else [(module, hook)]))
    return found[0]


def answer(logits):
    return logits[0, -1, 3] - logits[0, -1, 5]


def zero_head(head):
    def hook(module, read):
        x = read[0].clone()
        x[..., 8 * head : 8 * head + 8] = 0
        return (x,)

    return hook


def test_the_lens_reads_what_their_head_reads(gpt2):
    theirs, (run, _) = gpt2
    torch = require("torch")
    tokens = run.batch.tokens
    seen = dict(zip([point.label for point in lens(run).points], lens(run).logits, strict=True))
    blocks = theirs.transformer.h
    points = {
        "embedding": kept(theirs, tokens, blocks[0].ln_1, before=True),
        "block 0 attention": kept(theirs, tokens, blocks[0].ln_2, before=True),
        "block 0": kept(theirs, tokens, blocks[1].ln_1, before=True),
        "block 1 attention": kept(theirs, tokens, blocks[1].ln_2, before=True),
        "block 1": kept(theirs, tokens, theirs.transformer.ln_f, before=True),
    }
    assert list(seen) == list(points)
    for label, x in points.items():
        with torch.no_grad():
            expected = theirs.lm_head(theirs.transformer.ln_f(x)).numpy()
        assert np.allclose(seen[label], expected, rtol=1e-12, atol=1e-12)


def test_attribution_equals_their_stream_through_a_held_norm(gpt2):
    theirs, (run, _) = gpt2
    tokens, weights = run.batch.tokens, {name: p.detach().numpy() for name, p in theirs.named_parameters()}
    x = kept(theirs, tokens, theirs.transformer.ln_f, before=True).numpy()[0, -1]
    table = weights["transformer.wte.weight"]
    direction = weights["transformer.ln_f.weight"] * (table[3] - table[5]) / np.sqrt(x.var() + 1e-5)

    def share(vector):
        return (vector - vector.mean()) @ direction

    found = {(part.name, part.head): part.value for part in attribute(run, TARGET).parts}
    assert np.isclose(found["embedding.tokens", None], share(table[tokens[0, -1]]), rtol=1e-10)
    for layer, block in enumerate(theirs.transformer.h):
        mixed = kept(theirs, tokens, block.attn.c_proj, before=True).numpy()[0, -1]
        w = block.attn.c_proj.weight.detach().numpy()
        for head in range(2):
            said = mixed[8 * head : 8 * head + 8] @ w[8 * head : 8 * head + 8]
            assert np.isclose(found[f"blocks.{layer}.attention", head], share(said), rtol=1e-10)
        said = kept(theirs, tokens, block.mlp).numpy()[0, -1]
        bias = block.mlp.c_proj.bias.detach().numpy()
        own = found[f"blocks.{layer}.feed_forward", None], found[f"blocks.{layer}.feed_forward.down.b", None]
        assert np.allclose(own, (share(said - bias), share(bias)), rtol=1e-10)


def test_ablation_equals_hooks_that_return_zeros(gpt2):
    theirs, (run, _) = gpt2
    tokens = run.batch.tokens
    before = answer(their_logits(theirs, tokens))
    heads = ablate_heads(run, targets=[TARGET])
    for part, effect in zip(heads.parts, heads.logits[:, 0], strict=True):
        module = theirs.transformer.h[part.layer].attn.c_proj
        after = answer(their_logits(theirs, tokens, ("before", module, zero_head(part.head))))
        assert np.isclose(effect, after - before, rtol=1e-10, atol=1e-12)
    layers = ablate_layers(run, kinds=["feed_forward"], targets=[TARGET])
    for part, effect in zip(layers.parts, layers.logits[:, 0], strict=True):
        module = theirs.transformer.h[part.layer].mlp
        after = answer(their_logits(theirs, tokens, (module, lambda module, read, returned: 0 * returned)))
        assert np.isclose(effect, after - before, rtol=1e-10, atol=1e-12)


def test_patching_equals_hooks_that_return_what_the_other_prompt_had(gpt2):
    theirs, (run, source) = gpt2
    before = answer(their_logits(theirs, run.batch.tokens))
    stream = patch_stream(run, source, TARGET)
    block = theirs.transformer.h[1]
    there = kept(theirs, source.batch.tokens, block, before=True)
    for position in range(6):

        def hook(module, read, position=position):
            x = read[0].clone()
            x[:, position] = there[:, position]
            return (x, *read[1:])

        after = answer(their_logits(theirs, run.batch.tokens, ("before", block, hook)))
        row = stream.rows.index("block 0")
        assert np.isclose(stream.effect[row, position], after - before, rtol=1e-10, atol=1e-12)
    heads = patch_heads(run, source, TARGET)
    for layer in range(2):
        module = theirs.transformer.h[layer].attn.c_proj
        mixed = kept(theirs, source.batch.tokens, module, before=True)
        for head in range(2):

            def change(module, read, head=head, mixed=mixed):
                x = read[0].clone()
                x[..., 8 * head : 8 * head + 8] = mixed[..., 8 * head : 8 * head + 8]
                return (x,)

            after = answer(their_logits(theirs, run.batch.tokens, ("before", module, change)))
            assert np.isclose(heads.effect[layer, head], after - before, rtol=1e-10, atol=1e-12)
