"""The views of the page, declared once: the page, its file, the routes and the commands read these records."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from ..core.settings import check_known


class PageView(StrEnum):
    """The views, in the order of their tabs; a word that names none of them is refused.

    tab        the title of the tab
    group      "experiments" share one tab, those "beside" stand at the end of the row
    needs_run  whether it shows a run, which needs a model and a text
    unvisited  whether a file has it that is made without a browser
    """

    SCENE = "scene", "Scene", "", True, True
    LENS = "lens", "Lens", "experiments", True, True
    CHANGE = "change", "Ablate and patch", "experiments", True, False
    BACKWARD = "backward", "Backward", "experiments", True, True
    TRAINING = "training", "Training", "", False, False
    WRITING = "writing", "Writing", "", True, False
    SHARE = "share", "Share", "beside", True, False

    tab: str
    group: str
    needs_run: bool
    unvisited: bool

    def __new__(cls, word: str, tab: str, group: str, needs_run: bool, unvisited: bool) -> PageView:
        view = str.__new__(cls, word)
        view._value_ = word
        view.tab, view.group, view.needs_run, view.unvisited = tab, group, needs_run, unvisited
        return view

    @classmethod
    def named(cls, word: object) -> PageView:
        """Return the view that a word names."""
        check_known("this page has no view", word, [view.value for view in cls])
        return next(view for view in cls if view == word)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as the page reads it."""
        return {"id": self.value, "title": self.tab, "group": self.group, "needsRun": self.needs_run}
