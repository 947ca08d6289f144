"""Several processes, one run: which one this is, how JAX joins them, and how all stop after the same step.

The answers come, each for itself, from the command line, from GLASSFORMER_COORDINATOR, _PROCESSES and _PROCESS, or from
Slurm, Open MPI or Kubernetes; docs/guides/many_machines.md has the table. Process 0 runs on the coordinator's machine
and listens on its port. JAX's processes watch each other; `supervise` says which one was lost.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import ipaddress
import math
import os
import re
import signal
import sys
import threading
import time
import zlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple

from ...core.errors import ConfigError, GlassformerError
from ..mesh.rules import require_jax

WORDS = {"process": "the process number", "processes": "the number of processes", "coordinator": "the coordinator"}
LIMITS = {"SILENCE": 20.0, "START": 300.0}
"""Seconds after which a worker that is not heard of is lost, and in which all have to start; GLASSFORMER_SILENCE, …"""
PARENT = "GLASSFORMER_PARENT"
"""The variable that tells a supervised process the number of its connection to its parent."""
MARGIN = 5.0
"""Seconds beyond the limit on silence until JAX has ended a process that waits for a lost one."""
GRACE = 3.0
"""Seconds for which worker 0 outlives its own error, so that workers with the same one can tell it themselves."""
_PORTS = 1 << 12
"""A job's port is one of this many topmost ports, chosen by the number that the scheduler gave the job."""


class Cluster(NamedTuple):
    """This process among all processes of a run."""

    process: int
    processes: int
    host: str  # the machine of process 0, and the port where it listens
    port: int
    devices: tuple[int, ...] | None = None  # the local devices that are this process's own; None: all
    source: str = "given"  # what told


