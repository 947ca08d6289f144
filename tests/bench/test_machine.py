"""What is said about the machine."""

import json

from glassformer.bench import machine


def test_the_facts_fit_into_json_and_name_what_matters():
    facts = machine.machine()
    assert json.loads(json.dumps(facts)) == facts
    assert list(facts) == ["cpu", "cores", "memory_bytes", "system", "python", "versions", "blas", "load"]
    assert facts["cores"] >= 1
    assert {"glassformer", "numpy"} <= facts["versions"].keys()
    assert facts["cpu"]
    assert "threads" in facts["blas"]


def test_a_machine_that_tells_nothing_has_the_name_of_its_architecture(monkeypatch):
    monkeypatch.setattr(machine, "_CPU_COMMANDS", ())
    monkeypatch.setattr(machine.re, "search", lambda *args: None)
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "abacus")
    assert machine.cpu_name() == "abacus"


def test_modules_that_are_here_are_found():
    assert machine.is_here("numpy")
    assert not machine.is_here("no_such_module")


def test_every_peer_has_a_name_and_a_remedy():
    for module in machine.PEERS:
        assert machine.PEERS[module] in machine.missing(module)
    assert machine.missing("llama_cpp").endswith("pip install llama-cpp-python")
