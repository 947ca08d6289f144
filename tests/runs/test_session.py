"""Sessions: resumed is uninterrupted, bit for bit; settings find their owner; presets fit the task."""

import itertools
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.core.dispatch import use_engine
from glassformer.core.errors import ConfigError, DataError
from glassformer.data import TASKS
from glassformer.generation.answer import samples
from glassformer.runs.session import TrainingSession
from glassformer.runs.start import new_session, resume_session
from glassformer.training.trainer import final_params
from runs import TINY, TINY_MODEL, assert_same_bits, assert_same_run, finish, tiny_session

CASES = {
    "adamw, dropout and an average": ("majority", {"dropout": 0.2, "ema": 0.9}),
    "muon": ("majority", {"optimizer": "muon", "lr": 0.02, "dropout": 0.1}),
    "sgd with momentum, accumulated, padded": (
        "lines",
        {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1, "accumulate": 2, "dropout": 0.1},
    ),
    "sgd without momentum": ("sort", {"optimizer": "sgd", "lr": 0.1}),
    "adam, an encoder-decoder, smoothed labels": (
        "dates",
        {"optimizer": "adam", "label_smoothing": 0.1, "dropout": 0.1, "ema": 0.5},
    ),
    "lion, random windows": ("text", {"optimizer": "lion", "lr": 1e-3, "dropout": 0.1}),
    "patience": ("majority", {"patience": 2, "lr": 0.9, "eval_every": 1}),
}
PLAN = {"steps": 12, "eval_every": 4, "save_every": 5, "warmup": 3}


def interrupt(session, steps):
    list(itertools.islice(session.steps(), steps))
    return session


@pytest.mark.parametrize("case", CASES)
def test_resumed_is_uninterrupted(case, tmp_path):
    task, settings = CASES[case]
    whole = finish(tiny_session(task, tmp_path / "whole", **{**PLAN, **settings}))
    # Ended without a word after 0, 3, 5, 7 and 11 steps: before, at and between checkpoints.
    for stop in (0, 3, 5, 7, 11):
        folder = tmp_path / f"cut-{stop}"
        interrupt(tiny_session(task, folder, **{**PLAN, **settings}), stop)
        resumed = finish(resume_session(folder))
        assert_same_run(folder, whole.run.folder)
        assert_same_bits(resumed.state.ema, whole.state.ema)


def test_a_run_keeps_its_best_parameters_or_its_last(tmp_path):
    worse = {"steps": 6, "eval_every": 1, "optimizer": "sgd", "lr": 50.0, "warmup": 1, "schedule": "constant"}
    best = finish(tiny_session("majority", tmp_path / "best", **worse))
    last = finish(tiny_session("majority", tmp_path / "last", keep="last", **worse))
    assert not best.run.metrics()[-1]["best"]  # so the two differ
    assert_same_bits(last.load_params(), last.state.params)
    assert_same_bits(last.state.params, best.state.params)
    with pytest.raises(AssertionError):
        assert_same_bits(best.load_params(), best.state.params)
    with pytest.raises(ConfigError, match="keep is"):
        tiny_session("majority", tmp_path / "none", keep="worst")


def test_a_resume_that_has_nothing_to_do_leaves_the_files_alone(tmp_path):
    folder = finish(tiny_session("majority", tmp_path / "run", steps=2, eval_every=1)).run.folder
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    finish(resume_session(folder))
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_step_whose_best_parameters_were_being_saved_at_ctrl_c_is_recorded_once(tmp_path, monkeypatch, in_memory):
    saved, save = [], TrainingSession._save_best

    def interrupted(self, state):
        saved.append(state.step)
        if len(saved) == 2:
            signal.raise_signal(signal.SIGINT)
        save(self, state)

    monkeypatch.setattr(TrainingSession, "_save_best", interrupted)
    plan = {"steps": 6, "eval_every": 2}
    if in_memory:
        session = new_session("majority", settings={**TINY["majority"], **plan})
    else:
        session = tiny_session("majority", tmp_path / "run", **plan)
    with pytest.raises(KeyboardInterrupt):
        finish(session)
    assert [line["step"] for line in finish(session).metrics()] == [1, 2, 3, 4, 5, 6]


