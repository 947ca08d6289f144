"""The roll call: all workers of a run meet at worker 0 before anything else starts.

JAX waits for missing workers in native code and then aborts, without saying whom it missed. Here every worker that
comes is noted, so the ones that do not come can be named, and those that do not belong together are refused.
"""

import contextlib
import errno
import os
import socket
import time
from typing import Any

from ..errors import ClusterError, ConfigError, GlassformerError
from .lines import MOST, Line, listen, loopback
from .workers import Limits, Worker, myself

RETRY = 0.1
INTRODUCTION = 1 << 16, 10.0
"""So many bytes and seconds are left to whoever connects to say which worker it is."""
OPEN_PORT = "start worker 0 on that machine, and see that the address is right and the port open"


def meet(
    number: int, total: int, host: str, port: int, *, limits: Limits, versions: dict[str, str]
) -> tuple[list[Worker], dict[int, Line], int]:
    """Wait until all workers are there; return them, the connections, and a port of worker 0 that was free for JAX."""
    hello = {"hello": number, "total": total, "versions": versions, "self": myself(number).introduction()}
    if number == 0:
        return _gather(total, host, port, hello, limits)
    return _join(host, port, hello, limits)


# --- worker 0 --------------------------------------------------------------------------------------------------------


def _gather(
    total: int, host: str, port: int, hello: dict[str, Any], limits: Limits
) -> tuple[list[Worker], dict[int, Line], int]:
    _allow_connections(total)
    strangers: dict[Line, float] = {}  # connected, but not yet introduced, and since when
    lines: dict[int, Line] = {}
    workers = {0: myself(0)}
    deadline = time.monotonic() + limits.start
    try:
        with contextlib.closing(_opened(host, port)) as server:
            while len(workers) < total:
                time.sleep(RETRY)
                _forget_gone(workers, lines)
                strangers |= dict.fromkeys(_accepted(server), time.monotonic())
                strangers = {a: b for a, b in strangers.items() if not _introduced(a, b, hello, workers, lines)}
                if len(workers) < total and time.monotonic() > deadline:
                    fact = _missing(workers, total, limits)
                    raise ClusterError(fact, hint="look at their machines, and start all workers again")
        free = _free_port(host)
    except BaseException as error:
        # The others would wait for a worker 0 that may be started anew.
        fact = error.fact if isinstance(error, GlassformerError) else f"worker 0 ended: {type(error).__name__}"
        for line in [*strangers, *lines.values()]:
            line.send({"refused": fact})
            line.close()
        raise
    for line in strangers:
        line.close()
    everyone = [workers[number] for number in range(total)]
    for line in lines.values():
        line.send({"start": free, "workers": [worker.introduction() for worker in everyone]})
    return everyone, lines, free


def _forget_gone(workers: dict[int, Worker], lines: dict[int, Line]) -> None:
    """Forget who went away again: it may come back, started anew, say."""
    for number in [number for number, line in lines.items() if line.receive() or line.closed]:
        lines.pop(number).close()
        del workers[number]


def _introduced(
    line: Line, since: float, own: dict[str, Any], workers: dict[int, Worker], lines: dict[int, Line]
) -> bool:
    """Take in a worker that has said hello; tell whether this connection is dealt with."""
    messages = line.receive()[:1]
    late = not messages and time.monotonic() - since > INTRODUCTION[1]
    if line.closed or late or (messages and not _is_worker(messages[0])):
        line.close()
        return True
    for message in messages:
        reason = _reason_to_refuse(message, own, workers)
        if reason is not None:
            raise ClusterError(reason, hint="start all workers with the same command, numbered 0, 1, …")
        number, line.most = message["hello"], MOST
        workers[number], lines[number] = Worker(number, *message["self"]), line
    return bool(messages)


