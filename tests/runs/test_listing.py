"""The runs in a folder, the broken ones included: what their metrics say, and what they are beside each other."""

import json
import os
import shutil
from dataclasses import MISSING

import pytest

from glassformer.core.errors import ConfigError
from glassformer.runs.listing import (
    ROWS,
    changed_settings,
    curves_of,
    differing,
    figures_of,
    judged,
    list_runs,
    losses_by,
    summarize,
)
from glassformer.runs.run import open_run
from glassformer.runs.start import new_session
from runs import TINY, edit_config, finish, tiny_session, write_data

CHANGED = {name: value for name, value in TINY["majority"].items() if name != "layers"}
"""What the small settings change: its model has one layer anyway."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs, one of them deeper, and three folders that are none or no longer one."""
    folder = tmp_path_factory.mktemp("runs")
    finish(tiny_session("majority", folder / "old", steps=6, eval_every=2))
    finish(tiny_session("sort", folder / "deep" / "er" / "new", steps=2, seed=3))
    (folder / "damaged").mkdir()
    shutil.copy(folder / "old" / "config.json", folder / "damaged")
    edit_config(folder / "damaged", lambda content: content["recipe"].update(schedule="zigzag"))
    (folder / "headless").mkdir()
    (folder / "headless" / "metrics.jsonl").write_text('{"step": 1}\n')
    (folder / "published").mkdir()
    (folder / "published" / "config.json").write_text('{"model_type": "gpt2"}')
    (folder / "notes").mkdir()
    for age, name in enumerate(["deep/er/new", "headless", "damaged", "old"]):
        for path in (folder / name).iterdir():
            os.utime(path, (1e9 - age, 1e9 - age))
    return folder


def test_the_newest_run_comes_first_and_says_how_far_it_came(folder):
    found = list_runs(folder)
    assert [str(one.folder.relative_to(folder)) for one in found] == ["deep/er/new", "headless", "damaged", "old"]
    assert [one.task for one in found] == ["sort", "", "", "majority"]
    assert "it has no config.json" in found[1].error
    assert "damaged has the schedule 'zigzag', which is not built in" in found[2].error

    one = summarize(folder / "old")
    assert (one.step, one.steps, one.error) == (6, 6, None)
    metrics = open_run(folder / "old").metrics()
    assert one.loss == metrics[-1]["loss"]
    assert one.val_loss == metrics[-1]["val_loss"]
    assert one.best_loss == min(line["val_loss"] for line in metrics if "val_loss" in line)
    assert 0 <= one.accuracy <= 1
    assert one.record["engine"] in ("cpu", "numpy")
    json.dumps(one.to_dict())


def test_a_folder_that_is_a_run_is_listed_alone_and_one_before_its_first_step_too(folder, tmp_path):
    (one,) = list_runs(folder / "old")
    assert one.folder == folder / "old"
    tiny_session("majority", tmp_path / "run", steps=5)
    one = summarize(tmp_path / "run")
    assert (one.step, one.steps, one.loss, one.best_loss, one.error) == (0, 5, None, None, None)


@pytest.mark.parametrize(
    "content", [b"12\n", b"{}\n", b"\xff\xfe\n", b'{"step": "x"}\n', b'{"step": 3, "val_loss": null}\n']
)
def test_damaged_metrics_are_left_out(content, tmp_path):
    finish(tiny_session("majority", tmp_path / "run", steps=2, eval_every=1))
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as file:
        file.write(content)
    one = summarize(tmp_path / "run")
    assert one.error is None
    assert one.best_loss > 0


def test_an_empty_folder_has_no_runs_and_a_missing_one_is_misuse(tmp_path):
    assert list_runs(tmp_path) == []
    with pytest.raises(ConfigError, match="there is no folder"):
        list_runs(tmp_path / "nowhere")


def test_nothing_differs_in_a_run_as_it_comes(tmp_path):
    for task in ("majority", "counting", "sort", "text"):
        assert changed_settings(new_session(task, tmp_path / task).run) == {}


def test_what_was_changed_is_named(tmp_path):
    run = tiny_session("majority", tmp_path / "run", seed=2, lr=0.5, dropout=0.1).run
    assert changed_settings(run) == {**CHANGED, "lr": 0.5, "dropout": 0.1, "seed": 2}


def test_another_optimizer_is_named_and_what_it_leaves_behind_is_not(tmp_path):
    data = write_data("text", tmp_path)
    run = new_session("text", tmp_path / "run", data=data, settings={"optimizer": "sgd"}).run
    assert changed_settings(run) == {"data": data, "optimizer": "sgd"}


def test_a_preset_is_named_instead_of_all_its_settings(tmp_path):
    small = {"width": 8, "heads": 2, "layers": 1, "feed_forward": 8}
    run = new_session("majority", tmp_path / "run", preset="bert-base", settings=small).run
    assert changed_settings(run) == {"preset": "bert-base", **small}