def test_an_iterator_that_a_program_leaves_unfinished_writes_all_its_metrics(tmp_path):
    code = f"""
import sys, itertools
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from runs import tiny_session
steps = tiny_session("majority", Path({str(tmp_path / "run")!r}), steps=50, eval_every=50).steps()
for _ in range(20):
    next(steps)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 20
    assert not (tmp_path / "run" / "holder.json").exists()


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_learned_and_answers_its_prompts_by_its_best_parameters(task, tmp_path):
    with use_engine("numpy"):
        session = finish(tiny_session(task, tmp_path / "run", steps=2, eval_every=1))
        assert [line["step"] for line in session.run.metrics()] == [1, 2]
        best = session.best
        assert_same_bits(best.params, session.load_params())
        answers = samples(best, 1, 4)
    assert [question for question, _ in answers] == list(session.task.prompts[:1])


def test_saved_at_any_step_is_uninterrupted(tmp_path):
    whole = finish(tiny_session("majority", tmp_path / "whole", **PLAN, dropout=0.2, ema=0.9))
    session = tiny_session("majority", tmp_path / "cut", **PLAN, dropout=0.2, ema=0.9)
    for _ in range(12):
        interrupt(session, 1).save()  # as Ctrl-C does
        session = resume_session(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", whole.run.folder)


def test_validation_data_is_used_where_there_is_some(tmp_path):
    session = tiny_session("lines", tmp_path / "run")
    params = final_params(session.state, session.run.recipe)
    assert session.evaluate(params).targets == session.task.validation.count
    assert session.test(params).targets == session.task.held_out.count
    session = tiny_session("majority", tmp_path / "other")
    assert session.evaluate(params := session.state.params) == session.test(params)


def test_settings_find_their_owner(tmp_path):
    settings = {**TINY_MODEL, "tokenizer": "bytes", "context": 12, "dropout": 0.25, "lr": 0.5, "steps": 3}
    session = new_session("text", tmp_path / "run", settings=settings, seed=4)
    assert session.run.task_options == {"seed": 4, "tokenizer": "bytes", "context": 12}
    assert (session.run.config.width, session.run.config.dropout, session.run.config.context) == (8, 0.25, 12)
    assert (session.run.recipe.lr, session.run.recipe.steps, session.run.recipe.seed) == (0.5, 3, 4)
    assert session.task.tokenizer.size == session.run.config.vocab


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("majorty", {}, "there is no task 'majorty'.*did you mean 'majority'"),
        ("majority", {"widht": 8}, "there is no setting 'widht'.*did you mean 'width'"),
        ("majority", {"seed": 8}, "there is no setting 'seed'.*use --seed"),
        ("majority", {"width": "wide"}, "width is 'wide'"),
        ("majority", {"width": 33}, "width 33 is not divisible by 4 heads"),
        ("majority", {"train": "all"}, "train is 'all'.*a whole number"),
        ("majority", {"train": 6400}, "there are 6,561 different ones"),
        ("majority", {"source_vocab": 8}, "EncoderConfig has no setting 'source_vocab'"),
        ("dates", {"locales": "de"}, "locales is 'de'.*a list"),
        ("dates", {"locales": ["xx"]}, "xx"),
        ("text", {"tokenizer": "words"}, "tokenizer is 'words'"),
        ("majority", {"steps": "many"}, "steps is 'many'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_a_folder_is_made(task, settings, message, tmp_path):
    with pytest.raises(ConfigError, match=re.compile(message, re.DOTALL)):
        new_session(task, tmp_path / "run", settings=settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("text", None, "nowhere"),
        ("lines", None, "nowhere"),
        ("text", b"caf\xe9 " * 50, "UTF-8"),
        ("lines", b"caf\xe9\nbar\n" * 50, "UTF-8"),
        ("text", b"", "."),
        ("lines", b"one\n", "."),
    ],
)
def test_data_that_cannot_serve_is_refused(task, content, message, tmp_path):
    path = tmp_path / ("nowhere.txt" if content is None else "data.txt")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        new_session(task, tmp_path / "run", data=str(path))
    assert not (tmp_path / "run").exists()


def test_data_for_a_task_without_any_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="'majority' has no option 'data'"):
        new_session("majority", tmp_path / "run", data="names.txt")


@pytest.mark.parametrize(("task", "preset"), [("text", "gpt2"), ("majority", "bert-base")])
def test_a_preset_keeps_the_vocabulary_of_the_task(task, preset, tmp_path):
    small = {"width": 8, "heads": 2, "layers": 1, "feed_forward": 8}
    session = new_session(task, tmp_path / "run", preset=preset, settings={**small, "steps": 1, "batch": 2})
    config = session.run.config
    assert config.vocab == session.task.tokenizer.size
    assert config.context == session.task.settings["context"]
    assert config.init_std == 0.02
    assert next(session.steps()).loss > 0


def test_a_preset_of_another_architecture_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="architecture of 'gpt2' is 'decoder', but 'majority' needs 'encoder'"):
        new_session("majority", tmp_path / "run", preset="gpt2")
    with pytest.raises(ConfigError, match="there is no preset 'gpt-2'") as caught:
        new_session("text", tmp_path / "run", preset="gpt-2")
    assert "did you mean 'gpt2" in str(caught.value)
