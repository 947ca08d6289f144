"""What is measured over the course of a training: arrays by step, of any function of a frame."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.api.learn import replay
from glassformer.core.errors import ConfigError
from glassformer.runs.measurements import (
    attention_on,
    gradient_norms_on,
    measure,
    samples,
    scored,
    weight_norms,
)
from glassformer.runs.start import new_session
from runs import TINY

BATCH = gf.Batch(np.array([[1, 2, 0, 1]]), np.array([[2, 0, 1, 2]]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "run"
    session = new_session("sort", folder, settings={**TINY["sort"], "steps": 5}, recorded=True)
    assert [record.step for record in session.steps()] == [1, 2, 3, 4, 5]
    return replay(folder)


@pytest.fixture(scope="module")
def course(run):
    measures = {
        "attention": attention_on(BATCH),
        "gradient": gradient_norms_on(BATCH),
        "weight": weight_norms,
        "table": lambda frame: {"embedding": frame.params["embedding"]["tokens"]["table"]},
        "heads": scored(lambda model, params: np.full((1, 2), len(params))),
        "answers": samples(1),
    }
    told = []
    found = measure(run, [0, 2, 5], measures, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    return found


def test_every_measure_has_a_row_for_each_step(run, course):
    assert course.steps.tolist() == [0, 2, 5]
    assert course["attention"].shape == (3, 1, 2, 4, 4)
    assert course["heads"].shape == (3, 1, 2)
    assert len(course["answers"]) == 3
    frame = run.at(2)
    assert course["loss"][1] == frame.loss
    assert np.isnan(course["loss"][0])
    assert np.array_equal(course["table.embedding"][1], frame.params["embedding"]["tokens"]["table"])
    table = np.linalg.norm(frame.params["embedding"]["tokens"]["table"])
    assert course["weight.embedding.tokens.table"][1] == pytest.approx(table)
    _, grads = frame.model.loss_and_grads(frame.params, BATCH)
    want = np.linalg.norm(grads["embedding"]["tokens"]["table"])
    assert course["gradient.embedding.tokens.table"][1] == pytest.approx(want)
    _, saved = frame.model.forward(frame.trained.params, BATCH.tokens)
    np.testing.assert_allclose(course["attention"][1, 0], saved["blocks"][0]["attention"].weights[0], rtol=1e-5)


def test_a_course_is_ready_for_json(course):
    plain = json.loads(json.dumps(course.to_dict(), allow_nan=False))
    assert plain["step"] == [0, 2, 5]
    assert plain["loss"][0] is None


def test_what_cannot_be_measured_is_refused(run, course):
    with pytest.raises(ConfigError, match="nothing called 'los' was measured"):
        course["los"]
    with pytest.raises(ConfigError, match="no steps to measure"):
        measure(run, [])
    with pytest.raises(ConfigError, match="does not return the same for every frame"):
        measure(run, [0, 1], {"odd": lambda frame: np.zeros(frame.step + 1)})


def test_the_examples_of_the_documentation_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("glassformer.plots.style.DPI", 30)
    session = new_session(
        "induction", Path("runs/induction"), settings={**TINY["induction"], "steps": 4}, recorded=True
    )
    assert [record.step for record in session.steps()][-1] == 4
    words = (Path(__file__).parents[2] / "docs" / "guides" / "replay.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", words, flags=re.DOTALL):
        exec(block.replace("at(300)", "at(3)").replace("abcdea", "abca"), names)
    assert names["course"]["attention"].shape[0] == 5
    assert names["course"]["previous token"].shape == (5, 1, 2)
    assert (tmp_path / "replay.html").stat().st_size > 1000
