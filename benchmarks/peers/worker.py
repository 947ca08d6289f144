"""One contender in a process of its own: `python -m peers.worker`, told by its parent what to do.

Requests come as lines of JSON on stdin, answers go back the same way:

    {"call": "module:function", "settings": {…}}     run it once; the answer is what it returns
    {"build": "module:function", "settings": {…}}    make a contender: an object with `step()` and `facts()`
    {"run": 12}                                      take 12 steps; the answer holds the seconds of each

Between requests the process sleeps in a read, so it takes nothing from whoever has the turn.
"""

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

COLD = 0.3
"""Shorter steps, in seconds, feel caches that others have filled; the first of a round is then not counted."""
_SETTLED, _PAUSE, _PATIENCE = 0.1, 0.02, 3.0


class Stepper(Protocol):
    """What a worker builds."""

    def step(self) -> float | None:
        """Take one step; return the seconds of its first part where that is of interest."""

    def facts(self) -> dict[str, Any]:
        """Return what is to be known besides the time, such as the losses so far."""


def main() -> None:
    """Serve the parent until it closes the pipe."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    server = Server()
    for line in sys.stdin:
        try:
            reply = server.serve(json.loads(line))
        except Exception as error:
            # A peer's failure is told where its time would stand; the traceback goes to stderr, which the parent keeps.
            sys.excepthook(type(error), error, error.__traceback__)
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)


class Server:
    """Answers requests, for one contender at most."""

    def __init__(self) -> None:
        self.stepper: Stepper | None = None
        self.last = 0.0

    def serve(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what one request asks for."""
        if "call" in request:
            return {"result": find(request["call"])(**request["settings"])}
        if "build" in request:
            self.stepper = find(request["build"])(**request["settings"])
            settle()
            return {"built": True}
        return self.run(request["run"])

    def run(self, steps: int) -> dict[str, Any]:
        """Take so many steps and time each."""
        assert self.stepper is not None, "build comes before run"
        # Garbage of earlier rounds is nobody's fault now; what this round leaves is collected while the clock runs.
        gc.collect()
        if self.last < COLD:
            self.stepper.step()
        seconds: list[float] = []
        first: list[float] = []
        for _ in range(steps):
            began = time.perf_counter()
            part = self.stepper.step()
            seconds.append(time.perf_counter() - began)
            if part is not None:
                first.append(part)
        self.last = seconds[-1]
        settle()
        return {"seconds": seconds, "first": first, "facts": self.stepper.facts()}


def settle() -> None:
    """Wait until all threads of this process sleep: those of a BLAS spin for a while after their last product."""
    end = time.perf_counter() + _PATIENCE
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(_PAUSE)
        if time.process_time() - before < _SETTLED * _PAUSE:
            return


def find(path: str) -> Callable[..., Any]:
    """Return the function that "module:function" names."""
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    main()
