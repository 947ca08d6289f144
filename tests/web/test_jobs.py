"""Long work says how far it is, can be stopped, and tells its errors; readers remember what was read."""

import threading

import numpy as np
import pytest

from glassformer.config import DecoderConfig
from glassformer.core.errors import ConfigError, LengthError
from glassformer.generation.reader import PlainReader
from glassformer.models import build
from glassformer.web import writer
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


pytestmark = pytest.mark.usefixtures("numpy_engine")
MODEL = build(DecoderConfig(vocab=11, context=8, width=8, heads=2, feed_forward=16, layers=1))
PARAMS = MODEL.init(0, np.float64)


def plain(ids):
    return PlainReader(MODEL, PARAMS, [np.array(ids)], None).logits[0]


def test_going_on_and_back_gives_what_reading_anew_gives():
    own = writer.PageWriter(MODEL, PARAMS)
    for ids in [(1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2, 5), (1, 2, 5, 6), (1, 2, 3), (1, 2, 3, 7), (1, 2)]:
        np.testing.assert_allclose(own.logits(ids, None), plain(ids), atol=1e-12)


def test_going_on_reads_one_token_and_going_back_none(monkeypatch):
    read = []
    original = type(MODEL).read

    def noted(model, params, tokens, *others, **settings):
        read.append(tokens.shape[1])
        return original(model, params, tokens, *others, **settings)

    monkeypatch.setattr(type(MODEL), "read", noted)
    own = writer.PageWriter(MODEL, PARAMS)
    for ids in [(1, 2, 3), (1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 4, 5)]:
        own.logits(ids, None)
    assert read == [3, 1, 1]


def test_only_the_last_few_are_kept(monkeypatch):
    monkeypatch.setattr(writer, "LOGITS", 2)
    own = writer.PageWriter(MODEL, PARAMS)
    for number in range(5):
        own.logits((number,), None)
    assert len(own._readers) == writer.READERS
    assert list(own._logits) == [((3,), None), ((4,), None)]


def test_more_than_the_context_is_refused():
    with pytest.raises(LengthError, match="reads at most 8"):
        writer.PageWriter(MODEL, PARAMS).logits((1,) * 9, None)
