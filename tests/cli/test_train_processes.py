"""`glassformer train` on two processes: the losses of one; one that is killed is named, and the run resumes.

What is trained is of one's own, in a file that reaches every process. `tests/soak/trials/workers.py` kills and stops
workers of such runs again and again, and resumes them.
"""

import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from devices import Forks
from own_parts import forgotten
from process_groups import free_port
from runs import assert_same_run, command, options, untimed

pytestmark = [pytest.mark.usefixtures("jax"), pytest.mark.timeout(900)]  # a loaded machine may take long to compile

STEPS = 6
OWN = """
import glassformer as gf

gf.register_activation("square", lambda x: (x * x, x), lambda dy, x: 2 * x * dy)


@gf.task
def names(*, seed=0, data=None):
    return gf.data.build_task("lines", seed=seed, data=data)
"""
"""A task and an activation of one's own: each process reads the file, and again when the run goes on."""


LINES = "emma lena mila lara ella nora jana lisa noah finn paul luca jona theo levi emil anna nele mara jule".replace(
    " ", "\n"
)
"""Of one length, so that no batch is shorter: where dropout falls depends on where its numbers lie."""


class Commands(Forks):
    """The same command, as each of several processes."""

    def __init__(self, folder: Path, count: int, *arguments: str) -> None:
        place = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", count]

        def each(number: int) -> list:
            return ["glassformer", "train", *arguments, *place, "--process", number]

        super().__init__(folder / "said", each, count)


def words(folder: Path, *how: str, steps: int = STEPS, every: int = 3) -> list:
    """Return what `train` is told for a new run in folder/run, of a task of one's own."""
    data = folder / "lines.txt"
    folder.mkdir()
    data.write_text(LINES, encoding="utf-8")
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    few = {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile
    settings = options("lines", activation="square", steps=steps, eval_every=every, save_every=every, **few)
    return ["--task", folder / "own.py", "--data", data, *settings, *how, "--out", folder / "run", "--json"]


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in untimed(run)]


def test_two_processes_have_the_losses_of_one(tmp_path, unseen_figures):
    with Commands(tmp_path / "two", 2, *words(tmp_path / "two", "--engine", "jax", "--mesh", "data=2")) as commands:
        with forgotten():
            alone = command("train", *words(tmp_path / "one", "--engine", "numpy"))
        assert alone.code == 0, alone.err
        codes = commands.codes()
        first, second = commands.said(0), commands.said(1)
    assert codes == [0, 0], (first, second)
    summary = json.loads(first.splitlines()[-1])
    assert (summary["task"], summary["steps"]) == ("names", STEPS)
    assert "{" not in second  # one tells for all
    found = losses(tmp_path / "two" / "run")
    assert len(found) == STEPS
    np.testing.assert_allclose(found, losses(tmp_path / "one" / "run"), rtol=1e-4)


def test_a_killed_worker_is_named_by_all_and_the_run_resumes_with_the_same_bits(tmp_path):
    how = ["--engine", "jax", "--mesh", "data=2"]
    whole, run = tmp_path / "whole" / "run", tmp_path / "killed" / "run"
    with Commands(tmp_path / "whole", 2, *words(tmp_path / "whole", *how, steps=200, every=50)) as commands:
        assert commands.codes() == [0, 0], commands.said(1)
    with Commands(tmp_path / "killed", 2, *words(tmp_path / "killed", *how, steps=200, every=50)) as commands:
        while not (run / "metrics.jsonl").is_file() or len(losses(run)) < 60:
            assert commands.processes[0].poll() is None, commands.said(0)
            time.sleep(0.01)
        os.kill(
            json.loads((tmp_path / "killed" / "run.workers" / "1").read_text(encoding="utf-8"))["pid"], signal.SIGKILL
        )
        assert commands.codes() == [1, 1]
        for number in (0, 1):
            said = commands.said(number)
            assert re.search(r"error: worker 1 of 2 \(.*, pid \d+\) was ended by SIGKILL", said), said
            assert f"`glassformer train --resume {run}` continues from the last checkpoint" in said
    with Commands(tmp_path / "again", 2, "--resume", run) as commands:
        assert commands.codes() == [0, 0], commands.said(0)
    assert_same_run(run, whole)
