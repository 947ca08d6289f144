"""The study `norms`: what is measured of a run, and the three things that rows may say."""

import pytest

from glassformer.studies import Rows, norms


def test_a_run_has_a_gradient_for_each_block():
    point = {**norms.STUDY.points(quick=True)[-1], "steps": 2, "eval_every": 2, "warmup": 1, "width": 8, "layers": 3}
    found = norms.measure({**point, "eval_tokens": 512}, 0)
    assert len(found["gradients"]) == 3
    assert (found["failed"], found["diverged"]) == (1, False)
    assert 2.5 < found["entropy"] < 3.8
    assert found == norms.measure({**point, "eval_tokens": 512}, 0)


def rows_of(failing):
    return Rows(
        {"norm_position": place, "layers": layers, "warmup": warmup, "lr": 0.1, "steps": 100, "seed": seed,
         "loss": 3.0, "entropy": 3.2, "failed": int((place, layers, warmup) in failing), "gradients": [1.0, 2.0]}
        for place in ("pre", "post") for layers in (2, 12) for warmup in (0, 10) for seed in (0, 1)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ({("post", 12, 0)}, "As published, pre-norm needs no warm-up, and one helps post-norm"),
        ({("post", 12, 0), ("post", 12, 10)}, "Half as published"),
        ({("pre", 12, 0), ("post", 12, 0)}, "Not as published"),
    ],
)
def test_findings_follow_the_rows(failing, said):
    first, _, warm, before, after = norms.finding(rows_of(failing))
    assert said in first
    assert "2 of 2 runs with 12 blocks" in first
    assert ("none of 4 runs, pre-norm" in warm) == (("post", 12, 10) not in failing)
    assert "2 times that of the first, with pre-norm" in before
    assert "post-norm" in after


def test_figures_are_drawn():
    assert set(norms.figures(rows_of(()))) == {"norms"}
