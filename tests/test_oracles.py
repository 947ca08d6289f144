"""What a session does without is chosen, said, and never a reason to fail; what else is missing is one."""

import pytest

import xla
from oracles import LEFT_OUT, done_without, require


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("GLASSFORMER_REQUIRE_ALL", "1")
    monkeypatch.delenv(LEFT_OUT, raising=False)


def test_a_library_that_is_left_out_is_skipped_and_no_other(monkeypatch):
    monkeypatch.setenv(LEFT_OUT, "torch no_such_library")
    for name in ("torch", "no_such_library"):
        with pytest.raises(pytest.skip.Exception, match=f"{name} is left out"):
            require(name)
    with pytest.raises(pytest.fail.Exception, match="no_such_oracle is not installed"):
        require("no_such_oracle")
    assert "libraries left out: torch, no_such_library" in done_without()


def test_nothing_is_left_out_unasked():
    with pytest.raises(pytest.fail.Exception, match="no_such_library is not installed"):
        require("no_such_library")
    assert not any("left out" in line for line in done_without())


def test_xla_is_asked_which_options_it_knows(jax, monkeypatch):
    known = {name: value for name, value in xla.QUICK.items() if name not in xla.not_known()}
    assert known
    wrong = {"xla_no_such_option": True, "xla_nor_this_one": 1}
    assert xla.ask({**known, **wrong}) == wrong.keys()
    monkeypatch.setenv(xla.UNKNOWN, "xla_backend_optimization_level")
    assert "optimization_level" not in xla.xla_flags(xla_dump_to="here")
    assert "--xla_dump_to=here" in xla.xla_flags(xla_dump_to="here")
    assert "xla_backend_optimization_level" not in xla.optimized()
    assert done_without() == ["options that this XLA does not know: xla_backend_optimization_level"]


def test_xla_that_does_not_start_for_another_reason_is_an_error(jax, monkeypatch):
    monkeypatch.setattr(xla.sys, "executable", "false")
    with pytest.raises(AssertionError, match="named no option that it does not know"):
        xla.ask(xla.QUICK)
