"""Finding out which process of how many this is, and meeting the others."""

import contextlib
import errno
import socket
import sys
import threading
import time

import pytest

from glassformer.cluster import roll_call
from glassformer.cluster.launch import Cluster, find_cluster, start
from glassformer.cluster.lines import Line, listen
from glassformer.cluster.roll_call import bind_address, meet
from glassformer.cluster.secret import LEADER, WORKER, is_proved, proved
from glassformer.cluster.workers import Limits
from glassformer.errors import ClusterError, ConfigError
from process_groups import free_port

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_NODELIST": "gpu[003-007,010],login",
    "SLURM_STEP_NUM_TASKS": "12",
    "SLURM_STEP_TASKS_PER_NODE": "2(x6)",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}


# --- who tells -------------------------------------------------------------------------------------------------------


def test_a_process_alone_has_no_cluster():
    assert find_cluster({}) is None
    assert find_cluster({}, coordinator="here:1234", processes=1, process=0) is None
    assert find_cluster({**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) is None


def test_a_shell_inside_of_a_slurm_allocation_is_a_process_alone():
    shell = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "12", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "gpu[003-007]"}
    assert find_cluster(shell) is None


def test_options_tell_everything():
    cluster = find_cluster({}, coordinator="node7:4321", processes=4, process=2)
    assert cluster == Cluster(2, 4, "node7:4321", None, "--coordinator, --processes, --process")
    assert (cluster.host, cluster.port) == ("node7", 4321)


def test_variables_tell_everything_and_options_come_first():
    variables = {"GLASSFORMER_COORDINATOR": "a:1", "GLASSFORMER_PROCESSES": "3", "GLASSFORMER_PROCESS": "1"}
    assert find_cluster(variables).coordinator == "a:1"
    assert find_cluster(variables, process=2).process == 2
    assert find_cluster({**SLURM, **variables}).processes == 3


def test_slurm_tells_everything():
    cluster = find_cluster(SLURM)
    assert (cluster.process, cluster.processes, cluster.source) == (5, 12, "Slurm")
    assert (cluster.host, cluster.devices) == ("gpu003", (1,))
    assert cluster.port == find_cluster({**SLURM, "SLURM_PROCID": "0"}).port


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node001", "node001"),
        ("node001,host2", "node001"),
        ("node[001-0015],host2", "node001"),
        ("node[001,007-015],host2", "node001"),
        ("rack[2-3]-node,host", "rack2-node"),
        ("n[01-03,7],gpu-[1,3]b", "n01"),
        ("gpu-[1,3]b,n[01-03,7]", "gpu-1b"),
        ("rack[1-2]n[03,05-07],x", "rack1n03"),
        ("[3-5]n", "3n"),
    ],
)
def test_slurm_writes_lists_of_machines_in_many_ways(nodes, first):
    assert find_cluster({**SLURM, "SLURM_STEP_NODELIST": nodes}).host == first


@pytest.mark.parametrize(
    "change", [{"SLURM_STEP_TASKS_PER_NODE": "1(x12)"}, {"CUDA_VISIBLE_DEVICES": "3"}], ids=["one task each", "bound"]
)
def test_a_process_keeps_all_devices_it_sees_where_it_shares_none(change):
    assert find_cluster({**SLURM, **change}).devices is None


@pytest.mark.parametrize("nodes", ["n[01-03", "n[]", "n[-3]", ",n1", " "])
def test_what_is_no_list_of_machines_is_refused(nodes):
    with pytest.raises(ConfigError, match="SLURM_STEP_NODELIST is"):
        find_cluster({**SLURM, "SLURM_STEP_NODELIST": nodes})


def test_devices_that_are_chosen_for_jax_stay_chosen():
    assert find_cluster({**SLURM, "JAX_LOCAL_DEVICE_IDS": "2,3"}).devices is None
    assert find_cluster({**OPEN_MPI, "JAX_LOCAL_DEVICE_IDS": "2,3"}).devices is None


def test_mpirun_inside_of_a_slurm_job_tells_alone():
    helper = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "gpu004"}
    assert find_cluster({**helper, **OPEN_MPI}) == find_cluster(OPEN_MPI)
    silent = {name: value for name, value in OPEN_MPI.items() if "orte" not in name}
    with pytest.raises(ConfigError, match=r"Open MPI gave .*, but not the coordinator"):
        find_cluster({**helper, **silent})


