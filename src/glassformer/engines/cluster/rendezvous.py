"""The rendezvous: all workers of a run connect to worker 0 before JAX starts.

`jax.distributed` waits for missing workers in native code and then aborts the process. Here the workers that do not
come are named, and those that do not belong together are refused. Both sides of a connection prove by an HMAC of a
random challenge that they know the run's secret; a process that does not is sent away. What follows on a connection,
one JSON object per message, is neither signed nor encrypted.
"""

import contextlib
import errno
import ipaddress
import json
import os
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import ClusterError, ConfigError, GlassformerError
from ...core.files import refusal
from .workers import Limits, Worker, myself

SECRET, FILE = "GLASSFORMER_SECRET", "GLASSFORMER_SECRET_FILE"
SHORTEST = 16
"""Characters of a secret: fewer could be guessed."""
VISIBLE = 5.0
"""Seconds until a file that another machine has just made must be visible on shared storage."""
MAKE_ONE = 'python -c "import secrets; print(secrets.token_hex(32))" makes one'
HINT = f"give all workers the same {SECRET}, or {FILE}; {MAKE_ONE}"
RETRY = 0.1
PATIENCE = 10
"""Seconds in which the other side must answer what it is asked, and take what it is sent."""
MOST = 1 << 24
"""Bytes of a message at most."""
BACKLOG = 1024
"""Connections that may wait to be accepted: all workers come at about the same time."""
OPEN_PORT = "start worker 0 on that machine, and see that the address is right and the port open"
SAME_SECRET = f"give all workers the same {SECRET} or {FILE}"


