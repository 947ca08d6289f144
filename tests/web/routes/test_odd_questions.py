"""Odd questions: every route answers them, or refuses them in words; none fails."""

import pytest

from browser import state, tiny_explorer
from glassformer.core.errors import GlassformerError
from glassformer.web.router import ROUTES, ask, load_routes

ODD = ([], {}, [[]], {"a": []}, "", "²", "#²", "#①", True, -1, 2**40, 1e300, None, "nowhere")
PARTS = ("state", "model", "name", "index", "what", "at", "rows", "kind", "layer", "part", "text", "texts", "other",
         "token", "against", "position", "first", "count", "stack", "optimizer", "lr", "written", "chat", "temperature",
         "top_k", "seed", "task", "settings", "steps", "step", "head", "key", "job", "told", "asked", "whats", "views",
         "gradient", "off")  # fmt: skip
USUAL = {"name": "embedding", "index": [0, 0, 0], "model": "decoder", "kind": "heads", "count": 1, "text": "for",
         "what": "value", "lr": 0.1, "optimizer": "adam", "texts": ["a", "b"]}  # fmt: skip
LONG = {"train", "frames"}


@pytest.fixture(scope="module")
def explorer(numpy_engine):
    load_routes()
    return tiny_explorer("decoder")


@pytest.fixture(scope="module")
def accepted(explorer):
    """The parts of a question that each route knows: it refuses others by their names."""
    load_routes()
    found = {}
    for word in ROUTES:
        found[word] = [part for part in PARTS if not _is_unknown(explorer, word, part)]
    return found


def _is_unknown(explorer, word, part):
    try:
        ask(explorer, word, {part: object()})
    except GlassformerError as error:
        return "unknown part" in error.fact
    except Exception:
        return False
    return False


def test_no_odd_part_of_a_question_makes_a_route_fail(explorer, accepted):
    failed = []
    for word, parts in accepted.items():
        usual = {part: USUAL[part] for part in parts if part in USUAL}
        if "state" in parts:
            usual["state"] = state("decoder")
        for part in parts:
            for odd in ODD:
                try:
                    ask(explorer, word, {**usual, part: odd}) if word not in LONG else None
                except GlassformerError:
                    pass
                except Exception as error:
                    failed.append(f"{word} {part}={odd!r}: {type(error).__name__} {error}")
        explorer.jobs.stop_all()
    assert failed == []


def test_no_odd_part_of_a_question_for_a_tile_fails(explorer):
    usual = {"state": state("decoder"), "what": "value", "name": "embedding"}
    for part in (*usual, "at", "rows", "columns", "height", "width"):
        for odd in ODD:
            try:
                ask(explorer, "tile", {**usual, part: odd})
            except GlassformerError:
                continue
