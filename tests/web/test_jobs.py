"""Long work: it says how far it is, can be stopped, and its errors reach the page."""

import threading

import pytest

from glassformer.core.errors import ConfigError
from glassformer.web.jobs import MOST, Jobs


def done(job):
    assert job.ended.wait(10)
    return job.to_dict()


def test_work_ends_with_its_result():
    found = done(Jobs().start(lambda job: job.show(1, 2, "half", partial=[1]) or 7))
    assert (found["result"], found["error"], found["done"], found["total"]) == (7, None, 1, 2)
    assert (found["note"], found["partial"]) == ("half", [1])


def test_work_is_stopped_between_two_parts():
    begun = threading.Event()

    def work(job):
        begun.set()
        while True:
            job.show(0, 1)

    jobs = Jobs()
    job = jobs.start(work)
    assert begun.wait(10)
    jobs.stop_all()
    assert done(job)["error"] == {"error": "stopped", "hint": None}


def test_errors_reach_the_page_and_old_jobs_are_forgotten():
    def refuse(job):
        raise ConfigError("a fact", hint="a hint")

    assert done(Jobs().start(refuse))["error"] == {"error": "a fact", "hint": "a hint"}
    assert "ZeroDivisionError" in done(Jobs().start(lambda job: 1 // 0))["error"]["error"]

    jobs, hold = Jobs(), threading.Event()
    first = jobs.start(lambda job: None)
    done(first)
    started = [jobs.start(lambda job: hold.wait(10)) for _ in range(MOST)]
    with pytest.raises(ConfigError, match="no such job"):
        jobs.get(first.key)
    with pytest.raises(ConfigError, match="are under way"):
        jobs.start(lambda job: None)
    hold.set()
    assert all(done(job)["ended"] for job in started)


@pytest.mark.parametrize("key", [None, 3, "", "nothing", []])
def test_a_job_that_is_not_there_is_refused(key):
    with pytest.raises(ConfigError, match="no such job"):
        Jobs().get(key)
