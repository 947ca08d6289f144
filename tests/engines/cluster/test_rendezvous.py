"""The rendezvous: all workers of a run meet at worker 0, and strangers do no harm."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from glassformer.core.errors import ClusterError, ConfigError
from glassformer.engines.cluster import rendezvous
from glassformer.engines.cluster.rendezvous import Channel, meet
from glassformer.engines.cluster.workers import Limits
from process_groups import free_port

VERSIONS = {"glassformer": "1"}
SECRET = b"known to all workers"


def call(
    *workers: tuple[int, int],
    seconds: float = 60.0,
    versions: dict | None = None,
    port: int | None = None,
    secrets: dict | None = None,
) -> dict:
    """Let workers (number, total) meet, each in a thread; return the result or the error of each."""
    port, results = port or free_port(), {}

    def worker(place: int, number: int, total: int) -> None:
        given = {
            "limits": Limits(start=seconds),
            "versions": (versions or {}).get(number, VERSIONS),
            "secret": (secrets or {}).get(number, SECRET),
        }
        try:
            results[place] = meet(number, total, "127.0.0.1", port, **given)
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=worker, args=(place, *who)) for place, who in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    for result in results.values():
        for line in result[1].values() if isinstance(result, tuple) else ():
            line.close()
    return results


def test_all_workers_meet_and_know_each_other():
    results = call((0, 3), (1, 3), (2, 3))
    assert all(isinstance(result, tuple) for result in results.values()), results
    assert len({result[2] for result in results.values()}) == 1  # the port for JAX
    for result in results.values():
        assert [worker.number for worker in result[0]] == [0, 1, 2]
        assert {worker.host for worker in result[0]} == {socket.gethostname()}


def test_workers_that_do_not_come_are_named_to_all_that_did():
    results = call((2, 4), (0, 4), seconds=3)
    assert [type(result) for result in results.values()] == [ClusterError, ClusterError]
    assert all("workers 1, 3 of 4 did not start within 3 s" in str(result) for result in results.values())


def test_jax_alone_aborts_and_has_no_error_for_a_worker_that_does_not_come(jax):
    """Why there is a rendezvous before `jax.distributed` connects."""
    place = f"coordinator_address='127.0.0.1:{free_port()}', num_processes=2, process_id=0"
    code = f"import jax; jax.distributed.initialize({place}, initialization_timeout=1)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True)
    assert done.returncode == -signal.SIGABRT


def test_a_coordinator_that_does_not_answer_is_an_error_in_time():
    (result,) = call((1, 2), seconds=1).values()
    assert isinstance(result, ClusterError)
    assert "could not reach worker 0 at 127.0.0.1" in str(result)
    assert "within 1 s" in str(result)


def test_workers_of_different_runs_are_refused():
    results = call((0, 2), (1, 3))
    assert all("worker 1 was started as one of 3 processes, worker 0 as one of 2" in str(r) for r in results.values())


def test_two_workers_of_one_number_are_refused():
    results = call((0, 3), (1, 3), (1, 3))
    assert all("two workers have the number 1" in str(result) for result in results.values())


def test_other_versions_are_refused():
    results = call((0, 2), (1, 2), versions={1: {"glassformer": "2"}})
    assert all("worker 1 runs glassformer 2, worker 0 runs 1" in str(result) for result in results.values())


def test_a_port_in_use_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (result,) = call((0, 2), port=taken.getsockname()[1]).values()
    assert isinstance(result, ConfigError)
    assert "it is in use" in str(result)


NOISES = (
    b"GET / HTTP/1.1\r\n\r\n",
    b'{"hello": "you"}\n',
    b"[1]\n",
    b"\xff\xfe\n",
    b"",
    b"\x00\x00\x00\x10" + b"sixteen letters.",  # a message, and no proof
    b"\x00\x00\x00\x10" + b"half",
    b"\x7f\xff\xff\xff" + b"x" * 100,  # it would be very long
)


def test_strangers_at_the_port_do_no_harm():
    port = free_port()
    knocked, stop = threading.Event(), threading.Event()

    def knock() -> None:
        while not stop.is_set():
            knocked.set()
            for noise in NOISES:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                        connection.sendall(noise)
                        connection.shutdown(socket.SHUT_WR)
                except OSError:
                    time.sleep(0.05)

    stranger = threading.Thread(target=knock)
    stranger.start()
    assert knocked.wait(60)
    results = call((0, 2), (1, 2), port=port)
    stop.set()
    stranger.join()
    assert all(isinstance(result, tuple) for result in results.values()), results


def test_a_worker_with_another_secret_is_told_and_worker_0_names_where_it_came_from():
    first, second = call((0, 2), (1, 2), seconds=1.5, secrets={1: b"known to this one only"}).values()
    if "worker 0 at" in str(first):
        first, second = second, first
    assert "worker 1 of 2 did not start within 2 s; one from 127.0.0.1 did not know this run's secret" in str(first)
    assert "does not know this worker's secret" in str(second)
    assert all("give all workers the same GLASSFORMER_SECRET" in error.hint for error in (first, second))


def test_a_worker_believes_nobody_who_cannot_prove_to_be_worker_0():
    def pretend(connection: socket.socket) -> None:
        theirs = Channel(connection)
        theirs.connection.send_bytes(b"#CHALLENGE#" + b"x" * 20)
        theirs.connection.recv_bytes()
        theirs.connection.send_bytes(b"#WELCOME#")
        theirs.connection.recv_bytes()  # the worker asks in turn
        theirs.connection.send_bytes(b"0" * 16)
        theirs.send({"start": 1, "workers": [["here", 1, None]] * 2})

    a, b = socket.socketpair()
    threading.Thread(target=pretend, args=[b], daemon=True).start()
    assert rendezvous._answer(Channel(a), {"number": 1}, SECRET, 60) == {}


def test_who_connects_and_says_nothing_or_too_much_is_sent_away(monkeypatch):
    monkeypatch.setattr(rendezvous, "PATIENCE", 1)
    port, results = free_port(), {}
    thread = threading.Thread(target=lambda: results.update(call((0, 2), port=port, seconds=5)))
    thread.start()
    clients = []
    while len(clients) < 2:
        try:
            clients.append(socket.create_connection(("127.0.0.1", port)))
        except OSError:
            time.sleep(0.02)
    clients[1].sendall(b" " * 100_000)
    for client in clients:
        client.settimeout(60)
        with client:
            try:
                while client.recv(100):  # the question, and then the end
                    pass
            except ConnectionError:
                pass
    thread.join(60)
    assert "worker 1 of 2 did not start within 5 s" in str(results[0])


def test_too_many_open_files_are_no_end():
    class Full:
        def accept(self):
            raise OSError(errno.EMFILE, "too many open files")

    door = rendezvous._Door({"total": 2}, SECRET, Limits())
    door._look(Full())
    assert list(door.workers) == [0]


def test_a_worker_0_that_is_interrupted_tells_those_who_wait(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    port, errors = free_port(), []

    def first() -> None:
        monkeypatch.setattr(rendezvous, "_free_port", interrupted)
        try:
            meet(0, 2, "127.0.0.1", port, limits=Limits(start=60), versions=VERSIONS, secret=SECRET)
        except KeyboardInterrupt as error:
            errors.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    with pytest.raises(ClusterError, match="worker 0 ended: KeyboardInterrupt"):
        meet(1, 2, "127.0.0.1", port, limits=Limits(start=60), versions=VERSIONS, secret=SECRET)
    thread.join(60)
    assert len(errors) == 1


def test_a_connection_of_a_port_with_itself_is_not_worker_0(monkeypatch):
    port, real, made = free_port(), socket.create_connection, []

    def connect(address, timeout):
        if not made:  # what the system does by chance where no one listens
            made.append(socket.socket())
            made[0].bind(address)
            made[0].connect(address)
            return made[0]
        return real(address, timeout)

    monkeypatch.setattr(socket, "create_connection", connect)
    line = None
    with pytest.raises(ClusterError, match="could not reach worker 0"):
        line = rendezvous._connected("127.0.0.1", port, time.monotonic() + 0.5, Limits(start=1))
    assert line is None
    assert made[0].fileno() == -1  # closed: worker 0 needs the port


def test_a_line_tells_what_came_before_its_end():
    a, b = socket.socketpair()
    with b:
        line = Channel(a)
        b.sendall(b'\x00\x00\x00\x08{"x": 1}')
        b.shutdown(socket.SHUT_WR)
        assert line.receive() == [{"x": 1}]
        assert line.closed
