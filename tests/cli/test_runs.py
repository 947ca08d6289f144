"""`glassformer runs`: a table for people, lines for pipes, an object for programs."""

import json
import re

import pytest

from runs import command, tiny_session, write_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listed") / "runs"  # of one length, however many folders there are
    list(tiny_session("majority", folder / "first", steps=4, eval_every=2, lr=0.01).steps())
    tiny_session("majority", folder / "second")
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("[]")
    return folder


def test_a_pipe_gets_a_line_for_each_run(folder):
    result = command("runs", folder)
    assert result.code == 0, result.err
    rows = {line.split("\t")[0]: line.split("\t") for line in result.out.splitlines()}
    _, task, steps, loss, validation, best, when, changed = rows[str(folder / "first")]
    assert (task, steps) == ("majority", "4")
    assert float(loss) > 0
    assert float(best.split(" at ")[0]) <= float(validation)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", when)
    assert "width=8" in changed
    assert "lr=0.01" in changed
    assert rows[str(folder / "second")][2] == "0/600"
    assert rows[str(folder / "broken")][1] == "broken"
    assert "damaged" in rows[str(folder / "broken")][-1]


def test_json_gives_everything_and_one_run_says_where_it_began(folder, tmp_path):
    found = json.loads(command("runs", folder, "--json").out)
    assert found["folder"] == str(folder)
    first = next(one for one in found["runs"] if one["folder"] == str(folder / "first"))
    assert first["changed"]["lr"] == 0.01
    assert first["record"]["versions"]["numpy"]
    assert [one["error"] is None for one in found["runs"]].count(False) == 1

    result = command("runs", folder / "first")
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
