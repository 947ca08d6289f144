"""The runs in a folder, the broken ones included."""

import json
import os
import shutil

import pytest

from glassformer.core.errors import ConfigError
from glassformer.runs.listing import changed_settings, list_runs, summarize
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


def test_the_newest_run_comes_first_and_broken_ones_are_named(folder):
    found = list_runs(folder)
    assert [str(one.folder.relative_to(folder)) for one in found] == ["deep/er/new", "headless", "damaged", "old"]
    assert [one.task for one in found] == ["sort", "", "", "majority"]
    assert "it has no config.json" in found[1].error
    assert "damaged has the schedule 'zigzag', which is not built in" in found[2].error


def test_a_run_says_how_far_it_came(folder):
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


# --- what differs from the defaults ----------------------------------------------------------------------------------


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
