"""Whole models against a second implementation in PyTorch: logits, loss and every gradient."""

import numpy as np
import pytest

from glassformer.core.tree import flatten
from glassformer.proofs.gradient import relative_error
from proof_cases import MODEL_CASES

LIMIT = 1e-11


def comparable(case):
    """Whether the twin can say it, and PyTorch gives a number."""
    shape = case.batch.tokens.shape
    if not case.has_loss or len(shape) != 2 or shape[0] == 0 or (case.batch.targets < 0).all():
        return False
    # The record of tiled attention holds a key, not the mask that the twin would need.
    return "key" not in case.settings or case.model.execution.tile is None


CASES = [case for case in MODEL_CASES if comparable(case)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_model_equals_its_twin(torch, case):
    from torch_twin import twin_loss_and_grads

    loss, grads = case.model.loss_and_grads(case.params, case.batch, **case.settings)
    twin_loss, twin_grads, twin_logits = twin_loss_and_grads(case)
    assert relative_error(case.forward()[0], twin_logits) <= LIMIT
    assert relative_error(loss, np.asarray(twin_loss)) <= LIMIT
    grads = flatten(grads)
    assert grads.keys() == twin_grads.keys()
    for name, grad in grads.items():
        found = relative_error(grad, twin_grads[name])
        assert found <= LIMIT, f"{name}: error {found:.3g}"


def test_every_family_is_compared():
    names = {case.name for case in CASES}
    families = {
        "decoder (GPT-2)",
        "decoder (Llama)",
        "encoder (BERT)",
        "encoder-decoder (original)",
        "encoder-decoder (T5)",
    }
    assert families | {"decoder (positions), rotary, interleaved", "encoder (BERT), dropout"} <= names
    assert len(names) > 80
