"""The gradient of one layer, compared with its slopes by the complex step."""

import numpy as np

from glassformer.proofs import LayerCase, prove_case
from glassformer.proofs.case import scattered


def assert_exact(layer, *, params=None, settings=None, **inputs):
    """Prove the gradients of the parameters and inputs of a layer, far from its first parameters unless given."""
    params = scattered(layer, np.random.default_rng(7)) if params is None else params
    check = prove_case(LayerCase(type(layer).__name__, layer, params, inputs, settings or {}))
    assert check.ok, f"error {check.error:.3g}"
