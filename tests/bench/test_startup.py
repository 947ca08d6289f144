"""The start as it is measured: fresh processes, an empty cache of kernels first, and commands that only print."""

import pytest

from benches import be_brief
from glassformer.bench import machine, startup
from glassformer.bench.first_step import import_one
from glassformer.bench.first_step import torch as torch_step
from glassformer.bench.process import ContenderError
from glassformer.bench.startup import COMMANDS, FIRST, IMPORT, JAX, LATER, NUMPY, TORCH, TORCH_IMPORT
from glassformer.bench.timing import Race
from glassformer.bench.train import Setting

MINUTE = {"layers": 1, "width": 8, "heads": 2, "length": 4, "batch": 2, "vocab": 5}


@pytest.mark.slow
def test_a_start_is_measured_here(monkeypatch):
    be_brief(monkeypatch)
    monkeypatch.setattr(machine, "is_here", lambda module: False)  # compiling kernels takes long
    monkeypatch.setitem(startup.SETTINGS, startup.SETTING, Setting(**MINUTE))
    report, commands = startup.bench_startup(peers=False, seconds=0.01)
    assert [figure.name for figure in report.figures] == [FIRST, IMPORT, LATER]
    assert [bar.at_most for bar in report.bars] == [True, True]
    assert [figure.name for figure in commands.figures] == [NUMPY, *COMMANDS]
    assert all(figure.value.low > 0 for figure in commands.figures)


def test_a_start_is_compared_with_the_fastest_of_all_peers():
    seconds = {FIRST: 9.0, IMPORT: 0.1, LATER: 1.0, TORCH: 3.0, JAX: 2.0}
    report = startup.report(Race({name: [[value]] for name, value in seconds.items()}), [], "small")
    assert report.ratio == f"× as fast as {JAX}"
    assert [figure.ratio and figure.ratio.median for figure in report.figures] == [None, None, 2.0, 2 / 3, 1.0]


def test_a_start_is_compared_with_that_of_pytorch():
    seconds = {FIRST: 9.0, IMPORT: 0.1, LATER: 1.0, TORCH_IMPORT: 2.0, TORCH: 3.0}
    report = startup.report(Race({name: [[value]] for name, value in seconds.items()}), ["a note"], "small")
    ratios = {figure.name: figure.ratio and figure.ratio.median for figure in report.figures}
    assert ratios == {FIRST: None, IMPORT: None, LATER: 3.0, TORCH_IMPORT: None, TORCH: 1.0}
    assert [bar.ok for bar in report.bars] == [True, True]
    assert report.notes[0] == "a note"


def test_pytorch_is_missing_and_no_error(monkeypatch):
    monkeypatch.setattr(machine, "is_here", lambda module: False)
    monkeypatch.setattr(startup.Start, "run", lambda self, steps: [1.0] * steps)
    report = startup.first_steps(peers=True, seconds=0.01, talk=print)
    assert any("PyTorch is not installed" in note for note in report.notes)
    assert any("Numba is not installed" in note for note in report.notes)


def test_commands_stand_beside_an_import_of_numpy_and_have_a_bar(monkeypatch):
    seconds = {NUMPY: 0.125, "glassformer --help": 0.25, "glassformer tasks": 0.25, "glassformer params gpt2": 0.5}
    monkeypatch.setattr(startup.Command, "run", lambda self, steps: [seconds[self.name]] * steps)
    report = startup.commands(seconds=0.01, talk=print)
    assert {figure.name: figure.value.median for figure in report.figures} == seconds
    assert [figure.ratio.median for figure in report.figures] == [1.0, 0.5, 0.5, 0.25]
    assert [bar.ok for bar in report.bars] == [True, True, False]


def test_a_command_that_fails_is_not_timed():
    broken = startup.Command("broken", "-c", "raise SystemExit('no such thing')")
    with pytest.raises(ContenderError, match=r"broken ended with code 1\n\nhint: no such thing"):
        broken.run(1)


def test_a_first_step_of_pytorch_has_the_loss_of_chance(torch):
    assert torch_step(**MINUTE) > 0


def test_a_module_is_imported():
    assert import_one(name="json")
