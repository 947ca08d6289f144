"""The study `norms`: what is measured of a run."""

from glassformer.studies import Rows, norms


def test_a_run_has_a_gradient_for_each_block():
    point = {**norms.STUDY.points(quick=True)[-1], "steps": 2, "eval_every": 2, "warmup": 1, "width": 8, "layers": 3}
    found = norms.measure({**point, "eval_tokens": 512}, 0)
    assert len(found["gradients"]) == 3
    assert (found["failed"], found["diverged"]) == (1, False)
    assert 2.5 < found["entropy"] < 3.8
    assert found == norms.measure({**point, "eval_tokens": 512}, 0)


def test_figures_are_drawn():
    rows = Rows(
        {"norm_position": place, "layers": layers, "warmup": warmup, "lr": 0.1, "steps": 100, "seed": seed,
         "loss": 3.0, "entropy": 3.2, "failed": 0, "gradients": [1.0, 2.0]}
        for place in ("pre", "post") for layers in (2, 12) for warmup in (0, 10) for seed in (0, 1)
    )  # fmt: skip
    assert set(norms.figures(rows)) == {"norms"}
