"""The rendezvous: all workers of a run connect to worker 0 before JAX starts.

`jax.distributed` waits for missing workers in native code and then aborts the process. Here the workers that do not
come are named, and those that do not belong together are refused. Worker 0 listens only to those who prove to know the
run's secret (`cluster/secret.py`).
"""

import contextlib
import errno
import os
import socket
import time
from typing import Any

from ..errors import ClusterError, ConfigError, GlassformerError
from .connection import MOST, Connection, listen, loopback
from .secret import FILE, LEADER, SECRET, WORKER, is_proved, new_challenge, proved
from .workers import Limits, Worker, myself

RETRY = 0.1
INTRODUCTION = 1 << 16, 10.0
"""So many bytes and seconds are left to whoever connects to say which worker it is."""
OPEN_PORT = "start worker 0 on that machine, and see that the address is right and the port open"
SAME_SECRET = f"give all workers the same {SECRET} or {FILE}"


def meet(
    number: int, total: int, host: str, port: int, *, limits: Limits, versions: dict[str, str], secret: bytes
) -> tuple[list[Worker], dict[int, Connection], int]:
    """Wait until all workers are there; return them, the connections, and a port of worker 0 that was free for JAX."""
    hello = {"hello": number, "total": total, "versions": versions, "self": myself(number).introduction()}
    if number == 0:
        return _gather(total, host, port, hello, limits, secret)
    return _join(host, port, hello, limits, secret)


# --- worker 0 --------------------------------------------------------------------------------------------------------


class Rendezvous:
    """Who has knocked at worker 0: strangers until they prove to know the secret, then workers."""

    def __init__(self, hello: dict[str, Any], secret: bytes) -> None:
        self.hello, self.secret = hello, secret
        self.workers = {0: myself(0)}
        self.peers: dict[int, Connection] = {}
        self.strangers: dict[Connection, tuple[float, str]] = {}  # since when, and what they were asked
        self.asked: dict[Connection, tuple[str, str]] = {}  # the challenges of both sides
        self.unproved = ""  # from where the last one came that did not know the secret

    def look(self, server: socket.socket) -> None:
        """Let in who has come, and take in who has proved to be a worker; the others are sent away."""
        _forget_gone(self.workers, self.peers)
        for peer in _accepted(server):
            self.strangers[peer] = time.monotonic(), new_challenge()
            peer.send({"challenge": self.strangers[peer][1]})
        for peer in [peer for peer in self.strangers if self._is_dealt_with(peer)]:
            del self.strangers[peer]

    def tell(self, peer: Connection, message: dict[str, Any]) -> None:
        """Send a message that a worker can tell from a stranger's."""
        peer.send(proved(message, self.secret, LEADER, self.asked[peer]))

    def close(self, reason: str | None = None) -> None:
        """Send the strangers away, and with a reason the workers as well."""
        for peer in self.peers.values() if reason is not None else ():
            self.tell(peer, {"refused": reason})
            peer.close()
        for peer in self.strangers:
            peer.close()

    def _is_dealt_with(self, peer: Connection) -> bool:
        since, challenge = self.strangers[peer]
        messages = peer.receive()[:1]
        late = not messages and time.monotonic() - since > INTRODUCTION[1]
        if peer.closed or late or (messages and not _is_worker(messages[0])):
            peer.close()
            return True
        for message in messages:
            self._take_in(peer, message, (challenge, message["challenge"]))
        return bool(messages)

    def _take_in(self, peer: Connection, message: dict[str, Any], challenges: tuple[str, str]) -> None:
        """Take in a worker that has said hello, if it is one of this run's."""
        if not is_proved(message, self.secret, WORKER, challenges):
            self.unproved = peer.address
            peer.send({"unproved": True})
            peer.close()
            return
        self.asked[peer], peer.most = challenges, MOST
        reason = _reason_to_refuse(message, self.hello, self.workers)
        if reason is not None:
            self.tell(peer, {"refused": reason})
            raise ClusterError(reason, hint="start all workers with the same command, numbered 0, 1, …")
        number = message["hello"]
        self.workers[number], self.peers[number] = Worker(number, *message["self"]), peer

    def missing(self, limits: Limits) -> ClusterError:
        """Say who did not come."""
        fact = _missing(self.workers, self.hello["total"], limits)
        if self.unproved:
            return ClusterError(f"{fact}; one from {self.unproved} did not know this run's secret", hint=SAME_SECRET)
        return ClusterError(fact, hint="look at their machines, and start all workers again")


