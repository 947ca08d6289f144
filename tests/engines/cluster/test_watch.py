"""A worker that is lost is named by all others, and nobody is left behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from glassformer.engines.cluster.watch import Watch
from glassformer.engines.cluster.workers import Limits, Worker, end_neighbor, judge, myself, place_of
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
AT_ONCE = 8
"""Crews that run at the same time: they wait for most of it."""


class Crew(Group):
    """Worker processes of the script beside this file."""

    def __init__(self, folder: Path, kind: str = "wait", **limits: float) -> None:
        port, script = free_port(), Path(__file__).with_name("watched_worker.py")
        settings = {f"GLASSFORMER_{name.upper()}": value for name, value in limits.items()}
        super().__init__(folder, lambda number: [script, number, TOTAL, port, kind], TOTAL, **settings)

    def __enter__(self) -> "Crew":
        self.wait_for("ready")
        return self


class Scene(NamedTuple):
    """What a crew goes through: trouble of its own, and a signal that some of its workers get, perhaps for a while."""

    kind: str = "wait"
    sent: signal.Signals | None = None
    victims: tuple[int, ...] = ()
    seconds: float | None = None  # until those that were stopped go on
    limits: dict = {}  # noqa: RUF012


class End(NamedTuple):
    """With what codes the workers of a crew ended, and what they said."""

    codes: list[int]
    said: list[str]


KILL, STOP, QUIET = signal.SIGKILL, signal.SIGSTOP, {"silence": SILENCE}
SCENES = {
    "0 is stopped": Scene("wait", STOP, (0,), limits=QUIET),
    "2 is stopped": Scene("wait", STOP, (2,), limits=QUIET),
    "two are stopped": Scene("wait", STOP, (1, 2), limits=QUIET),
    "all are stopped for long": Scene("none", STOP, (0, 1, 2), SILENCE + 1, QUIET),
    "0 is stopped for a moment": Scene("none", STOP, (0,), 1.5, {"silence": 20}),
    "linger": Scene("linger"),
    "full": Scene("full", KILL, (1,)),
    "busy": Scene("busy", limits={"lag": 2}),
    "fail": Scene("fail"),
    "hang": Scene("hang", limits={"lag": 2}),
    "fail everywhere": Scene("fail everywhere"),
    "0 is killed": Scene("wait", KILL, (0,)),
    "2 is killed": Scene("wait", KILL, (2,)),
    "break": Scene("break", KILL, (1,)),
    "abort": Scene("abort", KILL, (0,)),
    "unread": Scene("unread", KILL, (1,)),
}


def play(scene: Scene, folder: Path) -> End:
    with Crew(folder, scene.kind, **scene.limits) as workers:
        for number in scene.victims:
            workers.signal(number, scene.sent)
        if scene.seconds is not None:
            time.sleep(scene.seconds)
            for number in scene.victims:
                workers.signal(number, signal.SIGCONT)
        return End(workers.codes(), [workers.said(number) for number in range(TOTAL)])


@pytest.fixture(scope="module")
def end_of(tmp_path_factory) -> Iterator[Callable[[str], End]]:
    """How scenes end, all of which are played as soon as one is asked for."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        played = {name: pool.submit(play, scene, tmp_path_factory.mktemp("crew")) for name, scene in SCENES.items()}
        yield lambda name: played[name].result()
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_worker_is_named_by_all_others_at_once(end_of, victim):
    codes, said = end_of(f"{victim} is killed")
    for number in set(range(TOTAL)) - {victim}:
        assert codes[number] == 1
        fact = rf"error: worker {victim} of {TOTAL} \(.*, pid \d+\) ended without a word \(last at"
        assert re.search(fact, said[number])
        assert "hint: go on with --resume RUN" in said[number]


@pytest.mark.parametrize("victim", [0, 2])
def test_a_stopped_worker_is_named_by_all_others_and_not_left_behind(end_of, victim):
    codes, said = end_of(f"{victim} is stopped")
    assert codes[victim] == -signal.SIGKILL  # it was on this machine
    for number in set(range(TOTAL)) - {victim}:
        assert codes[number] == 1
        fact = rf"error: worker {victim} of {TOTAL} .* has not been heard of for \d+ s \(last at step"
        assert re.search(fact, said[number])


def test_a_worker_that_was_stopped_for_a_moment_goes_on(end_of):
    assert end_of("0 is stopped for a moment").codes == [0, 0, 0]


def test_all_workers_stopped_together_for_long_go_on(end_of):
    assert end_of("all are stopped for long").codes == [0, 0, 0]


def test_a_hanging_main_thread_is_named_by_all(end_of):
    codes, said = end_of("hang")
    assert codes == [1, 1, 1]
    for words in said:
        assert re.search(r"error: worker 1 of 3 .* has hung in step 10", words)


def test_workers_that_finish_do_so_together(end_of):
    codes, said = end_of("busy")  # the others wait for worker 1, and it is not taken for lost
    assert codes == [0, 0, 0]
    assert all("done" in words for words in said)


def test_an_error_of_one_worker_is_told_by_all(end_of):
    codes, said = end_of("fail")
    assert codes == [1, 1, 1]
    assert "CheckpointError: the disk is full" in said[1]
    for number in (0, 2):
        assert re.search(r"error: worker 1 of 3 .* failed: the disk is full", said[number])


def test_an_error_of_all_workers_is_told_by_each_in_its_own_words(end_of):
    codes, said = end_of("fail everywhere")
    assert codes == [1, 1, 1]
    for number in range(TOTAL):
        assert f"worker {number} says it itself" in said[number]


def test_what_breaks_off_because_a_worker_died_is_not_taken_for_the_cause(end_of):
    codes, said = end_of("break")
    for number in (0, 2):
        assert codes[number] == 1
        assert "error: worker 1 of 3" in said[number]
        assert "closed by peer" not in said[number]


def test_an_abort_in_native_code_does_not_come_before_the_name(end_of):
    codes, said = end_of("abort")
    assert codes[1:] == [1, 1]
    for number in (1, 2):
        assert "error: worker 0 of 3" in said[number]


def test_a_worker_that_fails_ends_although_other_threads_go_on(end_of):
    codes, said = end_of("linger")
    assert codes == [1, 1, 1]
    for number in (0, 2):
        assert re.search(r"error: worker 1 of 3 .* failed: the disk is full", said[number])


@pytest.mark.parametrize("kind", ["unread", "full"])
def test_workers_end_where_nobody_reads_what_they_say(end_of, kind):
    assert end_of(kind).codes == [1, -signal.SIGKILL, 1]


def test_two_stopped_workers_are_not_left_behind(end_of):
    codes, said = end_of("two are stopped")
    assert codes == [1, -signal.SIGKILL, -signal.SIGKILL]
    assert re.search(r"error: worker 0 of 3 .* has heard of no other worker for \d+ s", said[0])
