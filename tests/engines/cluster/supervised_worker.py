"""A worker without JAX, as the child of a parent: it gets into trouble as worker 1. Run by test_supervise.py.

python supervised_worker.py NUMBER TOTAL FOLDER TROUBLE
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from glassformer.core.errors import CheckpointError, GlassformerError
from glassformer.engines.cluster.launch import PARENT, Cluster, Workers
from glassformer.engines.cluster.supervise import supervise

TRACE = """F1119 20:11:58.313918 28126 client.h:80] Terminating process because the JAX distributed service failed
*** Check failure stack trace: ***
    @     0x7f5f31840634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
"""
NUMBER, TOTAL, FOLDER, TROUBLE = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]


def write(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def wait_for_end_of_worker_1() -> None:
    """Do what a collective does that has lost a worker."""
    pid = json.loads((FOLDER / "1").read_text(encoding="utf-8"))["pid"]
    while True:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        time.sleep(0.01)


def lose_stderr() -> None:
    """Let nobody read what is written."""
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(reader)


def get_into_trouble() -> None:
    if TROUBLE in ("killed", "unread"):
        os.kill(os.getpid(), signal.SIGKILL)
    if TROUBLE == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if TROUBLE == "linger":  # a thread that waits for the others keeps a process from ending
        threading.Thread(target=time.sleep, args=[1000]).start()
    if TROUBLE in ("fails", "linger"):
        raise CheckpointError("the disk is full")


def work(workers: Workers) -> None:
    workers.tell("resume glassformer train --resume RUN")
    write("ready")
    while TROUBLE != "alone" and len(list(FOLDER.iterdir())) < TOTAL:
        time.sleep(0.01)
    time.sleep(0.5)
    if TROUBLE == "waits":
        time.sleep(1000)
    if TROUBLE == "all fail":
        raise CheckpointError(f"worker {NUMBER} has no room")
    if NUMBER == 1:
        get_into_trouble()
    elif TROUBLE == "killed" and NUMBER == 2:  # as JAX ends a process
        wait_for_end_of_worker_1()
        write(TRACE)
        os.abort()
    elif TROUBLE == "stopped":
        time.sleep(3)
        write(TRACE)
        os.abort()
    elif TROUBLE != "nothing":
        wait_for_end_of_worker_1()
        raise ValueError("connection closed by peer")


def main() -> None:
    cluster = Cluster(NUMBER, TOTAL, "127.0.0.1", 1)
    if PARENT not in os.environ:
        if TROUBLE == "unread" and NUMBER != 1:
            lose_stderr()
        sys.exit(supervise(sys.orig_argv, cluster, FOLDER))
    with Workers(cluster) as workers:
        workers.tell("joined")
        work(workers)


if __name__ == "__main__":
    try:
        main()
    except GlassformerError as error:
        write(f"error: {error}")
        sys.exit(1)
    except KeyboardInterrupt:
        write("interrupted")
        sys.exit(130)