def _gather(
    total: int, host: str, port: int, hello: dict[str, Any], limits: Limits, secret: bytes
) -> tuple[list[Worker], dict[int, Connection], int]:
    _allow_connections(total)
    rendezvous = Rendezvous(hello, secret)
    deadline = time.monotonic() + limits.start
    try:
        with contextlib.closing(_opened(host, port)) as server:
            while len(rendezvous.workers) < total:
                time.sleep(RETRY)
                rendezvous.look(server)
                if len(rendezvous.workers) < total and time.monotonic() > deadline:
                    raise rendezvous.missing(limits)
        free = _free_port(host)
    except BaseException as error:
        # The others would wait for a worker 0 that may be started anew.
        reason = error.fact if isinstance(error, GlassformerError) else f"worker 0 ended: {type(error).__name__}"
        rendezvous.close(reason)
        raise
    rendezvous.close()
    everyone = [rendezvous.workers[number] for number in range(total)]
    for peer in rendezvous.peers.values():
        rendezvous.tell(peer, {"start": free, "workers": [worker.introduction() for worker in everyone]})
    return everyone, rendezvous.peers, free


def _forget_gone(workers: dict[int, Worker], peers: dict[int, Connection]) -> None:
    """Forget who went away again: it may come back, started anew, say."""
    for number in [number for number, peer in peers.items() if peer.receive() or peer.closed]:
        peers.pop(number).close()
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


def _accepted(server: socket.socket) -> list[Connection]:
    accepted = []
    with contextlib.suppress(OSError):  # no one is left, or there are too many open files for now
        while True:
            accepted.append(Connection(server.accept()[0], INTRODUCTION[0]))
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
) -> tuple[list[Worker], dict[int, Connection], int]:
    deadline = time.monotonic() + limits.start
    # Worker 0 gives up first and says who is missing.
    patience = deadline + limits.silence
    while True:
        peer = _connected(host, port, deadline, limits)
        message = _answer(peer, hello, secret, patience)
        if "unproved" in message:
            peer.close()
            fact = f"worker 0 at {host}:{port} does not know this worker's secret"
            raise ClusterError(fact, hint=f"{SAME_SECRET}, or choose another port, if another run uses this one")
        if "refused" in message:
            peer.close()
            raise ClusterError(message["refused"], hint="start all workers again, once this is mended")
        if "start" in message:
            workers = [Worker(number, *other) for number, other in enumerate(message["workers"])]
            return workers, {0: peer}, message["start"]
        peer.close()
        if time.monotonic() > deadline:
            fact = f"worker 0 at {host}:{port} did not start the run within {limits.start:.0f} s"
            raise ClusterError(fact, hint="look at what worker 0 says")
        time.sleep(RETRY)


def _answer(peer: Connection, hello: dict[str, Any], secret: bytes, patience: float) -> dict[str, Any]:
    """Introduce this worker and return what worker 0 says to it; nothing where that does not come from worker 0."""
    challenges: tuple[str, str] | None = None
    while not peer.closed and time.monotonic() < patience:
        time.sleep(RETRY)
        for message in peer.receive():
            if challenges is None and isinstance(message.get("challenge"), str):
                challenges = message["challenge"], new_challenge()
                peer.send(proved({**hello, "challenge": challenges[1]}, secret, WORKER, challenges))
            elif challenges is not None and (
                message == {"unproved": True} or is_proved(message, secret, LEADER, challenges)
            ):
                return message
            else:
                return {}
    return {}


def _connected(host: str, port: int, deadline: float, limits: Limits) -> Connection:
    while True:
        try:
            left = max(RETRY, min(5.0, deadline - time.monotonic()))
            connection = socket.create_connection((host, port), timeout=left)
            # Where no one listens yet, the system may pick that very port for this end, and connect it to itself.
            if connection.getsockname() != connection.getpeername():
                return Connection(connection)
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
