"""What goes into a file: what the page has asked, and every tensor of the run as finely as there is room."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import ConfigError, GlassformerError
from ..tree import flatten
from .explorer import Explorer, RunSession
from .router import ROUTES, ask, plain_json
from .single import LARGEST, ExportedAnswers, bundle, key_of, one_file, styles
from .state import read_state
from .tile_request import tile_bytes

VIEWS = ("map", "attention", "lens", "backward")
"""The views of which a file can be made without a page."""
CELLS = (128, 64, 32, 16, 8)
"""Cells of a tile along one side: the first with which everything fits."""
FIRST = 8
"""Positions that the lens shows first."""
HEADS = 600
"""Questions about single heads that are kept, at most."""
RECORDED = 256
"""Cells of a tile that a view asked for."""
GROWS = 4 / 3
"""Bytes of text for each byte, in base64; what deflating saves makes up for what else there is."""

Show = Callable[[int, int, str], None]


def file_of(
    explorer: Explorer,
    told: dict[str, Any],
    asked: Iterable[dict[str, Any]],
    whats: tuple[str, ...],
    show: Show,
    *,
    views: tuple[str, ...] = VIEWS,
) -> str:
    """Return a run as one file: the answers to what was `asked`, and all tensors of the kinds `whats`.

    told    what the address of the page says: the state of the run, the view, what is open in it
    asked   {word, question} and perhaps {work: true, key}: long work, and the page's own key
    views   the views that the file shows
    """
    state = {name: told[name] for name in ("model", "text", "answer", "changes", "of", "steps")}
    session = explorer.session(read_state(state))
    kept = ExportedAnswers(told, state)
    offers = [
        {"key": o.key, "title": o.title, "kind": o.kind} for o in explorer.offers.values() if o.key == state["model"]
    ]
    kept.answers["models {}"] = {
        "models": offers,
        "first": state["model"],
        "prompt": None,
        "told": told,
        "views": views,
    }
    first = [{"word": "open", "question": {"model": state["model"]}}, {"word": "run", "question": {"state": state}}]
    questions = [*first, *asked]
    for number, one in enumerate(questions):
        show(number, len(questions), "asking again what the views asked")
        _answer(explorer, kept, one)
    for one in _heads(kept):
        _answer(explorer, kept, one)
    return _fitting(explorer, session, kept, whats, show)


def _answer(explorer: Explorer, kept: ExportedAnswers, one: dict[str, Any]) -> None:
    """Keep the answer to one question, or the tile that it asked for."""
    word, question = one["word"], one["question"]
    if question.get("state") == "@":
        question = {**question, "state": kept.state}
    key = one.get("key") or key_of(f"work {word}" if one.get("work") else word, question, kept.state)
    if word == "tile":
        coarse = {side: min(question.get(side, RECORDED), RECORDED) for side in ("height", "width")}
        _keep_tile(explorer, kept, key, {**question, **coarse})
        return
    try:
        found = ask(explorer, word, question)
    except GlassformerError as error:
        kept.refused[key] = (error.fact, error.hint)
        return
    if one.get("work"):
        job = explorer.jobs.get(found["job"])
        job.ended.wait()
        if job.error is not None:
            raise ConfigError(job.error["error"], hint=job.error["hint"])
        found = job.result
    kept.answers[key] = plain_json(found)


def _keep_tile(explorer: Explorer, kept: ExportedAnswers, key: str, question: dict[str, Any]) -> None:
    """Keep a tile, or why there is none; what is there already stays."""
    if key in kept.tiles or key in kept.refused:
        return
    try:
        kept.tiles[key] = tile_bytes(explorer, question)
    except GlassformerError as error:
        kept.refused[key] = (error.fact, error.hint)


def _fitting(explorer: Explorer, session: RunSession, kept: ExportedAnswers, whats: tuple[str, ...], show: Show) -> str:
    """Return the file with tiles of all tensors, in the finest resolution in which it is not too large."""
    before = dict(kept.tiles)
    room = LARGEST - len(bundle()) - len(styles()) - 10_000
    for cells in CELLS:
        asked = [one for what in whats for one in _tiles(session, what, cells)]
        if sum(size for _, size in asked) * GROWS > 2.5 * room and cells != CELLS[-1]:
            continue
        kept.tiles = dict(before)
        for number, (asking, _) in enumerate(asked):
            show(number, len(asked), f"cutting tiles of {cells} cells")
            question = {**asking, "state": kept.state}
            key = key_of("tile", question, kept.state)
            _keep_tile(explorer, kept, key, {**question, "height": cells, "width": cells})
        page = one_file(kept)
        if len(page.encode()) <= LARGEST:
            return page
    larger = ["the gradients of every tensor"] if "gradient" in whats else []
    raise ConfigError(
        f"the file would have {len(page.encode()) / 1e6:.1f} MB, and at most {LARGEST / 1e6:.1f} MB are written",
        hint=f"leave out {' or '.join([*larger, 'a view'])}, or take a shorter text",
    )


def _tiles(session: RunSession, what: str, cells: int) -> list[tuple[dict[str, Any], int]]:
    """Return a question for each matrix of each tensor of a run, with the bytes of its cells."""
    found = []
    named = {**{name: session.run.outline(name) for name in session.run}, **flatten(session.run.params)}
    for name, array in named.items():
        rows, columns = (1, 1, *array.shape)[-2:]
        size = 8 * min(rows, cells) * min(columns, cells) + 600
        for at in itertools.product(*(range(count) for count in array.shape[:-2])):
            found.append(({"what": what, "name": name, "at": list(at)}, size))
    return found


def standing(explorer: Explorer, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what views ask before anybody has clicked, for a file that is made without a page."""
    session = explorer.session(read_state(state))
    places: dict[str, Any] = {}
    if not session.opened.model.is_classifier:
        places = {"first": max(0, session.run.batch.tokens.shape[-1] - FIRST), "count": FIRST}
    asked: list[tuple[str, dict[str, Any], bool]] = [
        ("attention", {}, False),
        ("lens", {"token": None, "between": False, **places}, True),
        ("attribution", {"token": None, "against": None, "position": -1}, True),
        ("backward", {}, False),
    ]
    about = [{"word": word, "question": {"state": state, **question}, "work": work} for word, question, work in asked]
    classes = {"model": state["model"], "part": "classes", "text": ""}
    about += [{"word": "optimizers", "question": {}}, {"word": "vocabulary", "question": classes}]
    return [one for one in about if one["word"] in ROUTES]


def _heads(kept: ExportedAnswers) -> list[dict[str, Any]]:
    """Return what the view of attention asks when another head is chosen."""
    found = kept.answers.get(key_of("attention", {"state": kept.state}, kept.state), {"kinds": []})
    asked: list[dict[str, Any]] = []
    for kind in found["kinds"]:
        for layer, name in enumerate(kind["layers"]):
            asked.append({"word": "heads", "question": {"state": kept.state, "kind": kind["kind"], "layer": layer}})
            for head in range(kind["heads"]):
                tile = {"state": kept.state, "what": "products", "name": name, "at": [0, head]}
                asked.append({"word": "tile", "question": tile})
    return asked[:HEADS]
