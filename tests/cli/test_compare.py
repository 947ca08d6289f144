"""`glassformer runs` and `compare`: runs in a table, and side by side."""

import json
import re

import pytest

from glassformer.core.tree import count
from glassformer.runs.folder import RECENT
from glassformer.runs.run import open_run
from runs import command, finish, tiny_session, write_data

pytestmark = pytest.mark.usefixtures("numpy_engine", "unseen_figures")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs of one task, one shorter than the other, one of another task, and one that never took a step."""
    folder = tmp_path_factory.mktemp("runs")
    finish(tiny_session("sort", folder / "long", steps=6, eval_every=2))
    finish(tiny_session("sort", folder / "short", steps=3, eval_every=2, lr=0.5, norm="rms"))
    finish(tiny_session("majority", folder / "other", steps=2))
    tiny_session("sort", folder / "idle")
    return folder


def test_everything_is_shown_side_by_side(folder, tmp_path, coarse_figures):
    result = command("compare", folder / "long", folder / "short", "--out", tmp_path)
    assert result.code == 0, result.err
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert ["steps", "6 of 6", "3 of 3"] in rows
    sizes = [count(open_run(folder / name).load_params()) for name in ("long", "short")]
    assert ["parameters", *(f"{size:,}" for size in sizes)] in rows
    assert ["norm", "layer", "rms"] in rows
    assert ["lr", "0.002", "0.5"] in rows
    assert re.search(r"^6\t\d\.\d{4}\t$", result.out, re.MULTILINE)
    assert result.out.count(" answers\nprompt\tanswer\n") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"losses.png", "losses-dark.png"}
    assert "losses-dark.png" in result.err


def test_without_a_folder_nothing_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command("compare", folder / "long", folder / "short", "--no-samples")
    assert result.code == 0, result.err
    assert "--out DIR draws the losses" in result.err
    assert list(tmp_path.iterdir()) == []


def test_the_tables_are_there_even_without_a_figure_and_show_the_mean_training_loss(folder, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = command("compare", folder / "long", folder / "short", "--no-samples", "--out", tmp_path / "file")
    assert result.code == 1
    assert "steps" in result.out
    assert "cannot be written" in result.err

    found = json.loads(command("compare", folder / "long", folder / "short", "--no-samples", "--json").out)
    lines = open_run(folder / "long").metrics()
    losses = [line["loss"] for line in lines][-RECENT:]
    assert found["runs"][0]["recent_loss"] == pytest.approx(sum(losses) / len(losses))
    assert found["figures"] == []


def test_json_gives_everything(folder, tmp_path):
    runs = [folder / name for name in ("long", "short", "other")]
    result = command("compare", *runs, "--out", tmp_path, "--format", "svg", "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert [one["task"] for one in found["runs"]] == ["sort", "sort", "majority"]
    assert [one["step"] for one in found["runs"]] == [6, 3, 2]
    assert all(one["tokens_per_second"] > 0 and one["record"]["engine"] for one in found["runs"])
    assert found["settings"]["norm"] == ["layer", "rms", "layer"]
    assert found["settings"]["classes"] == [None, None, 3]
    assert found["loss_by_step"][-1]["step"] == 6
    assert found["loss_by_step"][-1]["losses"][1:] == [None, None]
    assert found["runs"][0]["samples"][0].keys() == {"prompt", "answer"}
    assert found["figures"] == [str(tmp_path / "losses.svg"), str(tmp_path / "losses-dark.svg")]


def test_a_run_without_steps_is_compared_as_far_as_it_goes_and_names_are_told_apart_by_paths(folder, tmp_path):
    result = command("compare", folder / "long", folder / "idle", "--out", tmp_path)
    assert result.code == 0, result.err
    assert "idle: no samples: there is no checkpoint" in result.err
    result = command("compare", folder / "long", folder / "idle", "--out", tmp_path, "--no-samples")
    assert "answers" not in result.out

    finish(tiny_session("sort", tmp_path / "long", steps=2))
    result = command("compare", folder / "long", tmp_path / "long", "--out", tmp_path / "out", "--no-samples")
    assert f"{folder / 'long'}\t{tmp_path / 'long'}" in result.out


@pytest.mark.parametrize(
    ("names", "options", "message", "code"),
    [
        (["long"], [], "there is nothing to compare", 2),
        (["long", "long"], [], "there is nothing to compare", 2),
        (["long", "nowhere"], [], "is not a run folder", 1),
        (["long", "short"], ["--format", "gif"], "there is no format 'gif'", 2),
    ],
)
def test_misuse_is_answered_with_a_remedy(folder, tmp_path, names, options, message, code):
    result = command("compare", *(folder / name for name in names), *options, "--out", tmp_path / "out")
    assert result.code == code
    assert message in result.err
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    listed = tmp_path_factory.mktemp("listed") / "runs"  # of one length, however many folders there are
    list(tiny_session("majority", listed / "first", steps=4, eval_every=2, lr=0.01).steps())
    tiny_session("majority", listed / "second")
    (listed / "broken").mkdir()
    (listed / "broken" / "config.json").write_text("[]")
    return listed


def test_a_pipe_gets_a_line_for_each_run(listed):
    result = command("runs", listed)
    assert result.code == 0, result.err
    rows = {line.split("\t")[0]: line.split("\t") for line in result.out.splitlines()}
    _, task, steps, loss, validation, best, when, changed = rows[str(listed / "first")]
    assert (task, steps) == ("majority", "4")
    assert float(loss) > 0
    assert float(best.split(" at ")[0]) <= float(validation)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", when)
    assert "width=8" in changed
    assert "lr=0.01" in changed
    assert rows[str(listed / "second")][2] == "0/600"
    assert rows[str(listed / "broken")][1] == "broken"
    assert "damaged" in rows[str(listed / "broken")][-1]


def test_json_gives_everything_and_one_run_says_where_it_began(listed, tmp_path):
    found = json.loads(command("runs", listed, "--json").out)
    assert found["folder"] == str(listed)
    first = next(one for one in found["runs"] if one["folder"] == str(listed / "first"))
    assert first["changed"]["lr"] == 0.01
    assert first["record"]["versions"]["numpy"]
    assert [one["error"] is None for one in found["runs"]].count(False) == 1

    result = command("runs", listed / "first")
    assert "data\tdrawn from the seed" in result.out
    assert re.search(r"engine\t\w+, \d+ cores, \w+", result.out)
    assert "numpy " in result.out
    tiny_session("lines", tmp_path / "run")
    data = write_data("lines", tmp_path / "data")
    said = command("runs", tmp_path / "run").out
    assert re.search(rf"data\t{re.escape(data)} \(\d+ bytes\)\nSHA-256\t[0-9a-f]{{64}}\n", said)


def test_no_runs_are_said_and_a_missing_folder_is_misuse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = command("runs", tmp_path)
    assert (result.code, result.out) == (0, "")
    assert "there are no runs in" in result.err
    result = command("runs")
    assert result.code == 2
    assert "there is no folder runs" in result.err
