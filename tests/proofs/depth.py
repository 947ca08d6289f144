"""Which models need to be compiled by JAX, and with how many blocks, to show what their cases are about.

A model takes as long to compile as it is deep.
"""

from dataclasses import replace

import numpy as np

from glassformer.proofs import ModelCase
from glassformer.proofs.layer_cases import scattered

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


def as_deep_as_needed(case: ModelCase) -> ModelCase:
    """Return the same case with one block per stack, unless it is about several."""
    if case.name in DEEP:
        return case
    model = type(case.model)(case.model.config.replace(layers=1), case.model.execution)
    return replace(case, model=model, params=scattered(model, np.random.default_rng(0)))


def has_its_own_say(case: ModelCase, cases: list[ModelCase]) -> bool:
    """Tell whether a case shows something under JAX that no other does.

    An encoder-decoder of the same parts as a decoder's case does not: the parts are proved there, with a memory among
    the layers, and how two stacks are put together by the encoder-decoders that no decoder is like. All are traced in
    `tests/models/test_jax.py`.
    """
    twin = case.name.removeprefix("encoder-")
    return twin == case.name or "(" not in twin or twin not in {other.name for other in cases}