def find_cluster(
    environ: Mapping[str, str] = os.environ,
    *,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> Cluster | None:
    """Return which process of how many this is; None where it is alone. What is passed comes first."""
    options = {"process": process, "processes": processes, "coordinator": coordinator}
    answers = {"--coordinator, --processes, --process": options}
    answers["GLASSFORMER_COORDINATOR, _PROCESSES, _PROCESS"] = {
        "process": _number(environ, "GLASSFORMER_PROCESS"),
        "processes": _number(environ, "GLASSFORMER_PROCESSES"),
        "coordinator": environ.get("GLASSFORMER_COORDINATOR") or None,
    }
    passed = _joined(answers)
    # Only the nearest launcher counts: `mpirun` starts its helpers with `srun`, whose numbers are those of the helpers.
    for name, find in (("Open MPI", _open_mpi), ("Slurm", _slurm), ("Kubernetes", _kubernetes)):
        if told := find(environ):
            answers[name] = told
            break
    values = _joined(answers)
    if not values.keys() & WORDS.keys():
        return None
    if values.get("processes") == 1:
        _check_numbers(passed.get("process", 0), 1)
        return None
    source = " and ".join(name for name, told in answers.items() if any(told[word] is not None for word in WORDS))
    missing = [name for name in WORDS if name not in values]
    if missing:
        have = " and ".join(WORDS[name] for name in WORDS if name in values)
        raise ConfigError(
            f"{source} gave {have}, but not {' and '.join(WORDS[name] for name in missing)}",
            hint="pass " + ", ".join(f"--{name} or GLASSFORMER_{name.upper()}" for name in missing),
        )
    _check_numbers(values["process"], values["processes"])
    address = _split_address(values.pop("coordinator"))
    return Cluster(values["process"], values["processes"], *address, values.get("devices"), source)


def _joined(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return each value from the first source that has it."""
    sources = reversed(list(answers.values()))
    return {name: value for told in sources for name, value in told.items() if value is not None}


def limit(name: str, environ: Mapping[str, str] = os.environ) -> float:
    """Return one of the limits in seconds, as the environment sets it."""
    seconds = _number(environ, f"GLASSFORMER_{name}", float, "a number of seconds above 0")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError(f"GLASSFORMER_{name} is {seconds}", hint="use a number of seconds above 0")
    return LIMITS[name] if seconds is None else seconds


def start(cluster: Cluster | None) -> Workers:
    """Join all other processes of a run through JAX; without a cluster, do nothing.

    It must come before the first use of JAX's devices.
    """
    if cluster is None:
        return Workers()
    jax = require_jax()
    _keep_stdout()
    # Between processes, CPU devices need a library to exchange numbers; other devices have their own.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    settings: dict[str, Any] = {
        "coordinator_address": _joined_address(cluster.host, cluster.port),
        "coordinator_bind_address": _bind_address(cluster.host, cluster.port),
        "num_processes": cluster.processes,
        "process_id": cluster.process,
        "local_device_ids": None if cluster.devices is None else list(cluster.devices),
        "cluster_detection_method": "deactivate",  # it has been detected
        "initialization_timeout": math.ceil(limit("START")),
        "heartbeat_timeout_seconds": math.ceil(limit("SILENCE")),
    }
    known = inspect.signature(jax.distributed.initialize).parameters
    workers = Workers(cluster)
    try:
        jax.distributed.initialize(**{name: value for name, value in settings.items() if name in known})
    except RuntimeError as error:
        if cluster.process or "RPC server" not in str(error):
            raise
        fact = f"worker 0 cannot listen on port {cluster.port}: it is in use, or not this machine's"
        raise ConfigError(fact, hint="choose another port, and start worker 0 on the coordinator's machine") from error
    workers.tell("joined")
    return workers


def _keep_stdout() -> None:
    """Send what native libraries write to stdout, such as greetings between processes, to stderr: stdout is data."""
    if sys.stdout is not sys.__stdout__ or sys.stdout is None:
        return  # it is not the process's own: a caller has redirected it
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1)


class Workers:
    """All workers of a run, as one of them sees them; one that is alone has no others to heed.

    with start(find_cluster()) as workers:
        for step in …:
            …
            if workers.asked_to_stop(step):
                break
    """

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster
        self.interrupted = False  # whether Ctrl-C asked this worker to stop
        self._interrupt: Any = None  # what Ctrl-C did before it asked all workers to stop
        self._parent = int(os.environ.pop(PARENT, "-1")) if cluster is not None else -1
        if self._parent >= 0:
            os.set_inheritable(self._parent, False)

            def end_with_parent() -> None:
                with contextlib.suppress(OSError):
                    os.read(self._parent, 1)  # which never writes: this returns when it has gone
                os.kill(os.getpid(), signal.SIGKILL)

            threading.Thread(target=end_with_parent, name="parent", daemon=True).start()

    def tell(self, message: str) -> None:
        """Send a message to the parent, if there is one."""
        if self._parent >= 0:
            with contextlib.suppress(OSError):  # the parent has gone, and this process ends
                os.write(self._parent, f"{message}\n".encode())

    def asked_to_stop(self, step: int) -> bool:
        """Return whether any worker was asked to end, by Ctrl-C or SIGTERM; for the same step all get the same answer.

        To be called once after every step, by all. A second Ctrl-C ends the worker at once.
        """
        if self.cluster is None:
            return False
        from jax.experimental.multihost_utils import reached_preemption_sync_point

        self.heed_interrupts()
        return bool(reached_preemption_sync_point(step))

    def heed_interrupts(self) -> None:
        """Turn Ctrl-C into a wish that all workers stop, as `asked_to_stop` finds; if it is ignored, it stays so."""
        before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
        if self.cluster is None or self._interrupt is not None or before is signal.SIG_IGN:
            return
        self._interrupt = before
        with contextlib.suppress(ValueError):  # only the main thread may set handlers
            signal.signal(signal.SIGINT, self._forward_interrupt)

    def _forward_interrupt(self, *_: Any) -> None:
        """Turn the first Ctrl-C into SIGTERM, on which JAX lets all processes stop after the same step."""
        self.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGTERM)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self.cluster is None:
            return
        if self._interrupt is not None:
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGINT, self._interrupt)
        # A command that was ended on purpose: by the words that Python or the command line have for it.
        if error is None or isinstance(error, SystemExit | GeneratorExit) or type(error).__name__ == "Exit":
            self.tell("left")
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Leave without waiting for the others, after this worker's own error has been told."""
        cause: BaseException | None = error
        while isinstance(cause, GlassformerError | OSError | MemoryError | KeyboardInterrupt):
            cause = cause.__cause__
        if cause is not None:  # a surprise, as which a message that got no answer comes
            # It may have broken off because another one is gone: the parent finds out, or JAX ends this process.
            self.tell("broken")
            time.sleep(limit("SILENCE") + MARGIN)
        # As the command line ends on this error.
        code = 2 if isinstance(error, ConfigError) else 130 if isinstance(error, KeyboardInterrupt) else 1
        # Runs before what JAX does at the end, which would wait for workers that no longer come.
        atexit.register(self._abandon, code)
        late = threading.Timer(2 * GRACE, self._abandon, [code])  # where another thread keeps this process from ending
        late.daemon = True
        late.start()

    def _abandon(self, code: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if self.cluster is not None and self.cluster.process == 0:
            time.sleep(GRACE)
        os._exit(code)


def _joined_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_address(host: str, port: int) -> str:
    """Return where JAX's service listens: on this machine alone where the coordinator is a loopback address."""
    address = "127.0.0.1" if host.lower() == "localhost" else host
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(address).is_loopback:
            return _joined_address(address, port)
    return _joined_address("::", port)


# --- launchers: what one does not tell is None -----------------------------------------------------------------------


def _slurm(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Read what `srun` sets for each task of a step; a shell inside an allocation is no such task."""
    if not all(environ.get(name) for name in ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID")):
        return None
    total = "SLURM_STEP_NUM_TASKS" if environ.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    alone = re.fullmatch(r"1(\(x\d+\))?", environ.get("SLURM_STEP_TASKS_PER_NODE", "")) is not None
    return {
        "process": _number(environ, "SLURM_PROCID"),
        "processes": _number(environ, total),
        "coordinator": f"{_first_node(environ['SLURM_STEP_NODELIST'])}:{_port_of(environ['SLURM_JOB_ID'])}",
        "devices": None if alone else _one_device(environ, "SLURM_LOCALID"),
    }


def _open_mpi(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Read what `mpirun` sets; which machine process 0 is on, it tells in older versions only."""
    process, processes = (_number(environ, f"OMPI_COMM_WORLD_{name}") for name in ("RANK", "SIZE"))
    if process is None or processes is None:
        return None
    here = _number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE")
    told = environ.get("OMPI_MCA_orte_hnp_uri", "")
    launcher = re.match(r"(\d+)\.\d+;(?:tcp://([^,:]+)|tcp6://\[([^],]+))", told)
    coordinator = None
    if here == processes:
        job = environ.get("PMIX_NAMESPACE") or told or "one machine"
        coordinator = f"127.0.0.1:{_port_of(str(zlib.crc32(job.encode())))}"
    elif launcher is not None:
        coordinator = f"{launcher[2] or f'[{launcher[3]}]'}:{_port_of(str(int(launcher[1]) // _PORTS))}"
    devices = None if here == 1 else _one_device(environ, "OMPI_COMM_WORLD_LOCAL_RANK")
    return {"process": process, "processes": processes, "coordinator": coordinator, "devices": devices}


def _kubernetes(environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Read the number of a pod in an indexed Job."""
    if not environ.get("KUBERNETES_SERVICE_HOST") or not environ.get("JOB_COMPLETION_INDEX"):
        return None
    return {"process": _number(environ, "JOB_COMPLETION_INDEX"), "processes": None, "coordinator": None}


def _one_device(environ: Mapping[str, str], name: str) -> tuple[int, ...] | None:
    """Return the device of a process that shares its machine with others, unless it sees one device only.

    Where JAX_LOCAL_DEVICE_IDS is set, JAX itself reads it.
    """
    if environ.get("JAX_LOCAL_DEVICE_IDS"):
        return None
    visible = environ.get("CUDA_VISIBLE_DEVICES", environ.get("ROCR_VISIBLE_DEVICES", ""))
    local = _number(environ, name)
    return None if local is None or (visible and "," not in visible) else (local,)


def _first_node(nodes: str) -> str:
    """Return the first name of a Slurm list: gpu003 of "gpu[003-007,010],cpu1", r1n2 of "r[1-3]n[2,4]"."""
    match = re.match(r"(?:[^\[\],\s]|\[\w[\w,-]*\])+(?=,|$)", nodes)
    if match is None:
        raise ConfigError(f"SLURM_STEP_NODELIST is {nodes!r}", hint="pass --coordinator HOST:PORT")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", match[0])


def _check_numbers(process: int, processes: int) -> None:
    if processes < 1:
        raise ConfigError(f"the number of processes is {processes}", hint="use at least 1")
    if not 0 <= process < processes:
        raise ConfigError(
            f"this is process {process} of {processes}", hint=f"number the processes from 0 to {processes - 1}"
        )


def _port_of(job: str) -> int:
    digits = int(job) if re.fullmatch("[0-9]{1,18}", job) else zlib.crc32(job.encode())
    return digits % _PORTS + 65536 - _PORTS


def _split_address(address: str) -> tuple[str, int]:
    """Split HOST:PORT; refuse what cannot be looked up: the system's functions fail in ways of their own on it."""
    host, _, port = address.rpartition(":")
    bracketed = re.fullmatch(r"\[(.+)\]", host)
    host = bracketed[1] if bracketed else host
    with contextlib.suppress(ValueError):
        known = ipaddress.IPv6Address(host) if bracketed else host.encode("idna")
        plain = bracketed or re.search(r"[\s:/\[\]]", host) is None
        if known and plain and re.fullmatch("[0-9]{1,5}", port) and 0 < int(port) < 65536:
            return host, int(port)
    raise ConfigError(
        f"the coordinator's address is {address!r}",
        hint="use HOST:PORT, such as node7:4321, 10.0.0.1:4321 or [fd00::1]:4321",
    )


def _number(environ: Mapping[str, str], name: str, kind: type[Any] = int, what: str = "a whole number") -> Any:
    """Return a number that the environment sets; None where it does not."""
    try:
        return kind(environ[name]) if environ.get(name) else None
    except ValueError:
        raise ConfigError(f"{name} is {environ[name]!r}", hint=f"use {what}") from None
