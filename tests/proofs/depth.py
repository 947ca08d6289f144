"""Which models need to be compiled by JAX, and with how many blocks, to show what their cases are about.

A model takes as long to compile as it is deep.
"""

from dataclasses import replace

import numpy as np

from glassformer.proofs import ModelCase
from glassformer.proofs.case import scattered

DEEP = {
    "encoder (BERT)",
    "decoder",
    "decoder (positions), relative",
    "decoder (attention), tiled, relative",
    "decoder (dropout), dropout",
    "decoder (GPT-2)",
    "encoder-decoder, unequal depth, other source",
    "encoder-decoder (T5)",
}
"""Those that are about several blocks: what one leaves to the next, and the bias, the memory and the keys of all."""


_OF_THE_OP = ("causal", "window", "stride", "padding", "a query that sees nothing", "bias", "dropout")
REPEATED = {
    *(f"Attention, {setting}{tiled}" for setting in _OF_THE_OP for tiled in ("", ", tiled")),
    "Attention, cross, tiled",
    "Attention, no example, tiled",
    *(f"Stack, {positions}, tiled" for positions in ("relative", "ALiBi", "rotary")),
    "Block, pre, RMSNorm, cross",
    "Block, post, RMSNorm, cross",
    "Block, post, dropout",
    "Block, LayerNorm",
    "Block, NoNorm",
    "Block, cross, dropout",
}
"""Layers of parts that JAX compiles elsewhere in every form, combined as in other cases.

Layers hand the settings of attention to its op, which JAX compiles with each of them in `tests/ops/test_jax.py`: cases
of several settings show that. Stacks are handed biases and rotations alike whatever attends, "Attention, everything,
tiled" tries tiles, and "decoder (attention), tiled, relative" both; blocks have both norms without a memory, and one
with it; dropout before a norm is that of "Residual, post, dropout".
"""


REPEATED_MODELS = {
    "decoder, no mask",
    "decoder, unbatched",
    "decoder, two batch axes",
    "encoder (RoBERTa)",
    "encoder-decoder, no masks",
    "encoder-decoder (embeddings), tied",
    "encoder-decoder (original)",
}
"""Models whose layers and ops JAX compiles in the same shapes, and other models of these in other ones."""


def as_deep_as_needed(case: ModelCase) -> ModelCase:
    """Return the same case with one block per stack, unless it is about several."""
    return case if case.name in DEEP else of_one_block(case)


def of_one_block(case: ModelCase) -> ModelCase:
    """Return the same case with one block per stack."""
    model = type(case.model)(case.model.config.replace(layers=1), case.model.execution)
    return replace(case, model=model, params=scattered(model, np.random.default_rng(0)))


def has_its_own_say(case: ModelCase, cases: list[ModelCase]) -> bool:
    """Tell whether a case shows something under JAX that no other does.

    A row about parts of a model, "decoder (norms)", is a product of parts. Each part is proved under JAX in every form
    among the layers, and how models are made of them, which no library has a part in, in every form by NumPy. What is
    left to show is that models hand such parts on: by the first case of the row, and by those about several blocks.
    Rows about no part, such as "decoder", are about the shapes of batches, and most of their cases are needed. An
    encoder-decoder of the same parts or shapes as a decoder's case shows nothing more. All models are traced in
    `tests/models/test_jax.py`.
    """
    if case.name in DEEP:
        return True
    if case.name in REPEATED_MODELS:
        return False
    row = case.name.partition(",")[0]
    is_first = case.name == next(other.name for other in cases if other.name.partition(",")[0] == row)
    twin = case.name.removeprefix("encoder-")
    return (is_first or "(" not in row) and (twin == case.name or twin not in {other.name for other in cases})
