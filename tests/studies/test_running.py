"""Studies: points are checked before the first run, runs are kept and reused, and a result depends on its run alone."""

import json
import sys
from functools import partial

import pandas
import pytest

import glassformer as gf
from glassformer import studies
from glassformer.core.errors import CheckpointError, ConfigError, DataError
from glassformer.studies import Study, read_study, run_study, trained
from glassformer.studies import running as running_module
from glassformer.weights.catalog import CACHE

TRAINING = {"task": "majority", "steps": 4, "train": 64, "held_out": 16, "eval_every": 4}
TIMES = ("seconds", "train_seconds")


def squares(point, seed):
    return {"y": point["x"] ** 2 + seed / 10, "list": [1.0, 2.0]}


def small(**changes):
    given = {"name": "squares", "question": "Which?", "grid": {"x": [1, 2, 3]}, "measure": squares, "seeds": 2}
    return Study(**{**given, **changes})


def bits(rows):
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


@pytest.fixture(autouse=True)
def engine(numpy_engine):
    """Studies run on the engine numpy, which compiles nothing."""


def test_a_result_depends_on_no_other_point_and_no_interruption(tmp_path):
    grid = {**TRAINING, "lr": [1e-3, 1e-2]}
    measure = lambda point, seed: studies.training(seed=seed, **point)  # noqa: E731
    whole = run_study(small(grid=grid, measure=measure), out=tmp_path / "whole", figures=False, show=False)
    calls = []

    def stopped(point, seed):
        calls.append(point)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(point, seed)

    with pytest.raises(KeyboardInterrupt):
        run_study(small(grid=grid, measure=stopped), out=tmp_path / "parts", figures=False, show=False)
    parts = run_study(small(grid=grid, measure=stopped), out=tmp_path / "parts", figures=False, show=False)
    alone = gf.study([{**TRAINING, "lr": 1e-2}], measure, seeds=1, show=False)
    assert bits(parts.rows) == bits(whole.rows)
    assert bits(alone) == bits(whole.rows.where(lr=1e-2, seed=0))
    assert len(calls) == 5, "four runs and the one that was stopped"
    assert whole.rows[0]["loss"] == pytest.approx(trained(seed=0, **grid | {"lr": 1e-3}).evaluate().loss)


def test_an_interruption_says_how_to_go_on(tmp_path, capsys):
    def stopped(point, seed):
        if point["x"] == 3:
            raise KeyboardInterrupt
        return squares(point, seed)

    with pytest.raises(KeyboardInterrupt):
        run_study(small(measure=stopped), out=tmp_path, figures=False, show=False)
    assert f"4 of 6 runs are kept in {tmp_path}" in capsys.readouterr().err


def test_kept_rows_are_reused_for_the_same_version_seed_and_engine_only(tmp_path):
    how = {"out": tmp_path, "figures": False, "show": False}
    run_study(small(), **how)
    never = small(measure=lambda point, seed: pytest.fail("it ran again"))
    assert run_study(never, **how).rows == read_study(tmp_path).rows
    for changed, again, runs in (({"version": 2}, {}, 6), ({}, {"seeds": 3}, 3), ({}, {"engine": "cpu"}, 6)):
        calls = []
        run_study(small(measure=partial(counted, calls), **changed), **how, **again)
        assert len(calls) == runs


def test_runs_keep_the_machine_that_they_were_made_on(tmp_path, monkeypatch):
    how = {"out": tmp_path, "figures": False, "show": False}
    for place in ("elsewhere", "here"):
        monkeypatch.setattr(running_module, "machine", lambda place=place: {"system": place, "cores": 2})
        result = run_study(small(), seeds=2 if place == "elsewhere" else 3, **how)
    assert [one["system"] for one in result.machines] == ["elsewhere", "here"]
    assert read_study(tmp_path).machines == result.machines
    assert "elsewhere, 2 cores; and on here, 2 cores." in (tmp_path / "report.md").read_text()


def counted(calls, point, seed):
    calls.append(seed)
    return squares(point, seed)


def test_a_damaged_row_is_reported_and_run_again(tmp_path, capsys):
    how = {"out": tmp_path, "figures": False, "show": False}
    right = run_study(small(), **how).rows
    cut, changed = sorted((tmp_path / "rows").iterdir())[:2]
    cut.write_text(cut.read_text()[:40])
    changed.write_text(changed.read_text().replace("0.", "7."))
    assert bits(run_study(small(), **how).rows) == bits(right)
    assert capsys.readouterr().err.count("is damaged") == 2


