"""The page as one file that holds its data and needs no server: answers to its questions, and every tensor as finely
as there is room.

    bundle()          all modules of the page joined into one script, each in a room of its own after those it imports
    styles()          all its styles
    ExportedAnswers   answers and tiles by the keys under which the page looks for them
    one_file(kept)    the page, its styles, its script and what is kept; its policy names the two by their hashes

A key is the word of a question and the question as JSON with sorted names. The state of the file itself is written "@".
"""

import base64
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, GlassformerError
from ..core.files import plain_json
from ..core.settings import check_known
from ..interpret.reading import example_text
from ..runs.run import read_model
from ..weights.loaded_model import LoadedModel
from .explorer import Explorer
from .export_tiles import LEVELS, SIDES, in_single, tiles_of
from .offers import Offer, to_json
from .recordings import RecordedTraining, TrainingHistory
from .router import ask, load_routes
from .state import read_state
from .views import PageView

PAGE = Path(__file__).parent / "page"
LARGEST = 4_800_000
"""Bytes of a file, at most: with what a notebook writes around it, it stays below five million."""

IMPORT = re.compile(r'^import \{\s+([\w$]+(?:,\s+[\w$]+)*),?\s\} from "\./([\w]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) ([\w$]+))", re.MULTILINE)
SHARED = "style.css"
OWN_STATE = "@"


def imports_of(source: str) -> list[str]:
    """Return the modules that a module imports."""
    return [found[2] for found in IMPORT.finditer(source)]


def ordered() -> list[str]:
    """Return the modules of the page, each after those that it imports."""
    found: list[str] = []

    def visit(name: str) -> None:
        if name not in found:
            for other in imports_of((PAGE / name).read_text(encoding="utf-8")):
                visit(other)
            found.append(name)

    visit("main.js")
    return found


def bundle() -> str:
    """Return all modules of the page as one script: a browser would fetch some dozens of files one behind the other."""
    rooms = (_room(name, (PAGE / name).read_text(encoding="utf-8")) for name in ordered())
    return "\n".join(['"use strict";', *rooms])


def _room(name: str, source: str) -> str:
    """Return a module as a value with what it exports; names inside are its own."""
    exports = ", ".join(found[1] for found in EXPORT.finditer(source))
    body = IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {_value(found[2])};\n", source)
    return f"// {name}\nconst {_value(name)} = (() => {{\n{EXPORT.sub('', body)}\nreturn {{ {exports} }};\n}})();\n"


def _value(module: str) -> str:
    return f"module_{module.removesuffix('.js')}"


def styles() -> str:
    """Return all styles of the page: what every view shares, then those of single views."""
    names = sorted((path.name for path in PAGE.glob("*.css")), key=lambda name: (name != SHARED, name))
    return "\n".join((PAGE / name).read_text(encoding="utf-8") for name in names)


# --- what is kept ----------------------------------------------------------------------------------------------------


def key_of(word: str, question: dict[str, Any], state: dict[str, Any]) -> str:
    """Return the key of a question of whole numbers and texts; kept.js makes the same."""
    asked = {**question, "state": OWN_STATE} if question.get("state") == state else question
    return f"{word} {json.dumps(asked, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}"


class ExportedAnswers:
    """Answers and tiles by their keys; `told` is what the address of the page would say."""

    def __init__(self, told: dict[str, Any], state: dict[str, Any]) -> None:
        self.told, self.state = told, state
        self.answers: dict[str, Any] = {}
        self.tiles: dict[str, bytes] = {}
        self.refused: dict[str, tuple[str, str | None]] = {}  # facts and hints

    def packed(self) -> str:
        """Return all of it as text: the length of an index, the index as JSON, the tiles; deflated, in base64."""
        ends: dict[int, int] = {}  # where each tile begins: several names of one value share theirs
        whole, places = bytearray(), dict[str, tuple[int, int]]()
        for key, tile in self.tiles.items():
            if id(tile) not in ends:
                ends[id(tile)] = len(whole)
                whole += tile
            places[key] = (ends[id(tile)], len(tile))
        index = {"told": self.told, "state": self.state, "answers": self.answers, "refused": self.refused,
                 "tiles": places}  # fmt: skip
        head = json.dumps(index, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        head += b" " * (-(len(head) + 4) % 8)
        return base64.b64encode(zlib.compress(struct.pack("<I", len(head)) + head + whole, 6)).decode()


def one_file(kept: ExportedAnswers) -> str:
    """Return the page with what is kept as one file."""
    style, script = styles(), bundle()
    sources = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    page = (PAGE / "index.html").read_text(encoding="utf-8")
    page = re.sub(r"<(link|script) [^\n]*\n", "", page)
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n</head>'
    tail = f'<script type="text/plain" id="kept">{kept.packed()}</script>\n<script>{script}</script>\n</body>'
    return page.replace("</head>", head).replace("</body>", tail)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


UNVISITED = tuple(view for view in PageView if view.unvisited)
"""The views of a file that is made without a browser, beside `share`."""
FIRST = 8
"""Positions that the lens shows first."""
HEADS = 600
"""Questions about single heads that are kept, at most."""
RECORDED = 256
"""Cells of a tile that a view asked for."""
MAP_CELLS = 1_500_000
"""Attention weights of a training's frames that are kept, at most."""
GROWS = 4 / 3
"""Bytes of text for each byte, in base64; what deflating saves makes up for what else there is."""

Show = Callable[[int, int, str], None]


def page_state(model: str, text: str, of: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the state of a run as the page writes it: one model, one text, nothing changed."""
    of = {"kind": "loss"} if of is None else of
    return {"model": model, "text": text, "answer": None, "changes": [], "of": of, "steps": []}


def standalone_page(
    explorer: Explorer,
    state: dict[str, Any],
    *,
    view: PageView = PageView.SCENE,
    look: dict[str, Any] | None = None,
    others: Sequence[dict[str, Any]] = (),
    training: TrainingHistory | None = None,
    show: Show = lambda done, total, note: None,
) -> str:
    """Return a page as one file, with every value and gradient of a run, without a browser that asked for them.

    view       the view that is open first
    look       what is chosen in the views, by their names
    others     runs of other models that the file holds as well
    training   the frames of a training that the file shows
    """
    load_routes()
    look = {} if look is None else look
    if training is not None:
        look = {**look, PageView.TRAINING: {"course": training.key}}
    asked = [one for own in (state, *others) for one in opening_questions(explorer, own)]
    asked += _lens_questions(explorer, state, look[PageView.LENS]) if "token" in look.get(PageView.LENS, {}) else []
    told = {**state, "view": PageView.named(view), "look": look}
    return export_page(explorer, told, asked, ("value", "gradient"), show, others=others, training=training)


def models_page(
    models: Sequence[tuple[str, LoadedModel, str | None]], of: dict[str, Any] | None = None, **how: Any
) -> str:
    """Return named models that read texts, by default their own examples, as one file; the first is open.

    of    the number of the first one's run whose gradients are kept, as the page writes it (None: the loss)
    how   see `standalone_page`
    """
    explorer = Explorer({}, first=models[0][0])
    states: list[dict[str, Any]] = []
    for name, model, text in models:
        explorer.add(Offer(name, name, "given", name), model)
        own = of if not states else None
        states.append(page_state(name, example_text(model) if text is None else text, own))
    return standalone_page(explorer, states[0], others=states[1:], **how)


def training_page(training: RecordedTraining, text: str | None = None) -> str:
    """Return the frames of a recorded run that were measured, and its best model reading a text, as one file."""
    model = read_model(str(training.replay.run.folder))
    return models_page([(training.title, model, text)], view=PageView.TRAINING, training=training)


def export_page(
    explorer: Explorer,
    told: dict[str, Any],
    asked: Iterable[dict[str, Any]],
    whats: tuple[str, ...],
    show: Show,
    *,
    views: tuple[PageView, ...] = UNVISITED,
    others: Sequence[dict[str, Any]] = (),
    training: TrainingHistory | None = None,
) -> str:
    """Return a run as one file: the answers to what was `asked`, and all tensors of the kinds `whats`.

    told    what the address of the page says: the state of the run, the view, what is open in it
    asked   {word, question} and perhaps {work: true, key}: long work, and the page's own key
    views   the views that the file shows, beside `share`
    """
    views = (*views, PageView.SHARE) if training is None else (*views, PageView.SHARE, PageView.TRAINING)
    shown = [view for view in PageView if view in views]
    check_known("this page has no view", PageView.named(told.get("view", PageView.SCENE)), shown)
    state = {name: told[name] for name in page_state("", "")}
    states = [state, *others]
    kept = ExportedAnswers(told, state)
    models = {own["model"] for own in states}
    kept.answers["models {}"] = {
        "models": [one for one in to_json(explorer.offers) if one["key"] in models],
        "first": state["model"],
        "prompt": None,
        "told": told,
        "whats": whats,
        "views": [view.to_dict() for view in shown],
    }
    if training is not None:
        _keep_training(kept, training)
    questions = [{"word": "open", "question": {"model": own["model"]}} for own in states]
    for own in states:  # what the scene asks, forward and backward, and the formulas of its cards
        words = ("run", "scene", "attention", "formulas")
        questions += [{"word": word, "question": {"state": own}} for word in words]
        questions += [{"word": "lengths", "question": {"state": own, "what": what}} for what in whats]
    questions += asked
    for number, one in enumerate(questions):
        show(number, len(questions), "answering the views' questions")
        _answer(explorer, kept, one)
    for one in [one for own in states for one in _heads(kept, own)]:
        _answer(explorer, kept, one)
    return _fitting(explorer, states, kept, whats, show)


def _keep_training(kept: ExportedAnswers, training: TrainingHistory) -> None:
    """Keep the frames of a training, of as many of them as there is room for."""
    steps = training.map_steps(MAP_CELLS)
    found = training.to_dict()
    found["frames"] = [frame for frame in found["frames"] if frame["step"] in steps]
    kept.answers[key_of("work course", {"model": training.key}, kept.state)] = plain_json(found)
    for step in steps:
        for question, answer in training.maps(step):
            kept.answers[key_of("course_map", question, kept.state)] = plain_json(answer)


def _answer(explorer: Explorer, kept: ExportedAnswers, one: dict[str, Any]) -> None:
    """Keep the answer to one question, or the tile that it asked for."""
    word, question = one["word"], one["question"]
    if question.get("state") == "@":
        question = {**question, "state": kept.state}
    key = one.get("key") or key_of(f"work {word}" if one.get("work") else word, question, kept.state)
    if word == "tile":
        coarse = {side: min(question.get(side, RECORDED), RECORDED) for side in SIDES}
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
            kept.refused[key] = (job.error["error"], job.error["hint"])
            return
        found = job.result
    kept.answers[key] = plain_json(found)


def _keep_tile(
    explorer: Explorer, kept: ExportedAnswers, key: str, question: dict[str, Any], kind: str = "<f8"
) -> None:
    """Keep a tile, or why there is none; what is there already stays."""
    if key in kept.tiles or key in kept.refused:
        return
    try:
        tile = ask(explorer, "tile", question)
        kept.tiles[key] = tile if kind == "<f8" else in_single(tile)
    except GlassformerError as error:
        kept.refused[key] = (error.fact, error.hint)


def _fitting(
    explorer: Explorer, states: Sequence[dict[str, Any]], kept: ExportedAnswers, whats: tuple[str, ...], show: Show
) -> str:
    """Return the file with tiles of all tensors, in the finest resolution in which it is not too large."""
    before = dict(kept.tiles)
    room = LARGEST - len(bundle()) - len(styles()) - 10_000
    for level in LEVELS:
        asked = [one for own in states for what in whats for one in tiles_of(explorer, own, what, level)]
        twins: dict[str, str] = {}  # by an array and a place in it, the key of its tile
        if sum({same: size for _, same, size in asked}.values()) * GROWS > 1.5 * room and level != LEVELS[-1]:
            continue
        kept.tiles = {key: in_single(tile) for key, tile in before.items()} if level[2] == "<f4" else dict(before)
        for number, (question, same, _) in enumerate(asked):
            show(number, len(asked), "cutting tiles")
            key = key_of("tile", {name: part for name, part in question.items() if name not in SIDES}, kept.state)
            twin = twins.setdefault(same, key)
            if twin in kept.tiles and key not in kept.tiles:
                kept.tiles[key] = kept.tiles[twin]
            else:
                _keep_tile(explorer, kept, key, question, level[2])
        page = one_file(kept)
        if len(page.encode()) <= LARGEST:
            return page
    larger = ["the gradients of every tensor"] if "gradient" in whats else []
    fact = f"the file would have {len(page.encode()) / 1e6:.1f} MB, and at most {LARGEST / 1e6:.1f} MB are written"
    raise ConfigError(fact, hint=f"leave out {' or '.join([*larger, 'a view'])}, or take a shorter text")


def opening_questions(explorer: Explorer, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what views ask before anything is clicked."""
    backward = {"word": "backward", "question": {"state": state}}
    return [backward, {"word": "optimizers", "question": {}}, *_lens_questions(explorer, state, {})]


def _lens_questions(explorer: Explorer, state: dict[str, Any], lens: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the lens asks about the token that is followed in it, or about the likeliest one."""
    target = {"token": lens.get("token"), "against": lens.get("against"), "position": lens.get("position", -1)}
    read = {"token": target["token"], "between": False}
    session = explorer.session(read_state(state))
    if not session.opened.model.is_classifier:  # which has no positions
        read |= {"first": max(0, session.run.batch.tokens.shape[-1] - FIRST), "count": FIRST}
    asked = {"lens": read, "attribution": target}
    return [{"word": word, "question": {"state": state, **one}, "work": True} for word, one in asked.items()]


def _heads(kept: ExportedAnswers, state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the scene asks when another head is chosen."""
    found = kept.answers.get(key_of("attention", {"state": state}, kept.state), {"kinds": []})
    asked: list[dict[str, Any]] = []
    for kind in found["kinds"]:
        for layer, name in enumerate(kind["layers"]):
            asked.append({"word": "heads", "question": {"state": state, "kind": kind["kind"], "layer": layer}})
            tiles = [{"state": state, "what": "products", "name": name, "at": [0, n]} for n in range(kind["heads"])]
            asked += [{"word": "tile", "question": tile} for tile in tiles]
    return asked[:HEADS]
