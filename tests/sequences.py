"""Small models with weights that matter, and what they write as plain lists."""

import numpy as np

from glassformer.core.tree import tree_map
from glassformer.generation import generate_steps
from glassformer.models import build

SIZES = {"vocab": 17, "width": 16, "heads": 4, "layers": 2, "context": 24, "relative_buckets": 8}
# An untied head: with a tied one, untrained models mostly repeat the last token.
SMALL = {**SIZES, "tied_head": False, "activation": "gelu_tanh"}


def model_of(architecture="decoder", *, seed=0, dtype=np.float64, **settings):
    """A small model whose weights are far larger than at the start of training, so that what it writes varies."""
    preset = {"decoder": "tiny-decoder", "encoder-decoder": "tiny-seq2seq"}[architecture]
    model = build(preset, **{**SMALL, **settings})
    rng = np.random.default_rng(seed)

    def stirred(x):
        # Little for gains and biases: they would favor the same few tokens everywhere.
        return (x + (0.5 if x.ndim > 1 else 0.05) * rng.standard_normal(x.shape)).astype(dtype)

    return model, tree_map(stirred, model.init(seed))


def prompts_of(*lengths, seed=0, vocab=17):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab, size=length).tolist() for length in lengths]


def written(model, params, prompts, **settings):
    """The ids and the finish reasons of all sequences."""
    rows = len(prompts) * settings.get("n", 1)
    ids, finish = [[] for _ in range(rows)], [None] * rows
    for step in generate_steps(model, params, prompts, **settings):
        for row, token in enumerate(step.ids.tolist()):
            assert (token < 0) == (finish[row] is not None)
            if token >= 0:
                ids[row].append(token)
                finish[row] = step.finish[row]
    return ids, finish
