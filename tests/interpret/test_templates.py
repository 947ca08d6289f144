"""Formulas with letters: what they say of an entry is what its card says."""

import json
import operator

import numpy as np
import pytest

from browser import TASKS, TEXTS, tiny_explorer
from glassformer.interpret.cards import Cards
from glassformer.interpret.templates import Templates
from glassformer.web.state import read_state

SIGNS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


def place(part, letters, found, run):
    """What a part of an index stands for, as the page finds it."""
    if not isinstance(part, list):
        return letters.get(part, part)
    sign, *inside = part
    name = inside.pop(0) if sign == "value" else None
    parts = [place(one, letters, found, run) for one in inside]
    if name is not None:
        return float(run.array(name)[tuple(parts)])
    return np.asarray(found["tables"][parts[0]])[tuple(parts[1:])] if sign == "table" else SIGNS[sign](*parts)


@pytest.mark.parametrize("architecture", TASKS)
def test_templates_have_the_operands_of_every_card(architecture, numpy_engine):
    session = tiny_explorer(architecture).session(read_state({"model": architecture, "text": TEXTS[architecture]}))
    cards = Cards(session.run)
    found = json.loads(json.dumps(Templates(cards).to_dict()))
    rng = np.random.default_rng(0)
    assert found["of"].keys() == set(session.run)
    for name, own in found["of"].items():
        array = session.run[name]
        for index in rng.integers(0, array.shape, (3, array.ndim)).tolist():
            made = cards.card(name, tuple(index)).made
            letters = {f"i{axis}": part for axis, part in enumerate(index)}
            if not own["cases"]:
                assert own["note"]
                continue
            case = next(one for one in own["cases"] if one["when"] is None or place(one["when"], letters, found, cards))
            assert case["math"] == made.mathml
            for operand, wanted in zip(case["operands"], made.operands.values(), strict=True):
                assert operand["text"] == wanted.text
                runs = [{}]
                if operand["runs"]:
                    [(letter, size)] = case["running"].items()
                    runs = [{letter: number} for number in range(size)]
                    counts = case["counts"] or 1
                    runs = [one for one in runs if place(counts, {**letters, **one}, found, cards)]
                numbers = [
                    place(operand.get("at", operand.get("value")), {**letters, **one}, found, cards) for one in runs
                ]
                np.testing.assert_array_equal(numbers, np.atleast_1d(wanted.values))