class Channel:
    """A connection between two workers; `closed` says whether the other side is gone."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(True)
        if os.name == "posix":
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", PATIENCE, 0))
        self.connection, self.closed = Connection(connection.detach()), False

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        try:
            if not self.closed:
                self.connection.send_bytes(json.dumps(message).encode())
        except OSError:
            self.closed = True

    def receive(self, timeout: float = 0.0) -> list[dict[str, Any]]:
        """Return the messages that have come since, or come in this time."""
        messages: list[dict[str, Any]] = []
        try:
            while not self.closed and self.connection.poll(0.0 if messages else timeout):
                messages.append(json.loads(self.connection.recv_bytes(MOST)))
        except (OSError, EOFError, ValueError):
            self.closed = True
        return messages

    def close(self) -> None:
        """End the connection."""
        self.closed = True
        self.connection.close()


class Meeting(NamedTuple):
    """What workers know when all are there: each other, the lines, and a port of worker 0 that was free for JAX."""

    workers: list[Worker]
    lines: dict[int, Channel]  # worker 0: to all others; any other: to worker 0
    port: int


def meet(
    number: int, total: int, host: str, port: int, *, limits: Limits, versions: dict[str, str], secret: bytes
) -> Meeting:
    """Wait until all workers are there."""
    hello = {"number": number, "total": total, "versions": versions, "self": myself(number).introduction()}
    if number == 0:
        return _Door(hello, secret, limits).gather(host, port)
    return _join(host, port, hello, limits, secret)


# --- worker 0 --------------------------------------------------------------------------------------------------------


class _Door:
    """Worker 0, before the run: takes in the workers that prove to know the secret."""

    def __init__(self, hello: dict[str, Any], secret: bytes, limits: Limits) -> None:
        self.hello, self.secret, self.limits = hello, secret, limits
        self.workers = {0: myself(0)}
        self.lines: dict[int, Channel] = {}
        self.proved: queue.Queue[tuple[Channel, dict[str, Any]]] = queue.Queue()
        self.unproved = ""  # from where the last one came that did not know the secret

    def gather(self, host: str, port: int) -> Meeting:
        """Wait for all workers, and tell them about each other."""
        total, deadline = self.hello["total"], time.monotonic() + self.limits.start
        try:
            with contextlib.closing(_opened(host, port)) as server:
                while len(self.workers) < total:
                    self._look(server)
                    if len(self.workers) < total and time.monotonic() > deadline:
                        raise self._missing(total)
            free = _free_port(host)
        except BaseException as error:
            # The others would wait for a worker 0 that may be started anew.
            reason = error.fact if isinstance(error, GlassformerError) else f"worker 0 ended: {type(error).__name__}"
            for line in self.lines.values():
                line.send({"refused": reason})
                line.close()
            raise
        everyone = [self.workers[number] for number in range(total)]
        for line in self.lines.values():
            line.send({"start": free, "workers": [worker.introduction() for worker in everyone]})
        return Meeting(everyone, self.lines, free)

    def _look(self, server: socket.socket) -> None:
        """Accept new workers, and drop those that disconnected: they may come back, restarted."""
        with contextlib.suppress(OSError):  # nothing has come, or there are too many open files for now
            threading.Thread(target=self._greet, args=server.accept(), daemon=True).start()
        for number in [number for number, line in self.lines.items() if line.receive() or line.closed]:
            self.lines.pop(number).close()
            del self.workers[number]
        with contextlib.suppress(queue.Empty):
            while True:
                self._take_in(*self.proved.get_nowait())

    def _greet(self, connection: socket.socket, address: tuple[Any, ...]) -> None:
        """Ask for proof in a thread of its own: port scanners connect, too."""
        line = Channel(connection)
        try:
            deliver_challenge(line.connection, self.secret)
            answer_challenge(line.connection, self.secret)
            self.proved.put((line, line.receive(PATIENCE)[0]))
        except AuthenticationError:
            self.unproved = address[0]
            line.close()
        except (OSError, EOFError, IndexError, AssertionError):
            line.close()

    def _take_in(self, line: Channel, message: dict[str, Any]) -> None:
        reason = _reason_to_refuse(message, self.hello, self.workers)
        if reason is not None:
            line.send({"refused": reason})
            raise ClusterError(reason, hint="start all workers with the same command, numbered 0, 1, …")
        number = message["number"]
        self.workers[number], self.lines[number] = Worker(number, *message["self"]), line

    def _missing(self, total: int) -> ClusterError:
        absent = [str(number) for number in range(total) if number not in self.workers]
        some = ", ".join(absent[:8]) + (", …" if len(absent) > 8 else "")
        noun = "worker" if len(absent) == 1 else "workers"
        fact = f"{noun} {some} of {total} did not start within {self.limits.start:.0f} s"
        if self.unproved:
            return ClusterError(f"{fact}; one from {self.unproved} did not know this run's secret", hint=SAME_SECRET)
        return ClusterError(fact, hint="look at their machines, and start all workers again")


def _reason_to_refuse(message: dict[str, Any], own: dict[str, Any], workers: dict[int, Worker]) -> str | None:
    """Say why a worker does not belong to this run, if it does not."""
    number, total = message["number"], message["total"]
    for library, version in own["versions"].items():
        if message["versions"].get(library) != version:
            return f"worker {number} runs {library} {message['versions'].get(library)}, worker 0 runs {version}"
    if total != own["total"]:
        return f"worker {number} was started as one of {total} processes, worker 0 as one of {own['total']}"
    if number in workers:
        there = workers[number]
        return f"two workers have the number {number}: one is on {there.host}, pid {there.pid}"
    return None


def _opened(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "it is in use" if taken else error.strerror or str(error)
        raise ConfigError(f"worker 0 cannot listen on port {port}: {reason}", hint="choose another port") from error


def _free_port(host: str) -> int:
    with listen(host, 0) as server:
        return int(server.getsockname()[1])


# --- every other worker ----------------------------------------------------------------------------------------------


def _join(host: str, port: int, hello: dict[str, Any], limits: Limits, secret: bytes) -> Meeting:
    deadline = time.monotonic() + limits.start
    while True:
        line = Channel(_connected(host, port, deadline, limits))
        # Worker 0 gives up first and names the missing workers.
        message = _answer(line, hello, secret, deadline + limits.silence - time.monotonic())
        if "unproved" in message:
            fact = f"worker 0 at {host}:{port} does not know this worker's secret"
            raise ClusterError(fact, hint=f"{SAME_SECRET}, or choose another port, if another run uses this one")
        if "refused" in message:
            raise ClusterError(message["refused"], hint="start all workers again, once this is mended")
        if "start" in message:
            workers = [Worker(number, *other) for number, other in enumerate(message["workers"])]
            return Meeting(workers, {0: line}, message["start"])
        line.close()
        if time.monotonic() > deadline:
            fact = f"worker 0 at {host}:{port} did not start the run within {limits.start:.0f} s"
            raise ClusterError(fact, hint="look at what worker 0 says")
        time.sleep(RETRY)


def _answer(line: Channel, hello: dict[str, Any], secret: bytes, patience: float) -> dict[str, Any]:
    """Introduce this worker and return what worker 0 says to it; nothing where that does not come from worker 0."""
    try:
        answer_challenge(line.connection, secret)
    except AuthenticationError:
        return {"unproved": True}
    except (OSError, EOFError, AssertionError):
        return {}
    with contextlib.suppress(AuthenticationError, OSError, EOFError):
        deliver_challenge(line.connection, secret)
        line.send(hello)
        return next(iter(line.receive(patience)), {})
    return {}


def _connected(host: str, port: int, deadline: float, limits: Limits) -> socket.socket:
    while True:
        try:
            left = max(RETRY, min(5.0, deadline - time.monotonic()))
            connection = socket.create_connection((host, port), timeout=left)
            # Where nothing listens yet, the system may pick that very port for this end, and connect it to itself.
            if connection.getsockname() != connection.getpeername():
                return connection
            connection.close()
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        except OSError as error:
            if time.monotonic() > deadline:
                reason = error.strerror or str(error) or type(error).__name__
                raise ClusterError(
                    f"could not reach worker 0 at {host}:{port} within {limits.start:.0f} s: {reason}", hint=OPEN_PORT
                ) from error
            time.sleep(RETRY)


# --- addresses -------------------------------------------------------------------------------------------------------


def listen(host: str, port: int) -> socket.socket:
    """Open a port: to this machine alone where `host` is a loopback address, else to all that can reach it."""
    address = _loopback(host)
    dual = address is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in (address or "") else socket.AF_INET
    server = socket.create_server((address or "", port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    server.settimeout(RETRY)
    return server


def bind_address(host: str, port: int) -> str:
    """Return where JAX's own service listens: on this machine alone where the coordinator is a loopback address."""
    address = _loopback(host) or "::"
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _loopback(host: str) -> str | None:
    """Return the address where a name stands for this machine as seen from itself, such as localhost; else None."""
    address = "127.0.0.1" if host.lower() == "localhost" else host
    with contextlib.suppress(ValueError):
        return address if ipaddress.ip_address(address).is_loopback else None
    return None


