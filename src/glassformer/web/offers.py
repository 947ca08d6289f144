"""The models that a page can open: the one asked for, runs in a folder, and what `glassformer pull` has fetched.

A page names a model by its key in this list: no file is opened by a name that a page sends.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..core.settings import check_known
from ..runs.listing import list_runs
from ..weights.catalog import CATALOG, resolve

RUNS = "runs"


class Offer(NamedTuple):
    """A model that can be opened."""

    key: str
    title: str
    kind: str  # run, published, given or trained
    place: str  # what `read_model` takes; empty for what is in memory alone


def find_offers(given: Iterable[str] = (), folder: str | Path = RUNS) -> dict[str, Offer]:
    """Return the models at hand by their keys; those given come first."""
    offers = [Offer(name, name, "given", name) for name in given]
    for run in list_runs(folder) if Path(folder).is_dir() else []:
        if run.error is None and run.step:
            said = f"{run.task}, {run.step:,} steps"
            offers.append(Offer(run.folder.as_posix(), f"{run.folder.name}: {said}", "run", str(run.folder)))
    for entry in CATALOG.values():
        if resolve(entry.name) is not None:
            offers.append(Offer(entry.name, entry.title, "published", entry.name))
    found: dict[str, Offer] = {}
    for offer in offers:
        found.setdefault(offer.key, offer)
    return found


def parted(key: str) -> tuple[str, int | None]:
    """Return the key of a model, and the step of its training where one is named: KEY@STEP."""
    base, mark, step = key.rpartition("@")
    return (base, int(step)) if mark and step.isascii() and step.isdigit() and len(step) < 10 else (key, None)


def chosen(offers: dict[str, Offer], key: str) -> Offer:
    """Return an offer by its key."""
    check_known("there is no model", key, offers)
    return offers[key]


def to_json(offers: dict[str, Offer]) -> list[dict[str, Any]]:
    """Return the offers as a page sees them."""
    return [{"key": offer.key, "title": offer.title, "kind": offer.kind} for offer in offers.values()]