def test_a_fine_tuned_run_says_what_it_started_from(tmp_path):
    base = finish(tiny_session("text", tmp_path / "base", steps=1)).run.folder
    data = write_data("text", tmp_path)
    run = new_session("text", tmp_path / "run", source=str(base), adapters=True, data=data, settings={"lr": 0.1}).run
    want = {"from": str(base.resolve()), "lora_rank": 8, "data": data, "context": 16, "lr": 0.1}
    assert changed_settings(run) == want


LINES = [{"step": 1, "loss": 2.0, "lr": 0.1}, {"step": 2, "loss": None, "val_loss": 1.5, "best": True, "accuracy": 0.5}]


DAMAGED = {
    "cut off": b'{"step": 3, "lo',
    "no text": b"\xff\xfe",
    "zeros": b"\0" * 100,
    "a number": b"12",
    "empty": b"{}",
    "no loss": b'{"step": 3}',
    "no step": b'{"loss": 3.0}',
    "a step of text": b'{"step": "3", "loss": 1.0}',
    "a step that is none": b'{"step": true, "loss": 1.0}',
    "a step before the first": b'{"step": -3, "loss": 1.0}',
    "a loss of text": b'{"step": 3, "loss": "1.0"}',
    "seconds of a list": b'{"step": 3, "loss": 1.0, "seconds": []}',
    "an evaluation that is not judged": b'{"step": 3, "loss": 1.0, "val_loss": 1.0}',
    "deep": b"[" * 100_000,
}


def line(step, seconds=0.5, **more):
    return {"step": step, "loss": 4 - step / 10, "tokens": 100, "seconds": seconds, **more}


def test_curves_hold_what_was_recorded_and_runs_count_with_their_last_evaluation():
    metrics = [line(1), line(2, val_loss=3.0), {"step": 3, "loss": None}, line(4, val_loss=float("nan"))]
    curves = curves_of("a", metrics)
    assert curves.training == ([1, 2, 4], [0.5, 1.0, 1.5], [3.9, 3.8, 3.6])
    assert curves.validation == ([2], [1.0], [3.0])
    assert judged(curves) is curves.validation
    assert judged(curves_of("b", [line(1)])).values == [3.9]

    fast = curves_of("fast", [line(step, 0.1, val_loss=5.0 - step) for step in (1, 2, 3, 4)])
    slow = curves_of("slow", [line(1, 1.0), line(2, 1.0, val_loss=7.0)])
    assert losses_by("steps", [fast, slow]) == [(1, [4.0, None]), (2, [3.0, 7.0]), (3, [2.0, None]), (4, [1.0, None])]
    times = losses_by("seconds", [fast, slow])
    assert [values for _, values in times] == [[4.0, None], [3.0, None], [2.0, None], [1.0, None], [None, 7.0]]
    assert times[-1][0] == 2.0


def test_long_runs_are_compared_in_a_few_rows_and_those_without_metrics_in_none():
    long = curves_of("long", [line(step, val_loss=1.0) for step in range(1, 1001)])
    short = curves_of("short", [line(step, val_loss=1.0) for step in range(1, 334)])
    steps = [step for step, _ in losses_by("steps", [long, short])]
    assert len(steps) <= ROWS
    assert {1, 333, 1000} <= set(steps)

    assert losses_by("steps", [curves_of("a", []), curves_of("b", [])]) == []
    assert losses_by("seconds", [curves_of("a", []), curves_of("b", [line(1)])]) == [(0.5, [None, 3.9])]


def test_settings_that_differ_are_named_with_both_values(tmp_path):
    one = tiny_session("majority", tmp_path / "a", lr=0.1).run
    two = tiny_session("majority", tmp_path / "b", lr=0.2, seed=4).run
    assert differing([one, two]) == {"lr": [0.1, 0.2], "seed": [0, 4]}
    assert differing([one, one]) == {}


def test_runs_of_different_tasks_are_compared_too(tmp_path):
    one = tiny_session("majority", tmp_path / "a").run
    two = tiny_session("lines", tmp_path / "b").run
    found = differing([one, two])
    assert found["task"] == ["majority", "lines"]
    assert found["architecture"] == ["encoder", "decoder"]
    assert found["classes"] == [3, MISSING]
    assert found["data SHA-256"][0] is None
    assert len(found["data SHA-256"][1]) == 12


def test_the_speed_leaves_out_the_first_step(tmp_path, monkeypatch):
    run = finish(tiny_session("majority", tmp_path / "run", steps=2)).run
    metrics = [line(1, 9.0), line(2, 0.5), line(3, 0.5)]
    monkeypatch.setattr(type(run), "metrics", lambda self: metrics)
    found = figures_of(run)
    assert (found["tokens_per_second"], found["tokens"], found["seconds"]) == (200.0, 300, 10.0)
    monkeypatch.setattr(type(run), "metrics", lambda self: [])
    assert figures_of(run)["tokens_per_second"] is None