def _opened(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "it is in use" if taken else error.strerror or str(error)
        raise ConfigError(f"worker 0 cannot listen on port {port}: {reason}", hint="choose another port") from error


def _allow_connections(total: int) -> None:
    """Ask the system for enough open files; each connection is one."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = total + 1024
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard < 0 else min(wanted, hard), hard))


def _accepted(server: socket.socket) -> list[Line]:
    accepted = []
    with contextlib.suppress(OSError):  # no one is left, or there are too many open files for now
        while True:
            accepted.append(Line(server.accept()[0], INTRODUCTION[0]))
    return accepted


def _is_worker(message: dict[str, Any]) -> bool:
    """Tell whether it is one of ours that connected; ports are tried out by all kinds of programs."""
    types = {"hello": int, "total": int, "versions": dict, "self": list}
    if not all(type(message.get(name)) is expected for name, expected in types.items()) or len(message["self"]) != 3:
        return False
    host, pid, place = message["self"]
    is_place = place is None or (type(place) is list and [type(part) for part in place] == [str, str, str])
    return 0 <= message["hello"] < message["total"] and type(host) is str and type(pid) is int and is_place


def _reason_to_refuse(message: dict[str, Any], own: dict[str, Any], workers: dict[int, Worker]) -> str | None:
    """Say why a worker does not belong to this run, if it does not."""
    number, total = message["hello"], message["total"]
    if total != own["total"]:
        return f"worker {number} was started as one of {total} processes, worker 0 as one of {own['total']}"
    if number in workers:
        there = workers[number]
        return f"two workers have the number {number}: one is on {there.host}, pid {there.pid}"
    for library, version in own["versions"].items():
        if message["versions"].get(library) != version:
            return f"worker {number} runs {library} {message['versions'].get(library)}, worker 0 runs {version}"
    return None


def _missing(workers: dict[int, Worker], total: int, limits: Limits) -> str:
    absent = [str(number) for number in range(total) if number not in workers]
    some = ", ".join(absent[:8]) + (", …" if len(absent) > 8 else "")
    noun = "worker" if len(absent) == 1 else "workers"
    return f"{noun} {some} of {total} did not start within {limits.start:.0f} s"


def _free_port(host: str) -> int:
    with listen(host, 0) as server:
        return int(server.getsockname()[1])


# --- every other worker ----------------------------------------------------------------------------------------------


def _join(host: str, port: int, hello: dict[str, Any], limits: Limits) -> tuple[list[Worker], dict[int, Line], int]:
    deadline = time.monotonic() + limits.start
    # Worker 0 gives up first and says who is missing.
    patience = deadline + limits.silence
    while True:
        line = _connected(host, port, deadline, limits)
        line.send(hello)
        while not line.closed and time.monotonic() < patience:
            time.sleep(RETRY)
            for message in line.receive():
                if "refused" in message:
                    line.close()
                    raise ClusterError(message["refused"], hint="start all workers again, once this is mended")
                if "start" in message:
                    workers = [Worker(number, *other) for number, other in enumerate(message["workers"])]
                    return workers, {0: line}, message["start"]
        line.close()
        if time.monotonic() > deadline:
            fact = f"worker 0 at {host}:{port} did not start the run within {limits.start:.0f} s"
            raise ClusterError(fact, hint="look at what worker 0 says")
        time.sleep(RETRY)


def _connected(host: str, port: int, deadline: float, limits: Limits) -> Line:
    while True:
        try:
            left = max(RETRY, min(5.0, deadline - time.monotonic()))
            connection = socket.create_connection((host, port), timeout=left)
            # Where no one listens yet, the system may pick that very port for this end, and connect it to itself.
            if connection.getsockname() != connection.getpeername():
                return Line(connection)
            connection.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except OSError as error:
            if time.monotonic() > deadline:
                reason = error.strerror or str(error) or type(error).__name__
                raise ClusterError(
                    f"could not reach worker 0 at {host}:{port} within {limits.start:.0f} s: {reason}", hint=OPEN_PORT
                ) from error
            time.sleep(RETRY)


def bind_address(host: str, port: int) -> str:
    """Return where JAX's own service listens: on this machine alone where the coordinator is a loopback address."""
    address = loopback(host) or "::"
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
