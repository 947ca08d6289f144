"""Studies of blocks, norms and learning in context: what they measure and find."""

import numpy as np
import pytest

from glassformer.studies import Rows, blocks, in_context, measures, norms

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


def test_a_run_has_a_gradient_for_each_block():
    point = {**norms.STUDY.points(quick=True)[-1], "steps": 2, "eval_every": 2, "warmup": 1, "width": 8, "layers": 3}
    found = norms.measure({**point, "eval_tokens": 512}, 0)
    assert len(found["gradients"]) == 3
    assert (found["failed"], found["diverged"]) == (1, False)
    assert 2.5 < found["entropy"] < 3.8
    assert found == norms.measure({**point, "eval_tokens": 512}, 0)


def test_formulas_see_only_the_examples_before():
    rng = np.random.default_rng(0)
    slope, offset = rng.uniform(-1, 1, size=(2, 50, 1))
    x = rng.uniform(-1, 1, size=(50, 5))
    found = in_context.formulas(x, slope * x + offset, points=4, resolution=1000)
    y = slope * x + offset
    assert all((guess[:, 0] == 0).all() for guess in found.values())
    np.testing.assert_allclose(found["squares"][:, 2:], y[:, 2:], atol=1e-9)  # two points are a line
    np.testing.assert_allclose(found["ridge"][:, 4], y[:, 4], atol=1e-3)
    np.testing.assert_allclose(found["average"][:, 3], y[:, :3].mean(axis=1))


def test_a_run_is_measured_on_prompts_it_never_saw():
    point = {**in_context.grid(True)[0], "points": 3, "steps": 2, "width": 16, "layers": 1, "prompts": 200}
    found = in_context.measure(point, 0)
    assert len(found["model"]) == 4
    assert found["error"] == found["model"][-1]
    assert 0.3 < found["squares"][0] < 0.6
    assert found["squares"][-1] < found["average"][-1]
    assert found["squares"] == in_context.measure(point, 0)["squares"] != in_context.measure(point, 1)["squares"]


def test_figures_leave_out_runs_that_diverged():
    errors = {name: [0.5, 0.2, 0.02, 0.002] for name in ("model", "squares", "ridge", "average")}
    point = {"points": 3, "prompts": 10, "seed": 0}
    rows = Rows([{"layers": 1, **point, "diverged": False, **errors}, {"layers": 3, **point, "diverged": True}])
    assert set(in_context.figures(rows)) == {"error"}
