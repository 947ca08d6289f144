"""Progress of long work, and requests to stop it."""

from __future__ import annotations

from typing import Any

from ..explorer import Explorer
from ..router import route

PATIENCE = 0.5
"""Seconds that an answer waits for the end of a job, so that a page need not ask often."""


@route("job")
def job(explorer: Explorer, job: Any) -> dict[str, Any]:
    """Return the progress of a job, and its result at the end."""
    found = explorer.jobs.get(job)
    found.ended.wait(PATIENCE)
    return found.to_dict()


@route("stop")
def stop(explorer: Explorer, job: Any) -> dict[str, Any]:
    """Ask a job to stop between two of its parts."""
    found = explorer.jobs.get(job)
    found.asked_to_stop.set()
    return found.to_dict()
