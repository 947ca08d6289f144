"""Changes that a page sends equal a rerun in Python bit for bit: values, parameters and gradients, fetched as tiles."""

import http.client
import json
import struct
from urllib.parse import urlsplit

import numpy as np
import pytest

from browser import TASKS, TEXTS, tiny_explorer
from glassformer.core.errors import ConfigError, GlassformerError
from glassformer.core.tree import flatten
from glassformer.interpret import Logit, Where, gradients
from glassformer.interpret import changes as made
from glassformer.interpret.names import axes_of
from glassformer.interpret.scene import lengths, scene
from glassformer.web.state import WITH_NUMBER, WITH_OTHER, WORDS

CELLS, CHANGES = 40, 70
"""Cells and changes for each architecture; `benchmarks/explorer.py --only exact` tries more."""
OTHERS = {"encoder": "02122010", "decoder": "for y in", "encoder-decoder": "4. März 2002"}

ROUTES = {"encoder-decoder": "2001-03"}
TARGET, SENT_TARGET = Logit(1, against=2), {"kind": "logit", "token": 1, "against": 2}


class Page:
    """What a page does: it sends states, and reads tiles as float64."""

    def __init__(self, address):
        home = urlsplit(address)
        self.path = home.path
        self.line = http.client.HTTPConnection(home.netloc, timeout=30)

    def post(self, path, question):
        self.line.request("POST", self.path + path, json.dumps(question), {"content-type": "application/json"})
        answer = self.line.getresponse()
        return answer.status, answer.read()

    def tile(self, state, what, name, at, **part):
        status, body = self.post("tile", {"state": state, "what": what, "name": name, "at": at, **part})
        assert status == 200, body
        (length,) = struct.unpack_from("<I", body)
        facts = json.loads(body[4 : 4 + length])
        assert facts["step"] == [1, 1]
        return np.frombuffer(body, "<f8", offset=4 + length).reshape(facts["size"])


@pytest.fixture
def page(server):
    found = Page(server.address)
    yield found
    found.line.close()


def draw_change(rng, run, other):
    """Return a change as a page sends it, of any word, at any value, parameter or part of the batch."""
    word = str(rng.choice(WORDS))
    names = (
        list(run)
        if word in ("stop", "put_gradient", "scale_gradient", *WITH_OTHER)
        else [*run, *flatten(run.params), "tokens"]
    )
    name = str(rng.choice(names))
    value = run[name] if name in run else flatten(run.params).get(name, run.batch.tokens)
    axes = [*axes_of(name, np.ndim(value))]
    where = {a: int(rng.integers(n)) for a, n in zip(axes, value.shape, strict=True) if rng.random() < 0.5}
    if name.endswith("attention.output.x") and rng.random() < 0.5:
        where = {"head": int(rng.integers(run.heads))}
    number = int(rng.integers(3)) if name == "tokens" else float(np.round(rng.normal(), 3))
    return {"word": word, "name": name, "where": where, "value": number if word in WITH_NUMBER else 0,
            "other": other if word in WITH_OTHER else ""}  # fmt: skip


def in_python(sent, run, other):
    """Return the change that a sentence means, as one would write it."""
    word, name, where, value = (sent[part] for part in ("word", "name", "where", "value"))
    if word == "steer":
        if run[name].dtype == bool:
            raise ConfigError(f"{name} is true or false, with nothing in between")
        index = Where(**where).index(name, run[name].shape, run.heads)
        return made.add(name, value * (other[name][index] - run[name][index]), **where)
    if word in WITH_OTHER:
        return getattr(made, word)(name, other, **where)
    return getattr(made, word)(name, *([value] if word in WITH_NUMBER else []), **where)


def refusal(page, state):
    """Return what is wrong about a state, as the server says it."""
    status, body = page.post("tile", {"state": state, "what": "gradient", "name": "logits"})
    return None if status == 200 else json.loads(body)["error"]


def check(page, state, what, names, expected):
    """Compare tiles of arrays, at an index of the axes before the last two, bit for bit."""
    for name in names:
        array = expected(name)
        at = [size - 1 for size in array.shape[:-2]]
        matrix = np.asarray(array[tuple(at)] if array.ndim >= 2 else array.reshape(1, -1), dtype=np.float64)
        assert page.tile(state, what, name, at).tobytes() == np.ascontiguousarray(matrix).tobytes(), (what, name, state)


