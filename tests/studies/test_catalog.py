"""All studies that come with the package: each is complete, and all its points can run."""

import inspect

import pytest

from glassformer.studies import studies

NAMES = [
    "blocks",
    "cost",
    "grokking",
    "in_context",
    "induction",
    "norms",
    "optimizers",
    "parts",
    "positions",
    "scaling",
    "superposition",
    "tricks",
]


def test_all_studies_are_found():
    assert list(studies()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_study_is_complete_and_its_points_can_run(name, numpy_engine):
    study = studies()[name]
    assert study.question.endswith("?")
    assert study.published.endswith(".")
    assert inspect.getmodule(study.measure).__name__ == f"glassformer.studies.{name}"
    assert study.finding is not None
    assert study.figures is not None
    assert len(study.points(quick=True)) <= len(study.points())
