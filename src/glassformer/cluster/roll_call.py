"""The roll call: all workers of a run meet at worker 0 before anything else starts.

JAX waits for missing workers in native code and then aborts, without saying whom it missed. Here every worker that
comes is noted, so the ones that do not come can be named, and those that do not belong together are refused. Only who
proves to know the run's secret (`cluster/secret.py`) is listened to.
"""

import contextlib
import errno
import os
import socket
import time
from typing import Any

from ..errors import ClusterError, ConfigError, GlassformerError
from .lines import MOST, Line, listen, loopback
from .secret import FILE, LEADER, SECRET, WORKER, is_proved, new_challenge, proved
from .workers import Limits, Worker, myself

RETRY = 0.1
INTRODUCTION = 1 << 16, 10.0
"""So many bytes and seconds are left to whoever connects to say which worker it is."""
OPEN_PORT = "start worker 0 on that machine, and see that the address is right and the port open"
SAME_SECRET = f"give all workers the same {SECRET} or {FILE}"


def meet(
    number: int, total: int, host: str, port: int, *, limits: Limits, versions: dict[str, str], secret: bytes
) -> tuple[list[Worker], dict[int, Line], int]:
    """Wait until all workers are there; return them, the connections, and a port of worker 0 that was free for JAX."""
    hello = {"hello": number, "total": total, "versions": versions, "self": myself(number).introduction()}
    if number == 0:
        return _gather(total, host, port, hello, limits, secret)
    return _join(host, port, hello, limits, secret)


# --- worker 0 --------------------------------------------------------------------------------------------------------


class Door:
    """Who has knocked at worker 0: strangers until they prove to know the secret, then workers."""

    def __init__(self, hello: dict[str, Any], secret: bytes) -> None:
        self.hello, self.secret = hello, secret
        self.workers = {0: myself(0)}
        self.lines: dict[int, Line] = {}
        self.strangers: dict[Line, tuple[float, str]] = {}  # since when, and what they were asked
        self.asked: dict[Line, tuple[str, str]] = {}  # the challenges of both sides
        self.unproved = ""  # from where the last one came that did not know the secret

    def look(self, server: socket.socket) -> None:
        """Let in who has come, and take in who has proved to be a worker; the others are sent away."""
        _forget_gone(self.workers, self.lines)
        for line in _accepted(server):
            self.strangers[line] = time.monotonic(), new_challenge()
            line.send({"challenge": self.strangers[line][1]})
        for line in [line for line in self.strangers if self._is_dealt_with(line)]:
            del self.strangers[line]

    def tell(self, line: Line, message: dict[str, Any]) -> None:
        """Send a message that a worker can tell from a stranger's."""
        line.send(proved(message, self.secret, LEADER, self.asked[line]))

    def close(self, reason: str | None = None) -> None:
        """Send the strangers away, and with a reason the workers as well."""
        for line in self.lines.values() if reason is not None else ():
            self.tell(line, {"refused": reason})
            line.close()
        for line in self.strangers:
            line.close()

    def _is_dealt_with(self, line: Line) -> bool:
        since, challenge = self.strangers[line]
        messages = line.receive()[:1]
        late = not messages and time.monotonic() - since > INTRODUCTION[1]
        if line.closed or late or (messages and not _is_worker(messages[0])):
            line.close()
            return True
        for message in messages:
            self._take_in(line, message, (challenge, message["challenge"]))
        return bool(messages)

    def _take_in(self, line: Line, message: dict[str, Any], challenges: tuple[str, str]) -> None:
        """Take in a worker that has said hello, if it is one of this run's."""
        if not is_proved(message, self.secret, WORKER, challenges):
            self.unproved = line.peer
            line.send({"unproved": True})
            line.close()
            return
        self.asked[line], line.most = challenges, MOST
        reason = _reason_to_refuse(message, self.hello, self.workers)
        if reason is not None:
            self.tell(line, {"refused": reason})
            raise ClusterError(reason, hint="start all workers with the same command, numbered 0, 1, …")
        number = message["hello"]
        self.workers[number], self.lines[number] = Worker(number, *message["self"]), line

    def missing(self, limits: Limits) -> ClusterError:
        """Say who did not come."""
        fact = _missing(self.workers, self.hello["total"], limits)
        if self.unproved:
            return ClusterError(f"{fact}; one from {self.unproved} did not know this run's secret", hint=SAME_SECRET)
        return ClusterError(fact, hint="look at their machines, and start all workers again")


def _gather(
    total: int, host: str, port: int, hello: dict[str, Any], limits: Limits, secret: bytes
) -> tuple[list[Worker], dict[int, Line], int]:
    _allow_connections(total)
    door = Door(hello, secret)
    deadline = time.monotonic() + limits.start
    try:
        with contextlib.closing(_opened(host, port)) as server:
            while len(door.workers) < total:
                time.sleep(RETRY)
                door.look(server)
                if len(door.workers) < total and time.monotonic() > deadline:
                    raise door.missing(limits)
        free = _free_port(host)
    except BaseException as error:
        # The others would wait for a worker 0 that may be started anew.
        door.close(error.fact if isinstance(error, GlassformerError) else f"worker 0 ended: {type(error).__name__}")
        raise
    door.close()
    everyone = [door.workers[number] for number in range(total)]
    for line in door.lines.values():
        door.tell(line, {"start": free, "workers": [worker.introduction() for worker in everyone]})
    return everyone, door.lines, free


def _forget_gone(workers: dict[int, Worker], lines: dict[int, Line]) -> None:
    """Forget who went away again: it may come back, started anew, say."""
    for number in [number for number, line in lines.items() if line.receive() or line.closed]:
        lines.pop(number).close()
        del workers[number]


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
    types = {"hello": int, "total": int, "versions": dict, "self": list, "challenge": str}
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


def _join(
    host: str, port: int, hello: dict[str, Any], limits: Limits, secret: bytes
) -> tuple[list[Worker], dict[int, Line], int]:
    deadline = time.monotonic() + limits.start
    # Worker 0 gives up first and says who is missing.
    patience = deadline + limits.silence
    while True:
        line = _connected(host, port, deadline, limits)
        message = _answer(line, hello, secret, patience)
        if "unproved" in message:
            line.close()
            fact = f"worker 0 at {host}:{port} does not know this worker's secret"
            raise ClusterError(fact, hint=f"{SAME_SECRET}, or choose another port, if another run uses this one")
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


def _answer(line: Line, hello: dict[str, Any], secret: bytes, patience: float) -> dict[str, Any]:
    """Introduce this worker and return what worker 0 says to it; nothing where that does not come from worker 0."""
    challenges: tuple[str, str] | None = None
    while not line.closed and time.monotonic() < patience:
        time.sleep(RETRY)
        for message in line.receive():
            if challenges is None and isinstance(message.get("challenge"), str):
                challenges = message["challenge"], new_challenge()
                line.send(proved({**hello, "challenge": challenges[1]}, secret, WORKER, challenges))
            elif challenges is not None and (
                message == {"unproved": True} or is_proved(message, secret, LEADER, challenges)
            ):
                return message
            else:
                return {}
    return {}


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
