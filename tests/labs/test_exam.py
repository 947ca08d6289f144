"""A sample of the exam of the checker: solutions not used to build it. benchmarks/labs_exam.py runs them all."""

import pytest

from labs_exam import cases, checked

SAMPLE = "softmax", "layer_norm_backward"


def first(part, lab):
    """Return the first case of a lab."""
    return cases(part, lab)[0]


@pytest.mark.parametrize("lab", SAMPLE)
def test_a_wrong_solution_is_named_and_another_right_way_passes(lab):
    case = first("wrong", lab)
    assert checked(lab, case["code"])[0].kind in case["kinds"]
    verdict, _ = checked(lab, first("right", lab)["code"])
    assert verdict, verdict


def test_every_lab_is_examined():
    wrong, right = ([case["lab"] for case in cases(part)] for part in ("wrong", "right"))
    assert len(wrong) == 100
    assert all(wrong.count(lab) >= 3 and right.count(lab) == 5 for lab in set(wrong) | set(right))
    assert len(set(right)) == 25
