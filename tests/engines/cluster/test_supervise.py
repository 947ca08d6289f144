"""A worker that is lost is named by the parents of all others, and nobody is left behind."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassformer.core.errors import ClusterError
from glassformer.engines.cluster.launch import Cluster
from glassformer.engines.cluster.supervise import Roll
from process_groups import Group

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes have parents on POSIX")

SCRIPT = Path(__file__).with_name("supervised_worker.py")
SILENCE = 4
TOTAL = 3


class Parents(Group):
    """Workers, each the child of a parent."""

    def __init__(self, folder: Path, trouble: str, count: int = TOTAL) -> None:
        self.roll = folder / "run.workers"
        limits = {"GLASSFORMER_SILENCE": SILENCE, "GLASSFORMER_START": 5}
        super().__init__(folder / "said", lambda number: [SCRIPT, number, count, self.roll, trouble], count, **limits)

    def child(self, number: int) -> int:
        """Return the process number of a worker, which its parent has noted."""
        return int(json.loads((self.roll / str(number)).read_text(encoding="utf-8"))["pid"])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


@pytest.fixture
def ended(tmp_path) -> Iterator:
    """Return what the workers ended with, and what they said."""

    def codes_and_words(trouble: str):
        with Parents(tmp_path, trouble) as parents:
            codes = parents.codes()
            return codes, [parents.said(number) for number in range(TOTAL)]

    return codes_and_words


def test_workers_that_finish_leave_nothing_behind(ended, tmp_path):
    codes, said = ended("nothing")
    assert codes == [0, 0, 0], said
    assert not (tmp_path / "run.workers").exists()


def test_a_killed_worker_is_named_by_all(ended):
    codes, said = ended("killed")
    assert codes == [1, 1, 1]
    for words in said:  # one broke off, one was aborted by JAX, one was killed itself
        assert re.search(r"error: worker 1 of 3 \(.*, pid \d+\) was ended by SIGKILL", words), said
        assert words.count("error: ") == 1
        assert "hint: start all workers again; `glassformer train --resume RUN` continues" in words
        assert "Check failure" not in words


def test_errors_of_one_worker_or_of_all_are_told_by_all_and_end_them(ended):
    codes, said = ended("fails")
    assert codes == [1, 1, 1]
    assert "error: the disk is full" in said[1]
    for number in (0, 2):
        assert re.search(r"error: worker 1 of 3 \(.*\) failed: the disk is full", said[number])

    codes, said = ended("all fail")
    assert codes == [1, 1, 1]
    for number in range(TOTAL):
        assert f"error: worker {number} has no room" in said[number]

    codes, said = ended("linger")
    assert codes == [1, 1, 1], said


def test_a_stopped_worker_is_named_by_all_and_not_left_behind(tmp_path):
    with Parents(tmp_path, "stopped") as parents:
        parents.wait_for("ready")
        pid = parents.child(1)
        assert parents.codes() == [1, 1, 1]
        assert not is_alive(pid)
        assert re.search(r"error: worker 1 of 3 \(.*\) was stopped by a signal for \d+ s", parents.said(1))
        for number in (0, 2):
            assert re.search(r"error: worker 1 of 3 \(.*\) (has not been heard of|was stopped)", parents.said(number))


def test_workers_end_where_nobody_reads_what_they_say(ended):
    codes, said = ended("unread")
    assert codes == [1, 1, 1], said


@pytest.mark.parametrize(("name", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_in_the_parent_reaches_the_child(tmp_path, name, code):
    with Parents(tmp_path, "waits", 1) as parents:
        parents.wait_for("ready")
        pid = parents.child(0)
        parents.signal(0, name)
        assert parents.codes() == [code]
        assert not is_alive(pid)


def test_a_child_does_not_outlive_its_parent(tmp_path):
    with Parents(tmp_path, "waits", 1) as parents:
        parents.wait_for("ready")
        pid = parents.child(0)
        parents.signal(0, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_alive(pid)


def rolls(folder: Path, *numbers: int, total: int = TOTAL) -> list[Roll]:
    return [Roll(folder, Cluster(number, total, "node0", 1), 100 + number) for number in numbers]


def age(folder: Path, number: int, seconds: float) -> None:
    """Let a worker have touched its file so many seconds ago."""
    then = time.time() - seconds
    os.utime(folder / str(number), (then, then))


def test_nobody_is_lost_where_all_are_there(tmp_path):
    assert [roll.lost(joined=joined) for roll in rolls(tmp_path, 0, 1, 2) for joined in (True, False)] == [""] * 6


def test_workers_that_did_not_start_are_named(tmp_path):
    (roll,) = rolls(tmp_path, 1, total=4)
    assert roll.lost(joined=False) == "workers 0, 2, 3 of 4 did not start within 300 s"
    rolls(tmp_path, 0, 3, total=4)
    assert roll.lost(joined=False) == "worker 2 of 4 did not start within 300 s"


def test_a_file_of_an_earlier_start_is_no_worker(tmp_path):
    rolls(tmp_path, 0)[0].note("was ended by SIGKILL")
    age(tmp_path, 0, 60)
    (roll,) = rolls(tmp_path, 1, total=2)
    assert roll.lost(joined=False) == "worker 0 of 2 did not start within 300 s"


def test_a_worker_that_failed_since_is_known_before_all_have_joined(tmp_path):
    early, late = rolls(tmp_path, 0, 1)
    early.note("failed: the port is in use")
    age(tmp_path, 0, 5)
    assert late.failed_to_start() == ""  # in an earlier start, for all that is known
    age(tmp_path, 0, -5)
    assert re.fullmatch(r"worker 0 of 3 \(.*\) failed: the port is in use", late.failed_to_start())


def test_a_worker_that_is_no_longer_heard_of_is_lost_and_one_that_ended_since_is_not_blamed(tmp_path):
    roll, *_ = rolls(tmp_path, 0, 1, 2)
    age(tmp_path, 2, 60)
    assert re.fullmatch(r"worker 2 of 3 \(.*, pid 102\) has not been heard of for 60 s", roll.lost(joined=True))
    roll, second, third = rolls(tmp_path, 0, 1, 2)
    second.note("ended after another")
    third.note("was ended by SIGSEGV")
    assert re.fullmatch(r"worker 2 of 3 \(.*\) was ended by SIGSEGV", roll.lost(joined=True))


def test_two_workers_of_one_number_and_workers_of_another_count_or_version_are_refused(tmp_path):
    first, _ = *rolls(tmp_path, 1), Roll(tmp_path, Cluster(1, TOTAL, "node0", 1), 999)
    with pytest.raises(ClusterError, match=r"two workers have the number 1: the other one is on .*, pid 999"):
        first.touch()

    (first,) = rolls(tmp_path, 0)
    first.check_alike()
    rolls(tmp_path, 2, total=4)
    with pytest.raises(ClusterError, match=r"worker 2 runs glassformer .*, as one of 4 workers; worker 0 .* of 3"):
        first.check_alike()
