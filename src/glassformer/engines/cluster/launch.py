"""Several processes, one run: which one this is, and where they meet.

The answers come, each for itself, from the command line, from GLASSFORMER_COORDINATOR, _PROCESSES and _PROCESS, or from
Slurm, Open MPI or Kubernetes; docs/guides/many_machines.md has the table. Process 0 runs on the coordinator's machine
and listens on its port.
"""

import contextlib
import inspect
import ipaddress
import os
import re
import sys
import zlib
from collections.abc import Mapping
from importlib import metadata
from typing import Any, NamedTuple

from ...core.errors import ConfigError
from ..mesh.shape import require_jax
from .rendezvous import bind_address, find_secret, meet
from .watch import Watch
from .workers import Limits, number_in

WORDS = {"process": "the process number", "processes": "the number of processes", "coordinator": "the coordinator"}
NO_HEARTBEATS = 1 << 20
"""Seconds: longer than any run waits for a lost worker."""
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
    """Return this process's place among several; None where there is one alone. What is passed comes first."""
    options = {"process": process, "processes": processes, "coordinator": coordinator}
    found = {"--coordinator, --processes, --process": options}
    found["GLASSFORMER_COORDINATOR, _PROCESSES, _PROCESS"] = {
        "process": _number(environ, "GLASSFORMER_PROCESS"),
        "processes": _number(environ, "GLASSFORMER_PROCESSES"),
        "coordinator": environ.get("GLASSFORMER_COORDINATOR") or None,
    }
    given = _joined(found)
    # Only the nearest launcher counts: `mpirun` starts its helpers with `srun`, whose numbers are those of the helpers.
    for name, find in (("Open MPI", _open_mpi), ("Slurm", _slurm), ("Kubernetes", _kubernetes)):
        if told := find(environ):
            found[name] = told
            break
    values = _joined(found)
    if not values.keys() & WORDS.keys():
        return None
    if values.get("processes") == 1:
        _check_numbers(given.get("process", 0), 1)
        return None
    source = " and ".join(name for name, told in found.items() if any(told[word] is not None for word in WORDS))
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


def _joined(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return each value from the first source that has it."""
    sources = reversed(list(found.values()))
    return {name: value for told in sources for name, value in told.items() if value is not None}


def start(cluster: Cluster | None) -> Watch:
    """Meet all other processes, start to watch them, and connect JAX to them; without a cluster, do nothing.

    It must come before the first use of JAX's devices.
    """
    if cluster is None:
        return Watch()
    require_jax()
    limits = Limits.from_environ(os.environ)
    versions = {name: _version(name) for name in ("glassformer", "jax", "jaxlib")}
    secret = find_secret()
    _keep_stdout()
    meeting = meet(*cluster[:4], limits=limits, versions=versions, secret=secret)
    watch = Watch(cluster.process, meeting.workers, limits=limits)
    watch.begin(meeting.lines)
    try:
        _connect(cluster, meeting.port)
    except BaseException as error:
        watch.fail(error)
        raise
    return watch


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # it is imported from a folder
        return "not installed"


def _keep_stdout() -> None:
    """Send what native libraries write to stdout, such as greetings between processes, to stderr: stdout is data."""
    if sys.stdout is not sys.__stdout__ or sys.stdout is None:
        return  # it is not the process's own: a caller has redirected it
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, buffering=1)


def _connect(cluster: Cluster, port: int) -> None:
    """Let JAX's processes find each other, within bounded times."""
    import jax

    # Between processes, CPU devices need a library to exchange numbers; other devices have their own.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    settings: dict[str, Any] = {
        "coordinator_address": f"[{cluster.host}]:{port}" if ":" in cluster.host else f"{cluster.host}:{port}",
        "coordinator_bind_address": bind_address(cluster.host, port),
        "num_processes": cluster.processes,
        "process_id": cluster.process,
        "local_device_ids": None if cluster.devices is None else list(cluster.devices),
        "cluster_detection_method": "deactivate",  # it has been detected
        "initialization_timeout": 60,
        # Heartbeats come from a native thread, which lives on when Python hangs, and their loss aborts the process
        # without a name: the watch stands for them.
        "heartbeat_timeout_seconds": NO_HEARTBEATS,
        "shutdown_timeout_seconds": 30,
    }
    known = inspect.signature(jax.distributed.initialize).parameters
    jax.distributed.initialize(**{name: value for name, value in settings.items() if name in known})


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
    found = re.match(r"(?:[^\[\],\s]|\[\w[\w,-]*\])+(?=,|$)", nodes)
    if found is None:
        raise ConfigError(f"SLURM_STEP_NODELIST is {nodes!r}", hint="pass --coordinator HOST:PORT")
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", found[0])


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


def _number(environ: Mapping[str, str], name: str) -> int | None:
    return number_in(environ, name, int, "a whole number")