def test_open_mpi_may_tell_an_address_of_version_6():
    told = {**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": "1314521088.0;tcp6://[2620:10d::3000:2,fd00::1]:43370"}
    assert find_cluster(told).host == "2620:10d::3000:2"


def test_open_mpi_tells_everything_in_older_versions():
    cluster = find_cluster(OPEN_MPI)
    assert (cluster.process, cluster.processes, cluster.host, cluster.devices) == (2, 4, "10.96.0.1", (0,))


def test_open_mpi_needs_no_coordinator_on_one_machine():
    one = {name: value for name, value in OPEN_MPI.items() if "orte" not in name}
    assert find_cluster({**one, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}).host == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"Open MPI gave the process number and .*, but not the coordinator"):
        find_cluster(one)
    assert find_cluster(one, coordinator="a:1").process == 2


def test_an_indexed_job_of_kubernetes_tells_the_process_number():
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "3"}
    with pytest.raises(ConfigError, match="Kubernetes gave the process number, but not the number of processes"):
        find_cluster(pod)
    told = {**pod, "GLASSFORMER_COORDINATOR": "train-0.workers:4321", "GLASSFORMER_PROCESSES": "8"}
    assert (find_cluster(told).process, find_cluster(told).processes) == (3, 8)
    assert "Kubernetes" in find_cluster(told).source


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"process": 1}, "but not the number of processes and the coordinator"),
        ({"coordinator": "a:1", "processes": 2}, "but not the process number"),
        ({"coordinator": "a:1", "processes": 2, "process": 2}, "this is process 2 of 2"),
        ({"coordinator": "a:1", "processes": 2, "process": -1}, "this is process -1 of 2"),
        ({"coordinator": "a:1", "processes": 0, "process": 0}, "the number of processes is 0"),
        ({"coordinator": "a", "processes": 2, "process": 0}, "the coordinator's address is 'a'"),
        ({"coordinator": "a:99999", "processes": 2, "process": 0}, "the coordinator's address"),
        ({"coordinator": ":1", "processes": 2, "process": 0}, "the coordinator's address"),
        ({"coordinator": "a:²", "processes": 2, "process": 0}, "the coordinator's address"),
        ({"coordinator": "a..b:1", "processes": 2, "process": 0}, "the coordinator's address"),
        ({"coordinator": "http://a:1", "processes": 2, "process": 0}, "the coordinator's address"),
        ({"coordinator": "fd00::1", "processes": 2, "process": 0}, "the coordinator's address"),
        ({"coordinator": "[a]:1", "processes": 2, "process": 0}, "the coordinator's address"),
        ({"processes": 1, "process": 1}, "this is process 1 of 1"),
    ],
)
def test_what_is_half_given_or_wrong_is_refused(given, message):
    with pytest.raises(ConfigError, match=message) as caught:
        find_cluster({}, **given)
    assert caught.value.hint


def test_a_variable_that_is_no_number_is_refused():
    with pytest.raises(ConfigError, match="GLASSFORMER_PROCESS is 'two'"):
        find_cluster({"GLASSFORMER_PROCESS": "two"})


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_limit_must_be_a_number_of_seconds(text):
    with pytest.raises(ConfigError, match=r"GLASSFORMER_SILENCE|silence"):
        Limits.from_environ({"GLASSFORMER_SILENCE": text})
    assert Limits.from_environ({"GLASSFORMER_SILENCE": "7"}).silence == 7


def test_addresses_of_version_6_stand_in_brackets():
    cluster = Cluster(1, 2, "[fd00::1]:4321")
    assert (cluster.host, cluster.port) == ("fd00::1", 4321)


@pytest.mark.parametrize(
    ("host", "address", "bound"),
    [
        ("localhost", "127.0.0.1", "127.0.0.1:7"),
        ("127.0.0.3", "127.0.0.3", "127.0.0.3:7"),
        ("::1", "::1", "[::1]:7"),
        ("127.example.com", None, "[::]:7"),
        ("node7", None, "[::]:7"),
    ],
)
def test_a_loopback_address_opens_ports_to_this_machine_alone(monkeypatch, host, address, bound):
    opened = []
    monkeypatch.setattr(socket, "create_server", lambda where, **_: opened.append(where[0]) or socket.socket())
    with listen(host, 7):
        assert opened == [address or ""]
    assert bind_address(host, 7) == bound


