"""Several processes that belong together: started, waited for, signaled, and never left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = 250.0
"""Seconds until processes that do not end are an error: before pytest's own limit, to show what they said."""


def free_port() -> int:
    """Return a port of this machine that is free."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Group:
    """Python processes, numbered from 0, whose output goes to one file each; leaving the context kills what is left."""

    def __init__(self, folder: Path, arguments: Callable[[int], list[Any]], count: int, **settings: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.files = [folder / f"{number}.txt" for number in range(count)]
        env = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        self.processes = [self.begun(arguments(number), path, env) for number, path in enumerate(self.files)]

    def begun(self, arguments: list[Any], path: Path, environment: dict[str, str]) -> Any:
        """Start one of the processes."""
        with path.open("w") as file:
            command = [sys.executable, *map(str, arguments)]
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def wait_for(self, word: str, seconds: float = LIMIT) -> None:
        """Wait until every process has said a word."""
        deadline = time.monotonic() + seconds
        while not all(word in self.said(number) for number in range(len(self.files))):
            ended = [number for number, process in enumerate(self.processes) if process.poll() is not None]
            assert not ended, f"process {ended[0]} ended:\n{self.said(ended[0])}"
            assert time.monotonic() < deadline, [path.read_text() for path in self.files]
            time.sleep(0.05)

    def signal(self, number: int, name: signal.Signals) -> None:
        """Send a signal to one process."""
        self.processes[number].send_signal(name)

    def codes(self, seconds: float = LIMIT) -> list[int]:
        """Wait until all have ended, and return with what code; a process that does not end in time is an error."""
        deadline = time.monotonic() + seconds
        # All are asked, again and again: one that has ended is gone for the others only then.
        while None in (codes := [process.poll() for process in self.processes]):
            assert time.monotonic() < deadline, [codes, *(path.read_text() for path in self.files)]
            time.sleep(0.02)
        return codes

    def said(self, number: int) -> str:
        """Return what a process has written so far."""
        return self.files[number].read_text()
