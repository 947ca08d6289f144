"""Another number of cores: a run that began with some goes on as with these, bit for bit."""

from contextlib import nullcontext

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from glassformer.core.dispatch import use_engine
from glassformer.core.threads import at_most, cores
from glassformer.runs.start import new_session, resume_session
from runs import are_same, assert_same_run, tiny_session

LONG = {"width": 8, "heads": 1, "layers": 1, "context": 2048, "batch": 1, "attention_tile": 128, "steps": 4}


def threads():
    return {library["num_threads"] for library in threadpool_info() if library["internal_api"] == "openblas"}


@pytest.fixture
def compiled():
    with use_engine("cpu"):
        yield


@pytest.mark.usefixtures("compiled")
def test_a_run_goes_on_with_the_cores_that_it_began_with(tmp_path):
    (tmp_path / "long.txt").write_text("".join(f"{i * i} apples, " for i in range(800)))

    def run(name, number):
        settings = {**LONG, "eval_every": 4, "save_every": 2}
        with at_most(number):
            return new_session("text", tmp_path / name, data=str(tmp_path / "long.txt"), settings=settings)

    def finish(session, number):
        with at_most(number):
            list(session.steps())
        return session

    whole, other = finish(run("whole", 2), 2), finish(run("other", 1), 1)
    assert not are_same(whole.state.params, other.state.params), "the number of cores should show in the last bits"
    cut = run("cut", 2)
    steps = cut.steps()
    with at_most(2):
        next(steps), next(steps)
    with at_most(1):
        resumed = resume_session(tmp_path / "cut")
        assert resumed.notes == ["computing as with 2 cores, as it began; 1 are here"]
        assert cores() == 1
    finish(resumed, 1)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    with at_most(1):
        (note,) = resume_session(tmp_path / "cut", anyway=True).notes
    assert note.endswith("cores was 2 and is 1")


@pytest.mark.parametrize("imitating", [False, True])
def test_between_steps_blas_has_the_threads_that_it_had(tmp_path, imitating):
    with use_engine("numpy"), threadpool_limits(2, user_api="blas"):
        with at_most(5) if imitating else nullcontext():
            session = tiny_session("majority", tmp_path / "run", steps=3)
        steps = session.steps()
        next(steps)
        assert threads() == {2}
        del steps  # abandoned
        assert threads() == {2}
