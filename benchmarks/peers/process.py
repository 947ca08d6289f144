"""Contenders as processes: each alone with its libraries and threads, and only one of them awake at a time."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from glassformer.core.errors import GlassformerError

from .timing import Race, Spread, race

PATIENCE = 900.0
"""Seconds to wait for an answer; compiling a large model takes minutes, and what takes longer hangs."""
_QUIET = {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_BENCHMARKS = str(Path(__file__).resolve().parents[1])
_SAID = 8  # lines

Talk = Callable[[str], None]
"""Is told what goes on."""


class ContenderError(GlassformerError, RuntimeError):
    """A contender failed, or its process ended before it answered."""


class Process:
    """A contender in a process of its own.

    name       what it is called in the results
    target     "module:function" that makes it there; `settings` are its arguments, in the types of JSON
    variables  of its environment, beside those of this process
    """

    def __init__(self, name: str, target: str, settings: Mapping[str, Any], **variables: str) -> None:
        self.name = name
        self.first: list[float] = []
        self.facts: dict[str, Any] = {}
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (closed in close)
        paths = [_BENCHMARKS, variables.pop("PYTHONPATH", os.environ.get("PYTHONPATH", ""))]
        environment = {**os.environ, **_QUIET, **variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", "peers.worker"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        self._process: subprocess.Popen[bytes] = subprocess.Popen(command, env=environment, **pipes)
        self._target, self._settings = target, dict(settings)

    def build(self) -> None:
        """Let the process make its contender."""
        self.ask({"build": self._target, "settings": self._settings})

    def call(self) -> Any:
        """Let the process run its target once; return the result."""
        return self.ask({"call": self._target, "settings": self._settings})["result"]

    def run(self, steps: int) -> list[float]:
        """Let the contender take so many steps; return the seconds of each."""
        reply = self.ask({"run": steps})
        self.first += reply["first"]
        self.facts = reply["facts"]
        return reply["seconds"]

    def seconds_to_first(self, race: Race) -> float:
        """Return the middle time of the first part of this contender's steps in a race, such as the first token."""
        return Spread.of(self.first[-race.seconds(self.name).count :]).median

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        # A process that hangs is ended, and its silence is then told like any other.
        patience = threading.Timer(PATIENCE, self._process.kill)
        patience.start()
        try:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = b""
        finally:
            patience.cancel()
        if not line:
            code = self._process.wait()
            raise ContenderError(f"the process of {self.name} ended with code {code}", hint=self._said())
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise ContenderError(f"{self.name} failed: {reply['error'].splitlines()[0]}", hint=self._said())
        return reply

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _said(self) -> str | None:
        """Return the end of what the process wrote to stderr."""
        self._log.seek(0)
        said = self._log.read().strip().splitlines()[-_SAID:]
        return "\n".join(["it said", *said]) if said else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def call(target: str, settings: Mapping[str, Any], **variables: str) -> Any:
    """Run "module:function" once in a fresh process and return its result."""
    with Process(target, target, settings, **variables) as process:
        return process.call()


def compete(
    processes: Sequence[Process], *, what: str, seconds: float, talk: Talk, notes: list[str]
) -> tuple[Race, dict[str, Process]]:
    """Let contenders take turns and end their processes; return the times, and those who ran by their names."""
    with ExitStack() as stack:
        for process in processes:
            stack.enter_context(process)
        ready = started(processes, notes, talk)
        talk(f"measuring: {what}")
        return race(ready, seconds=seconds, talk=talk), {process.name: process for process in ready}


def started(processes: Sequence[Process], notes: list[str], talk: Talk) -> list[Process]:
    """Build every contender and let it take a step; leave out a peer that cannot, and say so."""
    ready = []
    for process in processes:
        talk(f"starting: {process.name}")
        try:
            process.build()
            process.run(1)
        except ContenderError as error:
            if process.name.startswith("glassformer"):
                raise
            notes.append(f"{error.fact.splitlines()[0]}; it was left out")
        else:
            ready.append(process)
    return ready
