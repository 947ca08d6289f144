"""What the methods of looking inside say of one example, as sections of a page, where a model allows them."""

from functools import partial

import numpy as np

from ..arrays import Tree
from ..errors import ConfigError
from ..interpret import Labels, Logit, Run, attribute, detect_heads, lens, watch
from ..interpret.trace import flat_batch
from ..models import Batch, Encoder, Model
from . import captions
from .labels import visible
from .methods import MOST_POSITIONS, detector_maps, lens_map, signed_bars
from .report import Section, Sketch

LONGEST = 256
"""Tokens of an example up to which the methods are tried: they keep every value of the run."""
SHORTEST = 4
"""Tokens that a model must read for the kinds of its heads to be told apart: two that come twice."""


def method_sections(model: Model, params: Tree, batch: Batch, example: int, labels: Labels) -> list[Section]:
    """Sketch what each layer would say, what adds to the answer, and what the heads look for."""
    if isinstance(model, Encoder) and model.config.head == "none":
        return []  # it says nothing
    sections = _of_answer(model, params, batch, example, labels)
    heads = _heads(model, params)
    return sections if heads is None else [*sections, heads]


def _of_answer(model: Model, params: Tree, batch: Batch, example: int, labels: Labels) -> list[Section]:
    """Sketch the lens, and what adds to the likeliest answer: at the last token, or of the whole sequence."""
    one = Batch(*(None if part is None else np.asarray(part)[example][None] for part in flat_batch(batch)))
    if one.tokens.shape[-1] > LONGEST:
        return []
    run = watch(model, params, one)
    is_classifier = run.logits.ndim == 2
    real = np.arange(1) if is_classifier else _real(run)[-MOST_POSITIONS:]  # more would not be drawn
    seen = lens(run, positions=None if is_classifier else real)
    label = labels.tokens if not is_classifier else labels.classes or str
    words = ["all"] if is_classifier else [labels.tokens(int(i)) for i in np.asarray(one.tokens)[0, real]]
    said = run.logits[0] if is_classifier else run.logits[0, real[-1]]
    target = Logit(int(np.argmax(said)), -1 if is_classifier else int(real[-1]))
    drawn = partial(lens_map, seen, words, label, title="What each layer would say")
    found = [Section("What it would have said before", captions.LENS, [Sketch("lens", drawn, captions.LENS_MAP)])]
    return [*found, *_attribution(run, target, label(target.token))]


def _real(run: Run) -> np.ndarray:
    """Return the positions of the tokens that are no padding."""
    mask = run.batch.mask
    return np.arange(run.logits.shape[1]) if mask is None else np.flatnonzero(np.asarray(mask)[0])


def _attribution(run: Run, target: Logit, word: str) -> list[Section]:
    """Sketch what adds to a logit, unless something on the direct path bends it."""
    try:
        found = attribute(run, target)
    except ConfigError:
        return []
    parts = found.rows()
    names = [_name(part["name"], part["head"]) for part in parts]
    bars = partial(
        signed_bars,
        names,
        np.array([part["value"] for part in parts]),
        title=f"What adds to the logit of “{visible(word)}”",
    )
    text = captions.ATTRIBUTION.format(value=found.value)
    return [Section("What adds to the answer", text, [Sketch("attribution", bars, captions.PARTS)])]


def _name(name: str, head: int | None) -> str:
    return name if head is None else f"{name}, head={head}"


def _heads(model: Model, params: Tree) -> Section | None:
    """Sketch the kinds of heads, by random tokens that come twice."""
    if model.config.context < SHORTEST:
        return None
    try:
        kinds = detect_heads(model, params)
    except ConfigError:  # blocks of one's own may keep their attention under other names
        return None
    sketches = [
        Sketch(f"{name}-kinds", partial(detector_maps, found, title=f"{captions.HEADINGS[name]}: kinds of heads"))
        for name, found in kinds.items()
    ]
    return Section("Kinds of heads", captions.KINDS, sketches)
