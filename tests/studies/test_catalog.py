"""All studies that come with the package: each is complete, and all its points can run."""

import inspect
import re

import pytest

from glassformer.studies import read_study, studies

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
    assert study.figures is not None
    assert len(study.points(quick=True)) <= len(study.points())


@pytest.mark.parametrize("name", NAMES)
def test_figures_of_the_full_run_have_titles_and_words(name):
    figures = studies()[name].figures(read_study(name).rows)
    assert figures
    assert all(re.fullmatch(r"[A-Z].+: \S.+", figure.get_label()) for figure in figures.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_full_run_that_comes_with_the_package_is_of_this_grid(name):
    study, result = studies()[name], read_study(name)
    runs = [{**point, "seed": seed} for seed in range(study.seeds) for point in study.points()]
    kept = [{key: row[key] for key in (*result.settings, "seed") if row[key] is not None} for row in result.rows]
    assert {str(sorted(run.items())) for run in runs} == {str(sorted(run.items())) for run in kept}
    assert len(kept) == len(runs)
    assert all(machine["system"] for machine in result.machines)
    assert not result.quick
    assert len(result.findings) >= 2
    assert all(sentence.endswith(".") for sentence in result.findings)
    assert set(result.columns) <= set(result.rows.columns)
