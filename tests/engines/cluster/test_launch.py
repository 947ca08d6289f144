"""Finding out which process of how many this is."""

import sys

import pytest

from glassformer.core.errors import ConfigError
from glassformer.engines.cluster.launch import Cluster, find_cluster, limit, start

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


def test_a_process_alone_has_no_cluster_even_inside_of_a_slurm_allocation():
    assert find_cluster({}) is None
    assert find_cluster({}, coordinator="here:1234", processes=1, process=0) is None
    assert find_cluster({**SLURM, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) is None
    shell = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "12", "SLURM_PROCID": "0", "SLURM_JOB_NODELIST": "gpu[003-007]"}
    assert find_cluster(shell) is None


def test_options_variables_and_slurm_tell_everything_in_this_order():
    cluster = find_cluster({}, coordinator="node7:4321", processes=4, process=2)
    assert cluster == Cluster(2, 4, "node7", 4321, None, "--coordinator, --processes, --process")
    assert (cluster.host, cluster.port) == ("node7", 4321)
    variables = {"GLASSFORMER_COORDINATOR": "a:1", "GLASSFORMER_PROCESSES": "3", "GLASSFORMER_PROCESS": "1"}
    assert find_cluster(variables).host == "a"
    assert find_cluster(variables, process=2).process == 2
    assert find_cluster({**SLURM, **variables}).processes == 3
    cluster = find_cluster(SLURM)
    assert (cluster.process, cluster.processes, cluster.source) == (5, 12, "Slurm")
    assert (cluster.host, cluster.devices) == ("gpu003", (1,))
    assert cluster.port == find_cluster({**SLURM, "SLURM_PROCID": "0"}).port


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node001", "node001"),
        ("node[001-0015],host2", "node001"),
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


def test_open_mpi_tells_everything_in_each_of_its_versions():
    helper = {**SLURM, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "gpu004"}
    assert find_cluster({**helper, **OPEN_MPI}) == find_cluster(OPEN_MPI)
    silent = {name: value for name, value in OPEN_MPI.items() if "orte" not in name}
    with pytest.raises(ConfigError, match=r"Open MPI gave .*, but not the coordinator"):
        find_cluster({**helper, **silent})

    told = {**OPEN_MPI, "OMPI_MCA_orte_hnp_uri": "1314521088.0;tcp6://[2620:10d::3000:2,fd00::1]:43370"}
    assert find_cluster(told).host == "2620:10d::3000:2"

    cluster = find_cluster(OPEN_MPI)
    assert (cluster.process, cluster.processes, cluster.host, cluster.devices) == (2, 4, "10.96.0.1", (0,))

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
        ({"coordinator": "a:²", "processes": 2, "process": 0}, "the coordinator's address"),
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
    with pytest.raises(ConfigError, match="GLASSFORMER_SILENCE is"):
        limit("SILENCE", {"GLASSFORMER_SILENCE": text})
    assert limit("SILENCE", {"GLASSFORMER_SILENCE": "7"}) == 7
    assert limit("SILENCE", {}) == 20


def test_addresses_of_version_6_stand_in_brackets():
    cluster = find_cluster({}, coordinator="[fd00::1]:4321", processes=2, process=1)
    assert (cluster.host, cluster.port) == ("fd00::1", 4321)


@pytest.fixture
def joined(jax, monkeypatch) -> dict:
    """What JAX is told when it joins the processes, which it does not do."""
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    told: dict = {}

    def initialize(coordinator_address=None, coordinator_bind_address=None, heartbeat_timeout_seconds=100):
        told.update(locals())

    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    return told


@pytest.mark.parametrize(
    ("host", "address", "bound"),
    [
        ("localhost", "localhost:7", "127.0.0.1:7"),
        ("127.0.0.3", "127.0.0.3:7", "127.0.0.3:7"),
        ("::1", "[::1]:7", "[::1]:7"),
        ("127.example.com", "127.example.com:7", "[::]:7"),
        ("node7", "node7:7", "[::]:7"),
    ],
)
def test_a_loopback_address_opens_ports_to_this_machine_alone(joined, host, address, bound):
    start(Cluster(0, 2, host, 7))
    assert (joined["coordinator_address"], joined["coordinator_bind_address"]) == (address, bound)


def test_settings_that_this_version_of_jax_does_not_know_are_left_out(joined, monkeypatch):
    monkeypatch.setenv("GLASSFORMER_SILENCE", "6.5")
    start(Cluster(1, 2, "node7", 7))  # `num_processes` would be refused
    assert joined["heartbeat_timeout_seconds"] == 7


def test_a_port_that_is_in_use_is_told(joined, jax, monkeypatch):
    def taken(**_):
        raise RuntimeError("UNKNOWN: Failed to start RPC server")

    monkeypatch.setattr(jax.distributed, "initialize", taken)
    with pytest.raises(ConfigError, match="worker 0 cannot listen on port 7: it is in use"):
        start(Cluster(0, 2, "node7", 7))


def test_without_jax_several_processes_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ConfigError, match="need JAX, which is not installed"):
        start(Cluster(0, 2, "127.0.0.1", 1))


def test_without_a_cluster_there_is_no_one_to_heed():
    with start(None) as workers:
        workers.heed_interrupts()
        workers.tell("joined")
        assert not workers.asked_to_stop(1)
    assert workers.cluster is None