def test_without_jax_several_processes_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match="need JAX, which is not installed"):
        start(Cluster(0, 2, "127.0.0.1:1"))


def test_without_a_cluster_the_watch_does_nothing():
    with start(None) as watch:
        watch.progress(1)
        with watch.busy("writing"):
            pass


# --- the roll call ---------------------------------------------------------------------------------------------------

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
    b"[" * 50_000 + b"\n",  # deeper than Python goes
    *(
        b'{"hello": %b, "total": %b, "versions": %b, "self": ["here", 1, %b], "challenge": "ab"%b}\n' % parts
        for parts in (
            (b"7", b"2", b"{}", b"null", b""),
            (b"true", b"2", b"{}", b"null", b""),
            (b"1", b"2", b"{}", b'["x"]', b""),
            # Well said, by who does not know the secret: of another run, of the same number, of another version.
            (b"1", b"2", b'{"glassformer": "1"}', b"null", b""),
            (b"1", b"3", b'{"glassformer": "1"}', b"null", b', "proof": "%b"' % (b"0" * 64)),
            (b"0", b"2", b'{"glassformer": "9"}', b"null", b', "proof": "\xc3\xa9"'),
            (b"1", b"2", b'{"a": %b}' % (b"[" * 900 + b"]" * 900), b"null", b', "proof": "%b"' % (b"0" * 64)),
        )
    ),
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
    hello = {"hello": 1, "total": 2, "versions": VERSIONS, "self": ["here", 1, None]}
    lies = (
        {"start": 1, "workers": [["here", 1, None]] * 2},
        {"refused": "go away", "proof": "0" * 64},
        {"challenge": "again"},
    )
    for lie in lies:
        a, b = socket.socketpair()
        with a, b:
            theirs = Line(b)
            theirs.send({"challenge": "x"})
            threading.Timer(0.3, theirs.send, [lie]).start()
            assert roll_call._answer(Line(a), hello, SECRET, time.monotonic() + 60) == {}
            (sent,) = theirs.receive()
            assert sent["proof"]
            assert SECRET.decode() not in str(sent)


def test_a_proof_answers_one_question_of_one_side_about_one_message():
    asked = ("a", "b")
    said = proved({"hello": 1, "self": ["here", 1, None]}, SECRET, WORKER, asked)
    assert is_proved(said, SECRET, WORKER, asked)
    assert not is_proved(said, b"another secret of a run", WORKER, asked)
    assert not is_proved(said, SECRET, LEADER, asked)
    assert not is_proved(said, SECRET, WORKER, ("a", "c"))
    assert not is_proved({**said, "hello": 2}, SECRET, WORKER, asked)
    assert not is_proved({"hello": 1}, SECRET, WORKER, asked)


def test_who_connects_and_says_nothing_or_too_much_is_sent_away(monkeypatch):
    monkeypatch.setattr(roll_call, "INTRODUCTION", (1 << 16, 0.3))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        clients = [socket.create_connection(server.getsockname()) for _ in range(2)]
        clients[1].sendall(b" " * 100_000)
        door, began = roll_call.Door({"total": 2}, SECRET), time.monotonic()
        door.look(server)
        while door.strangers and time.monotonic() < began + 60:
            door.look(server)
            time.sleep(0.02)
        assert list(door.workers) == [0]
        for client in clients:
            client.settimeout(60)
            with client, contextlib.suppress(ConnectionError):
                while client.recv(100):  # the question, and then the end
                    pass


def test_too_many_open_files_are_no_end():
    class Full:
        def accept(self):
            raise OSError(errno.EMFILE, "too many open files")

    assert roll_call._accepted(Full()) == []


def test_a_worker_0_that_is_interrupted_tells_those_who_wait(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    port, errors = free_port(), []

    def first() -> None:
        monkeypatch.setattr(roll_call, "_free_port", interrupted)
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
        line = roll_call._connected("127.0.0.1", port, time.monotonic() + 0.5, Limits(start=1))
    assert line is None
    assert made[0].fileno() == -1  # closed: worker 0 needs the port


def test_a_line_tells_what_came_before_its_end():
    a, b = socket.socketpair()
    with a, b:
        line = Line(a)
        b.sendall(b'{"x": 1}\n')
        b.shutdown(socket.SHUT_WR)
        assert line.receive() == [{"x": 1}]
        assert line.closed
