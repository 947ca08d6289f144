"""Finding out which process of how many this is, and meeting the others."""

import socket
import threading
import time

import pytest

from glassformer.errors import ClusterError, ConfigError
from glassformer.parallel.launch import Cluster, find_cluster, start
from glassformer.parallel.roll_call import meet
from glassformer.parallel.workers import Limits
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
    ],
)
def test_slurm_writes_lists_of_machines_in_many_ways(nodes, first):
    assert find_cluster({**SLURM, "SLURM_STEP_NODELIST": nodes}).host == first


@pytest.mark.parametrize(
    "change", [{"SLURM_STEP_TASKS_PER_NODE": "1(x12)"}, {"CUDA_VISIBLE_DEVICES": "3"}], ids=["one task each", "bound"]
)
def test_a_process_keeps_all_devices_it_sees_where_it_shares_none(change):
    assert find_cluster({**SLURM, **change}).devices is None


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


def test_without_a_cluster_the_watch_does_nothing():
    with start(None) as watch:
        watch.progress(1)
        with watch.busy("writing"):
            pass


# --- the roll call ---------------------------------------------------------------------------------------------------

VERSIONS = {"glassformer": "1"}


def call(
    *workers: tuple[int, int], seconds: float = 10.0, versions: dict | None = None, port: int | None = None
) -> dict:
    """Let workers (number, total) meet, each in a thread; return the result or the error of each."""
    port, results = port or free_port(), {}

    def worker(place: int, number: int, total: int) -> None:
        mine = (versions or {}).get(number, VERSIONS)
        try:
            results[place] = meet(number, total, "127.0.0.1", port, limits=Limits(start=seconds), versions=mine)
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=worker, args=(place, *who)) for place, who in enumerate(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
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
    results = call((0, 4), (2, 4), seconds=1)
    assert [type(result) for result in results.values()] == [ClusterError, ClusterError]
    assert all("workers 1, 3 of 4 did not start within 1 s" in str(result) for result in results.values())


def test_a_coordinator_that_does_not_answer_is_an_error_in_time():
    began = time.monotonic()
    (result,) = call((1, 2), seconds=1).values()
    assert time.monotonic() - began < 10
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


def test_strangers_at_the_port_do_no_harm():
    port = free_port()
    stop = threading.Event()

    def knock() -> None:
        while not stop.is_set():
            for noise in (b"GET / HTTP/1.1\r\n\r\n", b'{"hello": "you"}\n', b"[1]\n", b"\xff\xfe\n", b""):
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                        connection.sendall(noise)
                except OSError:
                    time.sleep(0.05)

    stranger = threading.Thread(target=knock)
    stranger.start()
    time.sleep(0.2)
    results = call((0, 2), (1, 2), port=port)
    stop.set()
    stranger.join()
    assert all(isinstance(result, tuple) for result in results.values()), results
