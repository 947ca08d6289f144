"""A worker that is lost is named by all others, and nobody is left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from glassformer.cluster.watch import Watch
from glassformer.cluster.workers import Limits, Worker, end_neighbor, judge, myself, place_of
from process_groups import Group, free_port

LIMITS = Limits(silence=20, lag=40, standstill=1800)


def crew(*steps: int | None) -> list[Worker]:
    """Workers that are in these steps and were just heard."""
    workers = [Worker(number, f"node{number}", 100 + number) for number in range(len(steps))]
    for worker, step in zip(workers, steps, strict=True):
        worker.take({"step": step}, 0.0)
    return workers


def hear(workers: list[Worker], now: float, *, but: int | None = None, **changes) -> None:
    """Let all workers, but one, say the same as before."""
    for worker in workers:
        if worker.number != but:
            worker.take({"step": worker.step, "busy": worker.busy, "left": worker.left, **changes}, now)


# --- the judgment ----------------------------------------------------------------------------------------------------


def test_workers_that_are_heard_are_not_lost():
    workers = crew(5, 5, 5)
    hear(workers, 1000.0)
    assert judge(workers, 1001.0, LIMITS) is None


def test_a_silent_worker_is_lost_after_the_limit():
    workers = crew(37, 37, 37, 37)
    hear(workers, 30.0, but=2)
    assert judge(workers, 19.0, LIMITS) is None
    verdict = judge(workers, 21.0, LIMITS)
    assert (verdict.worker, verdict.silent) == (2, [2])
    assert verdict.fact == "worker 2 of 4 (node2, pid 102) has not been heard of for 21 s (last at step 37)"


def test_all_silent_workers_are_known_and_the_first_is_named():
    workers = crew(37, 37, 37, 37)
    workers[3].take({"step": 37}, 0.9)  # its last sign of life came a little later
    hear(workers[:2], 20.0)
    verdict = judge(workers, 20.5, LIMITS)
    assert (verdict.worker, verdict.silent) == (2, [2, 3])
    assert verdict.fact.endswith("(last at step 37), nor have 1 others")


def test_a_worker_0_that_hears_no_one_does_not_blame_another():
    workers = crew(37, 37, 37)
    workers[2].take({"step": 37}, 0.9)
    verdict = judge(workers, 20.5, LIMITS)
    assert (verdict.worker, verdict.silent) == (0, [1, 2])
    fact = "worker 0 of 3 (node0, pid 100) has heard of no other worker for 20 s: is its network down?"
    assert verdict.fact == fact


def test_before_its_first_step_a_worker_may_be_silent_for_longer():
    workers = crew(None, None)
    assert judge(workers, 39.0, LIMITS) is None
    assert "(before its first step)" in judge(workers, 41.0, LIMITS).fact


def test_a_connection_that_ends_without_farewell_is_a_death():
    workers = crew(5, 5)
    workers[1].closed = True
    assert judge(workers, 0.1, LIMITS).fact.startswith("worker 1 of 2 (node1, pid 101) ended without a word")


def test_who_has_said_farewell_is_not_missed():
    workers = crew(5, 5)
    workers[1].take({"step": 5, "left": True}, 1.0)
    workers[1].closed = True
    assert judge(workers, 100.0, LIMITS) is None


def test_a_failure_is_told_in_its_own_words_before_its_consequences():
    workers = crew(5, 5, 5)
    workers[1].closed = True  # it broke off because worker 2 failed
    workers[2].take({"step": 5, "failure": "the disk is full"}, 1.0)
    verdict = judge(workers, 1.0, LIMITS)
    assert (verdict.worker, verdict.failed) == (2, True)
    assert verdict.fact.endswith("failed: the disk is full")


def behind(workers: list[Worker], until: float, *, start: float = 0.0) -> tuple[float, str] | None:
    """Judge every second, everyone heard; return when there was a verdict, and its fact."""
    now = start
    while now < until:
        now += 1.0
        hear(workers, now)
        if (verdict := judge(workers, now, LIMITS)) is not None:
            return now, verdict.fact
    return None


def test_a_worker_that_stays_behind_is_lost_after_the_limit():
    when, fact = behind(crew(21, 20, 21), 100)
    assert 40 < when < 44
    assert re.search(r"worker 1 of 3 .* has hung in step 20, 4\d s ago, while others wait for it in step 21", fact)


def test_a_worker_that_leaves_before_the_others_is_missed():
    workers = crew(21, 20, 21)
    workers[1].left = True
    _, fact = behind(workers, 100)
    assert "left in step 20" in fact


def test_a_worker_that_is_busy_may_stay_behind():
    workers = crew(21, 20)
    workers[1].busy = "writing a checkpoint"
    assert behind(workers, 300) is None


def test_a_long_step_or_compilation_of_all_together_is_no_reason():
    assert behind(crew(20, 20), 1700) is None


def test_the_moment_after_a_long_step_is_no_reason():
    workers = crew(20, 20)
    assert behind(workers, 500) is None
    workers[0].take({"step": 21}, 500.0)
    assert judge(workers, 500.0, LIMITS) is None


def test_where_steps_are_long_a_worker_may_be_behind_for_longer():
    workers = crew(20, 20)
    for now, step in ((100.0, 21), (200.0, 22)):
        hear(workers, now, step=step)
    workers[0].take({"step": 23}, 200.0)
    when, _ = behind(workers, 1000, start=200.0)
    assert 500 < when < 505  # three times a step of 100 s


def test_a_standstill_of_all_ends_too():
    when, fact = behind(crew(7, 7), 4000)
    assert 1800 < when < 1803
    assert "none of the 2 workers has reached a new step" in fact
    assert "worker 1: last at step 7" in fact


def test_only_the_very_process_is_killed():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        real = Worker(1, socket.gethostname(), child.pid, place_of(child.pid))
        assert real.place is not None
        assert real.place[:2] == myself(0).place[:2]
        for wrong in (None, ["another boot", *real.place[1:]], [*real.place[:2], "1"]):
            end_neighbor(Worker(1, real.host, child.pid, wrong))
            assert child.poll() is None
        end_neighbor(real)
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()


def test_ctrl_c_asks_all_workers_to_stop_until_the_end(monkeypatch):
    sent, before = [], signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    Watch().heed_interrupts()  # alone, there is no one to ask
    assert signal.getsignal(signal.SIGINT) is before
    watch = Watch()
    watch._thread = threading.current_thread()
    watch._finished.set()
    with watch:
        watch.heed_interrupts()
        assert not watch.interrupted
        signal.raise_signal(signal.SIGINT)
        assert watch.interrupted  # and not by SIGTERM, which ends with another code
    assert sent == [(os.getpid(), signal.SIGTERM)]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_that_is_ignored_as_in_the_background_stays_ignored():
    watch = Watch()
    watch._thread = threading.current_thread()
    watch._finished.set()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with watch:
            watch.heed_interrupts()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# --- real processes --------------------------------------------------------------------------------------------------

TOTAL = 3
SILENCE = 5.0
"""Seconds after which a stopped worker counts as lost; those that run say so twelve times within them."""


class Crew(Group):
    """Worker processes of the script beside this file."""

    def __init__(self, folder: Path, kind: str = "wait", **limits: float) -> None:
        port, script = free_port(), Path(__file__).with_name("watched_worker.py")
        settings = {f"GLASSFORMER_{name.upper()}": value for name, value in limits.items()}
        super().__init__(folder, lambda number: [script, number, TOTAL, port, kind], TOTAL, **settings)

    def __enter__(self) -> "Crew":
        self.wait_for("ready")
        return self


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_worker_is_named_by_all_others_at_once(tmp_path, victim):
    with Crew(tmp_path) as workers:
        workers.signal(victim, signal.SIGKILL)
        codes = workers.codes()
        for number in set(range(TOTAL)) - {victim}:
            assert codes[number] == 1
            said = workers.said(number)
            assert re.search(rf"error: worker {victim} of {TOTAL} \(.*, pid \d+\) ended without a word \(last at", said)
            assert "hint: go on with --resume RUN" in said


@pytest.mark.parametrize("victim", [0, 2])
def test_a_stopped_worker_is_named_by_all_others_and_not_left_behind(tmp_path, victim):
    with Crew(tmp_path, silence=SILENCE) as workers:
        workers.signal(victim, signal.SIGSTOP)
        codes = workers.codes()
        assert codes[victim] == -signal.SIGKILL  # it was on this machine
        for number in set(range(TOTAL)) - {victim}:
            assert codes[number] == 1
            fact = rf"error: worker {victim} of {TOTAL} .* has not been heard of for \d+ s \(last at step"
            assert re.search(fact, workers.said(number))


def test_a_worker_that_was_stopped_for_a_moment_goes_on(tmp_path):
    with Crew(tmp_path, "none", silence=20) as workers:
        workers.signal(0, signal.SIGSTOP)
        time.sleep(1.5)
        workers.signal(0, signal.SIGCONT)
        assert workers.codes() == [0, 0, 0]


def test_all_workers_stopped_together_for_long_go_on(tmp_path):
    with Crew(tmp_path, "none", silence=SILENCE) as workers:
        for number in range(TOTAL):
            workers.signal(number, signal.SIGSTOP)
        time.sleep(SILENCE + 1)
        for number in range(TOTAL):
            workers.signal(number, signal.SIGCONT)
        assert workers.codes() == [0, 0, 0]


def test_a_hanging_main_thread_is_named_by_all(tmp_path):
    with Crew(tmp_path, "hang", lag=2) as workers:
        assert workers.codes() == [1, 1, 1]
        for number in range(TOTAL):
            assert re.search(r"error: worker 1 of 3 .* has hung in step 10", workers.said(number))


def test_workers_that_finish_do_so_together(tmp_path):
    with Crew(tmp_path, "busy", lag=2) as workers:  # the others wait for worker 1, and it is not taken for lost
        assert workers.codes() == [0, 0, 0]
        assert all("done" in workers.said(number) for number in range(TOTAL))


def test_an_error_of_one_worker_is_told_by_all(tmp_path):
    with Crew(tmp_path, "fail") as workers:
        assert workers.codes() == [1, 1, 1]
        assert "CheckpointError: the disk is full" in workers.said(1)
        for number in (0, 2):
            assert re.search(r"error: worker 1 of 3 .* failed: the disk is full", workers.said(number))


def test_an_error_of_all_workers_is_told_by_each_in_its_own_words(tmp_path):
    with Crew(tmp_path, "fail everywhere") as workers:
        assert workers.codes() == [1, 1, 1]
        for number in range(TOTAL):
            assert f"worker {number} says it itself" in workers.said(number)


def test_what_breaks_off_because_a_worker_died_is_not_taken_for_the_cause(tmp_path):
    with Crew(tmp_path, "break") as workers:
        workers.signal(1, signal.SIGKILL)
        codes = workers.codes()
        for number in (0, 2):
            assert codes[number] == 1
            assert "error: worker 1 of 3" in workers.said(number)
            assert "closed by peer" not in workers.said(number)


def test_an_abort_in_native_code_does_not_come_before_the_name(tmp_path):
    with Crew(tmp_path, "abort") as workers:
        workers.signal(0, signal.SIGKILL)
        codes = workers.codes()
        assert codes[1:] == [1, 1]
        for number in (1, 2):
            assert "error: worker 0 of 3" in workers.said(number)


def test_a_worker_that_fails_ends_although_other_threads_go_on(tmp_path):
    with Crew(tmp_path, "linger") as workers:
        assert workers.codes() == [1, 1, 1]
        for number in (0, 2):
            assert re.search(r"error: worker 1 of 3 .* failed: the disk is full", workers.said(number))


@pytest.mark.parametrize("kind", ["unread", "full"])
def test_workers_end_where_nobody_reads_what_they_say(tmp_path, kind):
    with Crew(tmp_path, kind) as workers:
        workers.signal(1, signal.SIGKILL)
        assert workers.codes() == [1, -signal.SIGKILL, 1]


def test_two_stopped_workers_are_not_left_behind(tmp_path):
    with Crew(tmp_path, silence=SILENCE) as workers:
        for victim in (1, 2):
            workers.signal(victim, signal.SIGSTOP)
        assert workers.codes() == [1, -signal.SIGKILL, -signal.SIGKILL]
        assert re.search(r"error: worker 0 of 3 .* has heard of no other worker for \d+ s", workers.said(0))
