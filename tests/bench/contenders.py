"""Contenders for the tests of processes; a worker finds them as `contenders:Name`."""

import os
import sys
import time


class Counter:
    """Counts its steps."""

    def __init__(self, *, by=1):
        self.by, self.count = by, 0

    def step(self):
        self.count += self.by
        return 0.25

    def facts(self):
        return {"count": self.count, "process": os.getpid()}


def add(*, a, b):
    sys.stdout.write("this is talk, not an answer\n")
    return a + b


def variable(*, name):
    return os.environ.get(name)


def fail(*, message):
    sys.stderr.write("some words before\n")
    raise ValueError(message)


def leave(*, code):
    os._exit(code)


class Failing:
    """Can be made, but takes no step."""

    def step(self):
        raise ValueError("no step")

    def facts(self):
        return {}


def hang():
    time.sleep(60)