def test_runs_of_one_shape_share_what_jax_compiled(tmp_path, monkeypatch, jax):
    monkeypatch.setenv(CACHE, str(tmp_path))
    name = "jax_compilation_cache_dir"
    before, seen = getattr(jax.config, name), []
    with gf.use_engine("jax"):
        gf.study({"x": [1]}, lambda point, seed: seen.append(getattr(jax.config, name)) or 1, seeds=1, show=False)
    assert seen == [before or str(tmp_path / "jax")]
    assert getattr(jax.config, name) == before
    gf.study({"x": [1]}, lambda point, seed: seen.append(getattr(jax.config, name)) or 1, seeds=1, show=False)
    assert seen[1] == before, "another engine compiles nothing with JAX"


def test_a_spread_is_written_where_there_is_one():
    rows = studies.Rows([{"loss": 0.25, "seed": 0}, {"loss": 0.75, "seed": 1}])
    assert f"{rows.mean('loss')[()]:.0%}" == "50% (25% to 75%)"
    assert f"{rows.where(seed=0).mean('loss')[()]:.2f}" == "0.25"


def test_bad_settings_are_refused_before_the_first_run(tmp_path):
    measure = lambda point, seed: pytest.fail("a run started")  # noqa: E731
    for bad, words in (
        ({"lr": [0.1, -1]}, "lr=-1 cannot run"),
        ({"heads": [4, 5]}, "heads=5 cannot run"),
        ({"widht": [8]}, "there is no setting 'widht'"),
        ({"optimizer": ["adam", "adm"]}, "optimizer=adm"),
        ({"freeze": [["nothing"]]}, "freeze"),
    ):
        with pytest.raises(ConfigError, match=words):
            run_study(small(grid={**TRAINING, **bad}, measure=measure), out=tmp_path, show=False)
    with pytest.raises(ConfigError, match="majorty"):
        gf.study({"lr": [0.1]}, "loss", task="majorty", show=False)


def test_a_training_that_diverges_is_a_row():
    rows = gf.study({"lr": [1e-3, 1e12], **TRAINING, "steps": 30, "clip": None}, "loss", seeds=1, show=False)
    assert [row["diverged"] for row in rows] == [False, True]
    assert rows[1]["loss"] != rows[1]["loss"], "NaN"
    assert rows.mean("loss")[()].runs == 1


@pytest.mark.parametrize(
    ("grid", "measure", "words"),
    [
        ({}, squares, "no points"),
        ({"x": []}, squares, "x is"),
        (7, squares, "the grid is 7"),
        ([3], squares, "no point of a grid"),
        ({"x": [1, 1]}, squares, "twice"),
        ({"seed": [1]}, squares, "no setting 'seed'"),
        ({"x": [{}]}, squares, "x is {}"),
        ({"x": [1]}, 3, "measure is 3"),
        ({"x": [1]}, lambda point: 1, "cannot be called with a point and a seed"),
        ({"x": [1]}, lambda point, seed: {"x": 2}, "a result called 'x'"),
        ({"x": [1]}, lambda point, seed: object(), "value is"),
        ({"x": [1]}, "losses", "did you mean 'loss'"),
        ({"x": [1]}, "loss", "no task is named"),
    ],
)
def test_what_is_no_study_is_refused(grid, measure, words):
    with pytest.raises(ConfigError, match=words):
        gf.study(grid, measure, show=False)


def test_rows_go_into_a_data_frame():
    rows = gf.study([{"x": 1}, {"x": 2, "z": "b"}], lambda point, seed: point["x"] + seed, seeds=2, show=False)
    frame = pandas.DataFrame(rows)
    assert frame.groupby("x")["value"].mean().to_dict() == {1: 1.5, 2: 2.5}
    assert list(frame["z"].isna()) == [True, True, False, False]
    with pytest.raises(ConfigError, match="did you mean 'value'"):
        rows.mean("valeu")


def test_rows_need_neither_click_nor_matplotlib_nor_rich(tmp_path, monkeypatch):
    for name in ("click", "matplotlib", "rich", "glassformer.progress.display"):
        monkeypatch.setitem(sys.modules, name, None)
    run_study(small(), out=tmp_path, figures=False)
    assert len(json.loads((tmp_path / "study.json").read_text())["rows"]) == 6


def test_a_disk_without_space_is_a_message(tmp_path, monkeypatch):
    def full(path, content):
        raise CheckpointError(f"{path} cannot be written: the disk is full", hint="free some space")

    monkeypatch.setattr(running_module, "write_new", full)
    with pytest.raises(CheckpointError, match="the disk is full"):
        run_study(small(), out=tmp_path, figures=False, show=False)


def test_study_json_that_is_damaged_or_missing_is_refused(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_study(tmp_path)
    (tmp_path / "study.json").write_text('{"format": 1}')
    with pytest.raises(DataError, match="is damaged"):
        read_study(tmp_path)
