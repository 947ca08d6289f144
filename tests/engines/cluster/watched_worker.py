"""A worker that watches and is watched, without JAX: it only counts steps. Run by test_watch.py.

python watched_worker.py NUMBER TOTAL PORT TROUBLE
"""

import contextlib
import ctypes
import itertools
import os
import sys
import threading
import time

from glassformer.core.errors import CheckpointError
from glassformer.engines.cluster.rendezvous import find_secret, meet
from glassformer.engines.cluster.watch import Watch
from glassformer.engines.cluster.workers import Limits

STEP = 0.02


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def abort_once_worker_0_is_gone(pid: int) -> None:
    """Do what JAX's native code does: end the process at once, without naming anyone."""
    while is_alive(pid):
        time.sleep(0.0001)
    ctypes.CDLL(None).abort()  # unlike os.abort, without holding Python's lock


def has_heard(watch: Watch) -> bool:
    """Tell whether this worker knows the steps of those that it watches: worker 0 all others, they worker 0."""
    watched = watch.workers[:1] if watch.number else watch.workers[1:]
    return all(worker.step is not None for worker in watched)


def fall_behind(kind: str, number: int, watch: Watch) -> None:
    """Stay one step behind the others, as worker 1; they wait for it in step 11, as a collective does.

    No one is ever in an earlier step but worker 1, so a slow machine makes no one else late.
    """
    if number != 1:
        watch.progress(11)
        say("ready")
    elif kind == "busy":
        with watch.busy("writing"):
            watch.progress(10)
            say("ready")
            time.sleep(4)
            watch.progress(11)
    else:
        watch.progress(10)
        say("ready")
    if kind == "hang":
        time.sleep(1000)


def trouble(kind: str, number: int, watch: Watch, port: int) -> None:
    """Get into trouble, as worker 1."""
    if number == 1 and kind == "linger":  # a thread that waits for the others keeps a process from ending
        threading.Thread(target=time.sleep, args=[1000]).start()
    if number == 1 and kind in ("fail", "linger"):
        raise CheckpointError("the disk is full")
    if number == 0 and kind == "fail":  # what writing a file together does when another worker fails
        while is_alive(watch.workers[1].pid):
            time.sleep(0.001)
        raise CheckpointError("could not write") from ValueError("connection closed by peer")
    if kind == "fail everywhere":  # at the same time, however long each took to come here
        meet(number, len(watch.workers), "127.0.0.1", port, limits=watch.limits, versions={}, secret=find_secret())
        raise CheckpointError(f"worker {number} says it itself")
    if number != 1 and kind == "break":  # what a collective does when a worker is gone
        while is_alive(watch.workers[1].pid):
            time.sleep(0.001)
        raise ValueError("connection closed by peer")


def lose_stderr(kind: str) -> None:
    """Let nobody read what is written: the reader has left, or it has stopped to read."""
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    if kind == "unread":
        os.close(reader)
        return
    os.set_blocking(2, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(2, b"x" * 4096)
    os.set_blocking(2, True)


def count_steps(kind: str, number: int, watch: Watch, port: int) -> None:
    """Count steps until the workers have heard of each other, get into trouble, and count on."""
    steps = itertools.count()
    while not has_heard(watch):
        watch.progress(next(steps))
        time.sleep(STEP)
    say("ready")
    trouble(kind, number, watch, port)
    for step in itertools.islice(steps, 100 if kind == "none" else None):
        watch.progress(step)
        time.sleep(STEP)


def main() -> None:
    number, total, port, kind = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    limits = Limits.from_environ(os.environ)
    workers, lines, _ = meet(number, total, "127.0.0.1", port, limits=limits, versions={}, secret=find_secret())
    watch = Watch(number, workers, limits=limits)
    watch.hint = "go on with --resume RUN"
    watch.begin(lines)
    if kind == "abort" and number:
        threading.Thread(target=abort_once_worker_0_is_gone, args=[workers[0].pid], daemon=True).start()
    if kind in ("unread", "full") and number != 1:
        lose_stderr(kind)
    with watch:
        if kind in ("busy", "hang"):
            fall_behind(kind, number, watch)
        else:
            count_steps(kind, number, watch, port)
    say("done")


if __name__ == "__main__":
    main()
