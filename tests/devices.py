"""Scripts that run on several virtual CPU devices, which only a process of its own can have."""

import atexit
import gc
import json
import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oracles import require
from process_groups import LIMIT, Group
from xla import xla_flags

LIBRARIES = ["glassformer.engines.jax.trainer", "jax.numpy", "numba", "orbax.checkpoint"]
FORKS = "forkserver" in multiprocessing.get_all_start_methods()


class Script:
    """A script in a process of its own, which begins with JAX imported: it is forked from one that did so for all.

    JAX is asked for devices in the fork alone. Where processes cannot be forked, each imports it anew.
    """

    def __init__(self, words: list[Any], out: Path, err: Path, environment: Mapping[str, str]) -> None:
        require("jax")
        context = multiprocessing.get_context("forkserver" if FORKS else "spawn")
        if FORKS:
            context.set_forkserver_preload(LIBRARIES)
        self.out, self.err = out, err
        err.touch()  # one that is killed before it begins has said nothing
        told = [str(word) for word in words], str(out), str(err), dict(environment)
        self._process = context.Process(target=_run, args=told, daemon=True)
        self._process.start()

    def poll(self) -> int | None:
        """Return with what code it has ended, None as long as it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait until it ends, but not for longer."""
        self._process.join(seconds)
        return self.poll()

    def send_signal(self, name: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self._process.pid, name)

    def kill(self) -> None:
        self._process.kill()


class Forks(Group):
    """Processes that belong together, each a script that begins with JAX imported."""

    def begun(self, arguments: list[Any], path: Path, environment: dict[str, str]) -> Script:
        """Start one of the processes."""
        return Script(arguments, path, path, environment)


def _run(words: list[str], out: str, err: str, environment: dict[str, str]) -> None:
    """Run a script or a module here, as `python SCRIPT …` and `python -m MODULE …` do."""
    gc.freeze()  # what was imported before the fork stays to the end: nobody need look through it
    for place, name in ((1, out), (2, err)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), place)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    sys.orig_argv = [sys.executable, *([] if words[0].endswith(".py") else ["-m"]), *words]
    try:
        (runpy.run_path if words[0].endswith(".py") else runpy.run_module)(words[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # as at the end of any Python


def start(script: Path, *args: Any, devices: int) -> Script:
    """Start a script in a process that has so many CPU devices."""
    folder = Path(tempfile.mkdtemp(prefix="glassformer-devices-"))
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        # What is compiled runs once or never, so that compiling is all that takes time.
        "XLA_FLAGS": xla_flags(xla_force_host_platform_device_count=devices),
    }
    return Script([script, *args], folder / "out", folder / "err", environment)


def answer(running: Script) -> Any:
    """Wait for a script and return what it printed last, as JSON."""
    try:
        code = running.wait(LIMIT)
        assert code == 0, f"ended with {code}: {running.err.read_text(encoding='utf-8')}"
        return json.loads(running.out.read_text(encoding="utf-8").splitlines()[-1])
    finally:
        running.kill()
        running.wait()
        shutil.rmtree(running.out.parent)
