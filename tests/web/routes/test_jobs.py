"""A page asks how far work is, and may stop it."""

import threading

from glassformer.web.explorer import Explorer
from glassformer.web.router import ask, load_routes


def test_work_is_followed_and_stopped():
    load_routes()
    explorer, begun = Explorer({}), threading.Event()

    def work(job):
        while True:
            job.show(1, 3, "a part")
            begun.set()

    job = explorer.jobs.start(work)
    assert begun.wait(10)
    assert ask(explorer, "job", {"job": job.key})["note"] == "a part"
    ask(explorer, "stop", {"job": job.key})
    assert job.ended.wait(10)
    assert ask(explorer, "job", {"job": job.key})["error"]["error"] == "stopped"
