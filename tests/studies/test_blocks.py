"""The study `blocks`: heads that look at all alike score zero."""

import numpy as np
import pytest

from glassformer.studies import Rows, blocks, measures

POINT = {"task": "majority", "steps": 1, "eval_every": 1, "train": 50, "layers": 2, "heads": 4}


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_head_that_looks_at_all_alike_is_not_special(pooling, monkeypatch):
    def even(**settings):
        model = measures.trained(**settings)
        for block in model.params["blocks"]:
            block["attention"]["query"]["w"][:] = 0
            block["attention"]["query"]["b"][:] = 0
        return model

    monkeypatch.setattr(blocks, "trained", even)
    found = blocks.measure({**POINT, "pooling": pooling}, 0)
    assert len(found["equal"]) == len(found["favorite"]) == 8
    np.testing.assert_allclose([*found["equal"], *found["favorite"]], 0, atol=1e-6)
    assert found["specialized"] == 0


def test_figures_are_drawn():
    rows = Rows(
        {"train": 50, "layers": layers, "pooling": pooling, "heads": heads, "seed": seed, "accuracy": 1.0,
         "equal": [0.3], "favorite": [0.01]}
        for layers in (1, 2) for pooling in ("mean", "cls") for heads in (1, 4) for seed in (0, 1)
    )  # fmt: skip
    assert set(blocks.figures(rows)) == {"blocks"}
