"""Runs side by side: what differs, what they reached by when, and how fast they were."""

from dataclasses import MISSING

from glassformer.runs.listing import ROWS, curves_of, differing, figures_of, judged, losses_by
from runs import finish, tiny_session


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