def rerun(sent, run, other):
    """Return the changed run and its gradients as Python makes them, or the error that they are refused with."""
    try:
        changes = [in_python(one, run, other) for one in sent]
        changed = run.changed(*(one for one in changes if not one.backward))
        return changed, gradients(changed, TARGET, [one for one in changes if one.backward])
    except GlassformerError as error:
        return error


def compare_changes(page, architecture, count, seed=15):
    """Make changes by the page and in Python, one to four at a time, and compare what comes of them."""
    rng = np.random.default_rng(seed)
    opened = tiny_explorer(architecture).opened(architecture)
    answer = ROUTES.get(architecture)  # of equal length, so that values can be taken from each other
    watched = [opened.watch(text[architecture], answer) for text in (TEXTS, OTHERS)]
    run, names = watched[0], list(flatten(opened.params))
    start = {"model": architecture, "text": TEXTS[architecture], "answer": answer, "of": SENT_TARGET}
    used: list[str] = []
    while len(used) < count:
        sent = [draw_change(rng, run, OTHERS[architecture]) for _ in range(rng.integers(1, 5))]
        state = {**start, "changes": sent}
        found = rerun(sent, *watched)
        if isinstance(found, GlassformerError):
            assert refusal(page, state) == found.fact
            continue
        changed, back = found
        chosen, parameter = [str(name) for name in rng.choice(list(run), 2)], [str(rng.choice(names))]
        check(page, state, "value", ["logits", *chosen], changed.__getitem__)
        check(page, state, "value", parameter, flatten(changed.params).__getitem__)
        check(page, state, "gradient", [name for name in chosen if name in back], back.__getitem__)
        check(page, state, "gradient", parameter, flatten(back.params).__getitem__)
        check_lengths(page, state, changed, back)
        used += [one["word"] for one in sent]
    return used


def check_lengths(page, state, run, back):
    """Compare the widths of the scene's ribbons, of values and of gradients."""
    for what, arrays in (("value", run), ("gradient", back)):
        status, body = page.post("ask/lengths", {"state": state, "what": what})
        assert status == 200, body
        for name, sent in json.loads(body).items():
            expected = [None if not np.isfinite(one) else one for one in lengths(arrays[name])]
            assert sent == expected, (what, name, state)


def compare_cells(page, architecture, count, seed=16):
    """Ask for single entries of what the scene shows and of all else, values and gradients, by tile and by card."""
    rng = np.random.default_rng(seed)
    run = tiny_explorer(architecture).opened(architecture).watch(TEXTS[architecture], None)
    back, state = gradients(run, TARGET), {"model": architecture, "text": TEXTS[architecture], "of": SENT_TARGET}
    parts = scene(run)
    drawn = [one.name for part in parts for one in [*part.start, *part.end]]
    drawn += [one.name for part in parts for block in part.blocks for one in block.stations]
    for number in range(count):
        name = str(rng.choice(drawn if number % 2 else list(run)))
        what = "gradient" if name in back and rng.random() < 0.5 else "value"
        array = (back if what == "gradient" else run)[name]
        index = [int(rng.integers(size)) for size in array.shape]
        *at, row, column = [0, *index] if array.ndim == 1 else index
        asked = {"rows": [row, row + 1], "columns": [column, column + 1]}
        cell = page.tile(state, what, name, at, **asked)
        assert cell.tobytes() == np.float64(array[tuple(index)]).tobytes(), (what, name, index)
        if number % 10 == 0:
            status, body = page.post("ask/card", {"state": state, "name": name, "index": index, "wait": True})
            assert status == 200, body
            assert json.loads(body)["value"] == run[name][tuple(index)], (name, index)


@pytest.mark.parametrize("architecture", TASKS)
def test_random_changes_equal_a_rerun_and_random_cells_those_in_python(page, architecture):
    assert set(compare_changes(page, architecture, CHANGES)) == set(WORDS)
    compare_cells(page, architecture, CELLS)


def test_what_is_neither_true_nor_false_cannot_be_steered(page):
    mask = {"word": "steer", "name": "blocks.0.attention.attend.mask", "value": 1.0, "other": OTHERS["decoder"]}
    state = {"model": "decoder", "text": TEXTS["decoder"], "changes": [mask]}
    assert "true or false" in refusal(page, state)
