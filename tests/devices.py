"""Scripts that run on several virtual CPU devices, which only a fresh process can have."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from oracles import require
from xla import xla_flags

LIMIT = 250.0
"""Seconds until a script that does not end is an error: before pytest's own limit, even on a busy machine."""


def start(script: Path, *args: Any, devices: int) -> subprocess.Popen:
    """Start a script in a process that has so many CPU devices."""
    require("jax")
    folder = str(Path(__file__).parent)
    # What XLA says of a program, it says while it compiles, and not of one that was compiled before.
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"} | {
        "JAX_PLATFORMS": "cpu",
        # What is compiled runs once or never, so that compiling is all that takes time.
        "XLA_FLAGS": xla_flags(xla_force_host_platform_device_count=devices),
        "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep),
    }
    command = [sys.executable, str(script), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def answer(running: subprocess.Popen) -> Any:
    """Wait for a script and return what it printed last, as JSON."""
    try:
        out, err = running.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        raise
    assert running.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
