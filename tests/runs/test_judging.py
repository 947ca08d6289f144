"""Judging a classifier: what is easy, early stops, labels that are doubted, and how often a sure answer is right."""

import csv
import json
import random
import sys

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError
from glassformer.data import build_task
from glassformer.runs.judging import Judged, doubted, read_confidence, samples, write_confidence
from glassformer.training import Evaluation, Recipe
from glassformer.training.loop import StepRecord, apply_evaluation
from glassformer.training.trainer import TrainingState
from runs import TINY_MODEL, command, tiny_session

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")

GOOD, BAD = ("great", "lovely", "superb", "fine"), ("poor", "awful", "weak", "broken")
PLANTED = 0.03


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return a table of texts that two words decide, the file and those whose label is wrong."""
    draw, rows, wrong = random.Random(0), [], set()
    for number in range(1200):
        good = draw.random() < 0.6
        text = f"number {number} is {draw.choice(GOOD if good else BAD)}, really {draw.choice(GOOD if good else BAD)}"
        if draw.random() < PLANTED:
            good = not good
            wrong.add(text)
        rows.append((text, "good" if good else "bad"))
    path = tmp_path_factory.mktemp("judged") / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path, wrong


@pytest.fixture(scope="module")
def trained(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged") / "run"
    small = [f"--set={name}={value}" for name, value in {**TINY_MODEL, "init_std": 0.2}.items()]
    result = command("train", "classify", "--data", table[0], "--out", folder, *small)
    assert result.code == 0, result.err
    return folder, result


def test_training_says_what_is_easy_when_it_stopped_and_shows_samples_with_their_labels(trained):
    folder, result = trained
    lines = result.out.splitlines()
    [easy] = [line for line in lines if line.startswith("95 % interval ")]
    assert "always the commonest class: " in easy
    assert "a bag of words (naive Bayes): 9" in easy
    [stop] = [line for line in lines if line.startswith("stopped at step ")]
    assert "5 evaluations brought nothing better" in stop
    assert sum(line.endswith(", right") for line in lines) >= 2
    again = command("train", "--resume", folder, "--json")
    found = json.loads(again.out)
    assert f"{folder} {found['stopped_early']}; --steps N goes on" in again.err
    assert 0.5 < found["commonest"] < 0.65
    assert found["bag_of_words"] > 0.9
    low, high = found["interval"]
    assert low < found["accuracy"] < high


def test_a_model_that_is_worse_than_a_bag_of_words_is_told(table, tmp_path):
    result = command("train", "classify", "--data", table[0], "--steps", 1, "--out", tmp_path / "run")
    assert "a bag of words is better than this model" in result.out
    [wrong] = [line for line in result.out.splitlines() if "wrong: its label is" in line]
    assert wrong.startswith("  '")


def test_eval_and_python_say_what_is_easy_and_doubt_the_labels_that_are_wrong(trained, table):
    folder, planted = trained[0], table[1]
    found = json.loads(command("eval", folder, "--json").out)
    measured = gf.load(folder).evaluate()
    assert (measured.commonest, measured.bag) == (found["commonest"], found["bag_of_words"])
    assert list(measured.interval) == found["interval"]
    assert "commonest=" in repr(measured)
    in_turn = [row["text"] for row in found["doubted_in_turn"]]
    assert len(in_turn) == 10
    assert sum(text in planted for text in in_turn) >= 9
    held_out = [row["text"] for row in found["doubted"]]
    assert held_out
    assert all(text in planted for text in held_out)
    assert not set(held_out) & set(in_turn)
    lines = command("eval", folder).out.splitlines()
    assert any(line.startswith("# held-out texts whose label the model doubts most") for line in lines)
    assert any(line.startswith(held_out[0]) for line in lines)


def test_predict_abstains_below_a_probability_and_says_how_often_it_is_right_above(trained, tmp_path):
    texts = ["number 3 is great, really lovely", "great, really poor"]
    said = json.loads(command("predict", trained[0], *texts, "--json").out)["predictions"]
    sure, unsure = (each["probability"] for each in said)
    assert sure > unsure
    level = f"{(sure + unsure) / 2:.4f}"
    result = command("predict", trained[0], *texts, "--at-least", level, "--json")
    answers = [each["answer"] for each in json.loads(result.out)["predictions"]]
    assert answers == ["good", None]
    known = read_confidence(trained[0], float(level))
    assert f"{known.right / known.answered:.1%} of the {known.answered:,} answers" in result.err
    assert "\t–\t" in command("predict", trained[0], *texts, "--at-least", level).out
    (tmp_path / "in.csv").write_text("text\n" + "\n".join(f'"{text}"' for text in texts), encoding="utf-8")
    written = command("predict", trained[0], "--file", tmp_path / "in.csv", "--at-least", level).out
    assert [row["prediction"] for row in csv.DictReader(written.splitlines())] == ["good", ""]
    (trained[0] / "confidence.json").rename(tmp_path / "away")
    assert "was not measured" in command("predict", trained[0], *texts, "--at-least", level).err
    (tmp_path / "away").rename(trained[0] / "confidence.json")


def test_models_that_tell_no_classes_apart_cannot_abstain(tmp_path):
    list(tiny_session("text", tmp_path / "run", steps=1).steps())
    assert "nan is no probability" in command("predict", tmp_path / "run", "The ", "--at-least", "nan").err
    result = command("predict", tmp_path / "run", "The ", "--at-least", 0.5)
    assert result.code == 2
    assert "tells no classes apart" in result.err


def test_confidence_counts_the_answers_that_are_at_least_so_sure(tmp_path):
    judged = [Judged("t", "a", "a" if right else "b", p, 0.1) for p, right in ((1.0, 1), (0.8, 1), (0.8, 0), (0.5, 0))]
    write_confidence(tmp_path, judged)
    assert read_confidence(tmp_path, 0.8) == (3, 2, 4)
    assert read_confidence(tmp_path, 0.81) == (1, 1, 4)
    assert read_confidence(tmp_path, 1.0) == (1, 1, 4)
    assert read_confidence(tmp_path / "nowhere", 0.5) is None
    assert [each.is_right for each in samples(judged)] == [True, True, False]
    assert len(doubted(judged, 1)) == 1


def test_the_most_accurate_checkpoint_may_be_kept_instead_of_the_one_with_the_lowest_loss(tmp_path):
    steps = ((1.0, 0.5), (0.9, 0.6), (1.2, 0.7), (0.8, 0.7))
    kept = {}
    for keep in ("best", "accurate"):
        state, recipe = TrainingState(0, {}, {}), Recipe(keep=keep, patience=2)
        for number, (loss, accuracy) in enumerate(steps, 1):
            record = StepRecord(number, 1.0, 0.1, 1.0, 1, 0.1)
            state, record = apply_evaluation(state, record, recipe, Evaluation(loss, 1, 1, accuracy))
            kept[keep] = number if record.is_best else kept[keep]
    assert kept == {"best": 4, "accurate": 3}
    with pytest.raises(ConfigError, match="has no right answers"):
        tiny_session("text", tmp_path / "run", keep="accurate")


def test_the_interval_is_wilson_s():
    # Wilson (1927), as statsmodels.stats.proportion.proportion_confint(80, 100, method="wilson") gives it.
    np.testing.assert_allclose(Evaluation(0.0, 100, 100, 0.8).interval, (0.711170, 0.866632), atol=1e-4)
    low, high = Evaluation(0.0, 10, 10, 1.0).interval
    assert 0.7 < low < high == pytest.approx(1)
    assert Evaluation(0.0, 1, 1).interval is None


def test_a_run_keeps_its_tokenizer_when_the_default_changes(trained, table, tmp_path, monkeypatch):
    before = json.loads(command("eval", trained[0], "--json").out)
    saved = gf.save(gf.load(trained[0]), tmp_path / "saved")
    monkeypatch.setattr(sys.modules["glassformer.data.tasks.classify"], "PIECES", (150, 150))
    anew = build_task("classify", data=str(table[0]))
    assert anew.tokenizer.size < gf.load(trained[0]).tokenizer.size
    for place in (trained[0], saved):
        result = command("eval", place, "--json")
        assert result.code == 0, result.err
        assert json.loads(result.out)["accuracy"] == before["accuracy"]
