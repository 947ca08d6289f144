"""The campaign counts right: what survives, what is lost, what hangs and what dies."""

import mmap
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("the campaign needs Linux", allow_module_level=True)

from trials import crew
from trials.trial import LateError, Trial, demand
from trials.worker import prepared, tried


def case(shared, own, seed):
    """Survive, but for some seeds."""
    assert own.is_dir()
    if seed == 2:
        demand(False, "a bit was flipped")
    if seed == 3:
        raise ValueError("nobody foresaw this\nat all")
    if seed == 4:
        while True:
            time.sleep(0.01)
    if seed == 5:
        with mmap.mmap(-1, 80 << 20) as fresh:  # a list or an array may be put where something else was
            fresh[:: mmap.PAGESIZE] = bytes(len(fresh) // mmap.PAGESIZE)
    if seed == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 7:
        while True:
            pass
    if seed in (10, 11):  # late, the second one only the first time
        mark = own.parent / f"tried-{seed}"
        if seed == 10 or not mark.exists():
            mark.touch()
            raise LateError("it waited for too long")


SMALL = {"title": "", "kinds": ("a", "b"), "full": 8, "quick": 2, "attempt": case, "limit": 60.0}
SMALL["prepare"] = lambda shared: None


def test_a_case_survives_or_is_lost_for_a_reason(tmp_path):
    trial = Trial("small", **SMALL, memory=40)
    prepared(trial, tmp_path)
    assert tried(trial, tmp_path, 1) == (None, False)
    assert tried(trial, tmp_path, 2) == ("a bit was flipped", False)
    assert tried(trial, tmp_path, 3)[0].startswith("unhandled ValueError: nobody foresaw this (test_campaign.py:")
    assert tried(replace(trial, limit=0.05), tmp_path, 4) == ("it waited for more than 0 s", True)
    assert tried(replace(trial, limit=0.05), tmp_path, 7) == ("it took more than 0 s", True)
    assert "MB of memory" in tried(trial, tmp_path, 5)[0]
    assert not list(tmp_path.glob("case-*"))


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import trials.worker
from test_campaign import SMALL, Trial
trials.worker.load = lambda name: Trial(name, **SMALL)
trials.worker.work(sys.argv[1], Path(sys.argv[2]))
"""


@pytest.fixture
def _small_trial(tmp_path, monkeypatch):
    """Let a crew try the cases above."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent)))
    monkeypatch.setattr(crew, "COMMAND", [sys.executable, str(script)])


@pytest.mark.usefixtures("_small_trial")
def test_however_short_the_time_is_one_case_is_tried(tmp_path):
    small = crew.Crew(Trial("small", **SMALL), tmp_path / "small", 1, lambda tally: None)
    tally = small.run(iter([0, 1, 8]), until=0.0)
    assert (tally.total, tally.survived) == (1, 1)


@pytest.mark.usefixtures("_small_trial")
def test_who_dies_is_replaced_and_who_is_late_is_tried_again_alone(tmp_path):
    seen = []
    tally = crew.Crew(Trial("small", **SMALL), tmp_path / "small", 1, lambda tally: seen.append(tally.total)).run(
        iter([1, 10, 6, 11, 2, 8])
    )
    assert (tally.total, tally.survived, seen) == (6, 3, [1, 2, 3, 4, 5, 6])
    assert [(loss.seed, loss.kind) for loss in tally.losses] == [(6, "a"), (2, "a"), (10, "a")]
    assert tally.losses[0].reason.startswith("its process ended with -9")
    assert [(loss.seed, loss.reason) for loss in tally.again] == [
        (10, "it waited for too long"),
        (11, "it waited for too long"),
    ]
