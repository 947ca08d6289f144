"""Sharing: a run as one file that needs no server, and the numbers of a tensor."""

import io
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from ...core.errors import ConfigError
from ..explorer import Explorer, RunSession
from ..jobs import Job, Work
from ..page_export import export_page, page_state
from ..router import Download, route
from ..views import PageView

NOT_KEPT = frozenset({"models", "job", "stop", "train", "share", "npz"})
"""Words whose answers are about this moment, or are files themselves."""
MOST = 5000
"""Most questions of one file."""


@dataclass(frozen=True)
class Question:
    """A question that a view has asked: long work or not, and the page's own key."""

    word: str
    question: dict[str, Any]
    key: str = ""
    work: bool = False


@route("share")
def share(
    explorer: Explorer,
    told: dict[str, Any],
    asked: Annotated[tuple[Question, ...], MOST],
    whats: tuple[Literal["value", "gradient"], ...],
    views: tuple[PageView, ...],
) -> Work:
    """Begin to write the run of a page as one file; the job's result has it as text.

    told    what the address of the page says
    asked   what its views have asked
    whats   the kinds of numbers of which every tensor is kept
    views   the views that the file shows
    """
    names = page_state("", "")
    if not all(name in told for name in names):
        raise ConfigError("a file needs the whole state", hint=f"give {', '.join(names)}")
    kept = [vars(one) for one in asked if one.word not in NOT_KEPT]

    def work(job: Job) -> dict[str, Any]:
        page = export_page(explorer, told, kept, whats, job.show, views=views)
        return {"html": page, "bytes": len(page.encode())}

    return work


@route("npz")
def npz(session: RunSession, name: str, what: str = "value") -> Download:
    """Return a tensor with all its digits as a file of NumPy: its value, or its gradient."""
    file = io.BytesIO()
    named: dict[str, Any] = {name: np.asarray(session.array(what, name))}
    np.savez_compressed(file, **named)
    return Download(f"{what.replace(' ', '_')}.{name}.npz", file.getvalue())
