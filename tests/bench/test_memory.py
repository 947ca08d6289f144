"""Memory of a process: what it holds and held."""

import numpy as np

from glassformer.bench import attention, memory, train
from glassformer.bench.process import call


class Hoarder:
    """Touches so many megabytes at every step and lets go of them again."""

    def __init__(self, *, megabytes):
        self.megabytes = megabytes

    def step(self):
        np.ones(self.megabytes << 20, np.uint8)


def test_growth_is_the_peak_and_not_what_is_left(monkeypatch):
    monkeypatch.setattr(memory, "find", lambda path: Hoarder)
    found = memory.growth(imports=["json"], build="", settings={"megabytes": 64}, steps=2)
    assert list(found) == ["growth", "peak", "imports"]
    assert found["peak"] - found["imports"] == found["growth"]


def test_a_fresh_process_knows_nothing_of_what_its_parent_held():
    ballast = np.ones(256 << 20, np.uint8)
    assert call("glassformer.bench.memory:peak", {}) < ballast.nbytes


def test_where_the_system_does_not_tell_the_peak_is_asked_of_the_resource_module(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "nowhere")
    assert memory.resident() == memory.peak() > 1 << 20


def test_a_system_that_tells_nothing_is_no_failure(monkeypatch, tmp_path):
    assert memory.is_told()
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "nowhere")
    monkeypatch.setattr(memory, "find_spec", lambda name: None)
    step = train.step_memory("tiny", train.SETTINGS["tiny"], peers=True, talk=print)
    reports = [step, attention.memory(peers=True, talk=print)]
    assert [(report.figures, report.notes) for report in reports] == [([], [memory.UNKNOWN])] * 2