# --- the secret ------------------------------------------------------------------------------------------------------


def find_secret(environ: Mapping[str, str] = os.environ) -> bytes:
    """Return the secret of this run: GLASSFORMER_SECRET, the file GLASSFORMER_SECRET_FILE, or the user's own.

    The user's own is made when it is first asked for. Machines that share the user's home share it too.
    """
    text, where = environ.get(SECRET), SECRET
    if not text:
        path = Path(environ[FILE]).expanduser() if environ.get(FILE) else _made(own_file(environ))
        where = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            fact = f"the secret of this run cannot be read from {path}: {refusal(error)}"
            raise ConfigError(fact, hint=HINT) from error
    if len(text.strip()) < SHORTEST:
        fact = f"the secret in {where} has {len(text.strip())} characters, and {SHORTEST} are the least"
        raise ConfigError(fact, hint=MAKE_ONE)
    return text.strip().encode()


def own_file(environ: Mapping[str, str]) -> Path:
    """Return where a user's own secret is kept."""
    base = environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(base) if base else Path.home() / ".config") / "glassformer" / "secret"
    except RuntimeError as error:
        raise ConfigError("this user has no home to keep a secret in", hint=HINT) from error


def _made(path: Path) -> Path:
    """Make the user's own secret, readable by its owner alone, where there is none.

    It has its name only when it is complete, and never replaces another.
    """
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(secrets.token_hex(32) + "\n")
            with contextlib.suppress(FileExistsError):  # another worker was faster, perhaps on another machine
                os.link(partial, path)
    except OSError as error:
        fact = f"the secret of this run cannot be kept in {path}: {refusal(error)}"
        raise ConfigError(fact, hint=HINT) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    deadline = time.monotonic() + VISIBLE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return path
