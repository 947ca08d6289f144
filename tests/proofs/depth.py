"""How many blocks a model under JAX needs to show what its case is about: it takes as long to compile as it is deep."""

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
