"""Runs are resumed from Python as from the shell: to the same bits."""

import itertools

import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from runs import TINY, assert_same_run

PLAN = {**TINY["majority"], "steps": 6, "eval_every": 2, "save_every": 2}


def test_a_resumed_run_ends_with_the_same_bits_as_one_never_interrupted_also_past_its_end(tmp_path):
    gf.train("majority", out=tmp_path / "whole", show=False, **PLAN)
    list(itertools.islice(gf.Loop("majority", out=tmp_path / "cut", **PLAN), 3))
    model = gf.resume(tmp_path / "cut", show=False)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    assert len(model.history) == 6
    assert model.classify(["0" * 8])

    gf.train("majority", out=tmp_path / "run", show=False, **PLAN)
    assert [record.step for record in gf.Loop.resume(tmp_path / "run", steps=8)] == [7, 8]
    with pytest.raises(ConfigError, match="has taken 8 steps already"):
        gf.Loop.resume(tmp_path / "run", steps=8)
