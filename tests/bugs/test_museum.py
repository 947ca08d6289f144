"""The museum: every check passes as the package is and finds its bug; nothing stays planted."""

import re

import numpy as np
import pytest

import glassformer as gf
from glassformer import ops
from glassformer.bugs import CHECKS, Curves, museum, plant, right_curves
from glassformer.bugs.checks import run_check
from glassformer.bugs.training import SETUPS, train_curves


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("engine", ["numpy", "cpu"])
def test_checks_pass_without_a_bug(name, engine):
    with gf.use_engine(engine):
        finding = run_check(name)
    assert finding.ok, finding.evidence


@pytest.mark.parametrize("name", museum())
def test_each_check_finds_its_bug_and_nothing_stays_planted(name):
    exhibit = museum()[name]
    finding = exhibit.run_check()
    assert not finding.ok, finding.evidence
    with gf.use_engine("numpy"):
        assert run_check(exhibit.check).ok


def test_the_evidence_counts_where_targets_lie():
    """Of four rows of eight, the last target of each comes from another row when targets are shifted twice."""
    assert run_check("next token").evidence == "32 of 32 targets lie 1 token ahead"
    evidence = {name: museum()[name].run_check().evidence for name in ("shifted-twice", "not-shifted")}
    assert evidence["shifted-twice"] == "28 of 32 targets lie 2 tokens ahead, not 1"
    assert evidence["not-shifted"] == "32 of 32 targets lie 0 tokens ahead, not 1"


def test_there_are_many_exhibits_and_most_have_a_public_source():
    exhibits = museum().values()
    assert len(exhibits) >= 30
    assert sum(bool(one.sources) for one in exhibits) >= 25
    assert all(re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", link) for one in exhibits
               for link in one.sources)  # fmt: skip
    assert {one.setup for one in exhibits} <= {*SETUPS, "none"}


def test_curves_that_come_with_the_package_are_those_of_training():
    kept, found = right_curves("majority"), train_curves("majority", (0,), steps=20)
    np.testing.assert_allclose(found.loss[0], kept.loss[0, :2], rtol=0.05)  # a shorter schedule, and rounded


def test_the_effect_of_a_bug_is_read_from_curves():
    right = Curves(np.array([[3.0] * 5 + [1.0] * 5, [3.0] * 5 + [1.1] * 5]))
    ends = {0.9: "too good", 1.05: "silent", 1.5: "worse", 2.5: "stuck", np.nan: "diverges"}
    assert {end: Curves(right.loss * 0 + end).effect(right) for end in ends} == pytest.approx(ends, nan_ok=True)
    assert museum()["future-visible"].effect() == "too good"
    assert museum()["top-p-edge"].effect() == ""


def test_a_planted_bug_changes_results_until_the_block_ends():
    x = np.array([1.0, -2.0])
    before = ops.gelu(x)[0]
    with plant(museum()["gelu-factor"].bug):
        assert not np.allclose(ops.gelu(x)[0], before)
    with pytest.raises(ZeroDivisionError), plant(museum()["gelu-factor"].bug):
        raise ZeroDivisionError
    np.testing.assert_array_equal(ops.gelu(x)[0], before)
