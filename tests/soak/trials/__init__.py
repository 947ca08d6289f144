"""The trials of the campaign, one file for each row of its table."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .trial import Trial

NAMES = ("mutations", "strangers", "flips", "hardships", "workers", "kills", "poison", "soak")
"""Those that need most kernels come last: beside the suite, it has compiled them by then."""

ROOT = Path(__file__).resolve().parents[3]


def load(name: str) -> Trial:
    """Return the trial of a row."""
    return import_module(f".{name}", __package__).TRIAL
