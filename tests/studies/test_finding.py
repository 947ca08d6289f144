"""The generic finding: settings over seeds, beside the one that they are compared with."""

import math

import pytest

from glassformer.core.errors import ConfigError
from glassformer.studies import Rows, Study
from glassformer.studies.finding import compared, findings


def rows_of(losses, **shared):
    return Rows(
        {**shared, "part": part, "seed": seed, "loss": loss}
        for part, values in losses.items()
        for seed, loss in enumerate(values)
    )


def study(**changes):
    about = {"name": "own", "question": "Which?", "grid": {"part": ["none"]}, "measure": lambda point, seed: 1}
    return Study(**{**about, "answers": {"loss": "lowest"}, "whole": {"part": "none"}, **changes})


def verdicts(study, rows):
    return [[(*one.setting.values(), one.verdict) for one in comparison] for comparison in compared(study, rows)]


LOSSES = {"none": (2.0, 2.2), "norm": (2.1, 2.4), "head": (3.0, 3.2), "mask": (1.0, 1.2), "all": (2.5, math.nan)}


def test_a_setting_is_better_or_worse_where_no_seed_reaches_the_whole_and_failures_are_worst():
    [found] = verdicts(study(), rows_of(LOSSES))
    assert found == [
        ("none", "whole"), ("mask", "better"), ("norm", "no clear difference"), ("all", "worse"), ("head", "worse"),
    ]  # fmt: skip
    [found] = verdicts(study(answers={"loss": "highest"}), rows_of(LOSSES))
    assert found[1:] == [
        ("head", "better"), ("all", "no clear difference"), ("norm", "no clear difference"), ("mask", "worse"),
    ]  # fmt: skip

    [found] = compared(study(), rows_of({"none": (2.0, 2.2), "gone": (math.nan, math.nan), "odd": (1.0, math.nan)}))
    assert [(one.verdict, one.lacking) for one in found] == [("whole", 0), ("no clear difference", 1), ("worse", 2)]
    [found] = verdicts(study(), rows_of({"none": (math.nan, math.nan), "norm": (1.0, 1.1)}))
    assert found == [("none", "whole"), ("norm", "better")]


def test_other_settings_are_averaged_within_each_seed():
    rows = [
        *rows_of({"none": (1.0, 1.1), "norm": (2.0, 2.1)}, lr=1),
        *rows_of({"none": (5.0, 5.1), "norm": (6, 6.1)}, lr=2),
    ]
    [found] = compared(study(), Rows(rows))
    assert [(one.verdict, round(one.result.mean, 2), one.result.runs) for one in found] == [
        ("whole", 3.05, 2),
        ("worse", 4.05, 2),
    ]


def test_the_finding_has_a_sentence_for_each_group_answer_and_setting():
    rows = Rows([*rows_of(LOSSES, task="text"), *rows_of({"norm": (1.0, 1.0)}, task="copy")])
    one, other, caveat = findings(study(by=("task",), caveat="None was tuned."), rows, ["task", "part"])
    assert one.startswith(
        "loss with task=text is 2.10 ± 0.10 at part=none (mean of 2 seeds); better: mask 1.10 ± 0.10;"
    )
    assert "worse: all 2.5 (1 run without), head 3.10 ± 0.10; no clear difference: norm 2.25 ± 0.15." in one
    assert other == "loss with task=copy is 1 (mean of 2 seeds)."
    assert caveat == "None was tuned."


def test_one_seed_tells_nothing_and_without_a_whole_the_ends_are_named():
    alone = rows_of({"none": (1.0,), "norm": (2.0,)})
    assert findings(study(), alone, ["part"]) == ["loss is 1 at part=none (1 seed); unknown spread: norm 2."]
    plain = findings(study(whole={}), alone, ["part"])
    assert plain == ["loss is lowest at part=none (1; 1 seed) and highest at part=norm (2; 1 seed)."]
    assert findings(study(whole={}), rows_of({"none": (math.nan,)}), ["part"]) == ["No run has a finite loss."]


def test_settings_that_no_point_has_are_refused_and_may_be_derived_from_the_rows():
    for changes in ({"whole": {"parts": "none"}}, {"by": ("parts",)}):
        with pytest.raises(ConfigError, match="did you mean 'part'"):
            study(**changes).points()
    halved = study(derived=lambda rows: Rows({**row, "loss": row["loss"] / 2} for row in rows))
    [[whole, _]] = compared(halved, rows_of({"none": (2.0,), "norm": (3.0,)}))
    assert whole.result.mean == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"answers": {}}, "no answer"), ({"answers": {"loss": "smallest"}}, "lowest"), ({"derived": 3}, "derived of")],
)
def test_a_study_that_cannot_compare_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        study(**changes)
