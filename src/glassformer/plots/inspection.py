"""All pictures of one model and one example, together on one page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import tree
from ..arrays import Array, Tree
from ..config import EncoderDecoderConfig
from ..interpret import (
    NUMBERS,
    HeadStatistics,
    Labels,
    Trace,
    full_and_causal,
    head_statistics,
    layer_statistics,
    position_table,
    similarity_by_distance,
    trace_each,
)
from ..models import Batch, Model
from . import captions
from .attention import MOST_HEADS, attention_grid, attention_heads, full_against_causal
from .drawing import Progress, draw_sections, files_of
from .heads import are_named, head_positions, head_specialization
from .inside import method_sections
from .labels import plain, visible, visible_all
from .layers import layer_curves
from .loss import loss_curve
from .positions import position_heat_map, similarity_curve
from .predictions import prediction_bars, prediction_table
from .report import Fold, Section, Sketch, Table, write_report

OPEN_LAYERS = 3
"""The layers of models with at most so many are unfolded from the start."""
OPEN_ROWS = 16
"""So are tables with at most so many rows."""
TITLE = 28
"""Characters of the input in a title at most."""


def inspect_model(
    model: Model,
    params: Tree,
    batch: Batch,
    folder: str | Path,
    *,
    example: int = 0,
    labels: Labels = NUMBERS,
    metrics: Sequence[Mapping[str, Any]] = (),
    title: str = "Inside a Transformer",
    intro: str = "",
    summary: Sequence[tuple[str, Any]] = (),
    sections: Sequence[Section] = (),
    embed: bool = False,
    theme: str | None = None,
    copies: str = "png",
    progress: Progress | None = None,
) -> list[Path]:
    """Draw everything there is to see of one example into `folder`, and return the files, `index.html` first.

    example    which one of the batch is shown; what the heads and layers do is averaged over all of them
    labels     how ids are called
    metrics    records of the training, for the loss curve
    intro      a paragraph under the title
    summary    names and values for the top of the page, before those of the model
    sections   what else the page shows, before the pictures
    embed      put the pictures into the page as well
    theme      light or dark; None: both, and the page shows what its reader likes
    copies     a format, svg or pdf, to write beside the PNG files
    progress   is told before each picture how many are drawn, of how many, and its name
    """
    traces = trace_each(model, params, batch, labels=labels)
    folder = Path(folder)
    sketched = [_input(traces[example], len(traces)), *sections]
    found = method_sections(model, params, batch, example, labels)
    sketched += _sections(model, params, traces, example, labels, metrics, found)
    drawn = draw_sections(folder, sketched, theme=theme, copies=copies, progress=progress)
    summary = [*summary, *_summary(model, params)]
    page = write_report(folder, title, drawn, intro=intro, summary=summary, embed=embed, theme=theme)
    return [page, *(folder / file for file in files_of(drawn))]


def _sections(
    model: Model,
    params: Tree,
    traces: Sequence[Trace],
    example: int,
    labels: Labels,
    metrics: Sequence[Mapping[str, Any]],
    methods: Sequence[Section],
) -> list[Section]:
    """Sketch all sections: what came out first, then an overview of all heads and layers, then each of them."""
    seen = traces[example]
    statistics = {attention: head_statistics(traces, attention) for attention in seen.kinds}
    sketched = [
        _predictions(seen, labels),
        *methods,
        _heads(seen, statistics, len(traces)),
        _layers(traces),
        *(_attention(seen, attention, statistics[attention]) for attention in seen.kinds),
        _masks(seen),
        _positions(model, params, seen),
        _training(metrics),
    ]
    return [section for section in sketched if section is not None]


def _input(seen: Trace, examples: int) -> Section:
    rows = [" ".join(map(plain, visible_all(row, 40))).replace("↵ ", "↵\n") for row in seen.labels.values()]
    if len(rows) > 1:
        rows = [f"the {stack} reads\n{row}" for stack, row in zip(seen.labels, rows, strict=True)]
    over = captions.OVER.format(count=examples) if examples > 1 else ""
    signs = captions.SIGNS if any(sign in row for row in rows for sign in "␣↵") else ""
    return Section("Input", f"{captions.READ}{signs}\n\n{over}", samples=rows)


def _predictions(seen: Trace, labels: Labels) -> Section | None:
    probabilities = seen.probabilities
    if probabilities is None:
        return None
    if probabilities.ndim == 1:
        answer, names = _target(seen, ()), labels.classes or str
        title = "Which class is it?"
        bars = partial(prediction_bars, probabilities, names, answer=answer, title=title)
        return Section("Prediction", captions.CLASSES, [Sketch("prediction", bars, captions.CLASS_BARS)])
    stack = list(seen.labels)[-1]
    inputs, targets = seen.labels[stack], seen.targets
    # The last position whose answer is known, or else the last of all.
    last = len(inputs) - 1
    if targets is not None and np.any(np.asarray(targets) >= 0):
        last = int(np.flatnonzero(np.asarray(targets) >= 0)[-1])
    is_encoder = seen.architecture == "encoder"
    at, end = visible(inputs[last]), _end(inputs, last)
    title = f"Which token stands at “{at}”?" if is_encoder else f"What comes after “{end}”?"
    answer = _target(seen, last)
    bars = partial(prediction_bars, probabilities[last], labels.tokens, answer=answer, title=title)
    place: dict[str, Any] = {"place": "the token that was read there"} if is_encoder else {}
    table = partial(prediction_table, probabilities, inputs, labels.tokens, targets=targets, **place)
    pictures = [
        Sketch("prediction", bars, captions.TOKEN_BARS),
        Sketch("predictions", table, captions.TOKEN_TABLE),
    ]
    return Section("Prediction", captions.MASKED_TOKENS if is_encoder else captions.TOKENS, pictures)


def _heads(seen: Trace, statistics: Mapping[str, HeadStatistics], examples: int) -> Section:
    """Sketch what the heads of each kind of attention do; what holds for all pictures is said under the first."""
    pictures: list[Sketch] = []
    rows: list[tuple[Any, ...]] = []
    for attention, found in statistics.items():
        name = captions.HEADINGS[attention]
        score = partial(head_specialization, found, title=f"{name}: do the heads specialize?")
        said = captions.SCORE + (captions.NAMED if are_named(found) else "")
        pictures.append(Sketch(f"{attention}-heads", score, "" if rows else said))
        # The tokens of one example name the positions only where they are all there is.
        names = seen.key_labels(attention) if examples == 1 else None
        where = partial(head_positions, found, names, title=f"{name}: where each head looks")
        said = ("" if rows else captions.RECEIVED) + (captions.EARLY if attention == "decoder" else "")
        pictures.append(Sketch(f"{attention}-positions", where, said.strip()))
        every = (row.values() for row in found.rows())
        rows += [(attention, *figures, ", ".join(map(str, most))) for *figures, most in every]
    over = "this example" if examples == 1 else f"{examples} examples"
    columns = ("attention", "layer", "head", "kind", "specialization", "entropy", "distance", "looks most at")
    table = Table(columns, rows, f"Every head, over {over}. Positions count from 0.")
    heads = f"{len(rows)} heads" if len(rows) > 1 else "one head"
    fold = Fold(f"A table of {heads}", tables=[table], is_open=len(rows) <= OPEN_ROWS)
    return Section("What the heads do", captions.HEADS, pictures, folds=[fold])


def _layers(traces: Sequence[Trace]) -> Section:
    pictures: list[Sketch] = []
    folds = []
    for stack in traces[0].residual:
        statistics = layer_statistics(traces, stack)
        curves = partial(layer_curves, statistics, title=f"What leaves each layer of the {stack}")
        pictures.append(Sketch(f"{stack}-layers", curves, "" if pictures else captions.CURVES))
        columns = ("layer", "mean", "std", "rms", "minimum", "maximum", "zeros", "length", "change")
        table = Table(columns, [tuple(row) for row in statistics], captions.COLUMNS)
        folds.append(Fold(f"The {stack} in numbers", tables=[table], is_open=len(statistics) <= OPEN_ROWS))
    return Section("Layer by layer", captions.LAYERS, pictures, folds=folds)


def _attention(seen: Trace, attention: str, statistics: HeadStatistics) -> Section:
    """Sketch one kind of attention: all heads as small maps, then each layer in a fold of its own."""
    weights, allowed = seen.attention[attention], seen.allowed[attention]
    heading = captions.HEADINGS[attention]
    hidden = None if allowed.all() else allowed
    L, H = weights.shape[:2]
    pictures = []
    if L > 1:
        grid = partial(attention_grid, weights, allowed=hidden, title=f"{heading}: all layers and heads")
        pictures.append(Sketch(f"{attention}-grid", grid, captions.GRID))
    folds = []
    for layer in range(L):
        maps = [
            _maps(seen, attention, layer, first, hidden, captions.MAPS[attention] if layer + first == 0 else "")
            for first in range(0, H, MOST_HEADS)
        ]
        line = f"Layer {layer + 1}: {_counted(statistics.kinds[layer])}"
        folds.append(Fold(line, maps, is_open=L <= OPEN_LAYERS or layer == 0))
    return Section(heading, captions.ATTENTION[attention], pictures, folds=folds)


def _maps(seen: Trace, attention: str, layer: int, first: int, hidden: Array | None, caption: str) -> Sketch:
    """Sketch the maps of some heads of a layer, from the `first` on."""
    every = seen.attention[attention][layer]
    some = every[first : first + MOST_HEADS]
    name, title = f"{attention}-layer-{layer + 1}", f"{captions.HEADINGS[attention]}, layer {layer + 1}"
    if len(every) > MOST_HEADS:
        name, title = f"{name}-heads-{first + 1}", f"{title}, heads {first + 1} to {first + len(some)}"
    labels = seen.query_labels(attention), seen.key_labels(attention)
    draw = partial(attention_heads, some, *labels, allowed=hidden, first=first + 1, title=title)
    return Sketch(name, draw, caption)


def _counted(kinds: Sequence[str]) -> str:
    """Say how many heads of each kind there are, the most frequent first: 4 previous token, 1 broad."""
    return ", ".join(f"{count} {kind}" for kind, count in Counter(kinds).most_common())


def _masks(seen: Trace) -> Section | None:
    """Sketch the head of the decoder whose attention the mask changes most: the same scores with and without it."""
    if "decoder" not in seen.attention or len(seen.labels["decoder"]) < 2:
        return None
    full, causal = full_and_causal(seen, "decoder")
    changed = np.abs(full - causal).sum(axis=(-2, -1))
    layer, head = (int(i) for i in np.unravel_index(int(np.argmax(changed)), changed.shape))
    title = f"Layer {layer + 1}, head {head + 1}, with and without the mask"
    labels = seen.labels["decoder"]
    maps = partial(full_against_causal, full[layer, head], causal[layer, head], labels, title=title)
    return Section("Full against causal", captions.MASK, [Sketch("full-against-causal", maps, captions.MASK_MAPS)])


def _positions(model: Model, params: Tree, seen: Trace) -> Section | None:
    positions = model.config.positions
    learned = positions == "learned"
    stacks = list(seen.residual) if learned else [list(seen.residual)[-1]]
    pictures = []
    for number, stack in enumerate(stacks):
        table = position_table(model, params, stack=stack)
        if table is None:
            return None
        where = f" of the {stack}" if len(stacks) > 1 else ""
        origin = "Learned" if learned else "Sinusoidal"
        colored = partial(position_heat_map, table, title=f"{origin} positions{where}")
        pictures.append(Sketch(f"{stack}-position-table", colored, "" if number else captions.TABLE[positions]))
        curve = partial(similarity_curve, similarity_by_distance(table), title=f"Similarity by distance{where}")
        pictures.append(Sketch(f"{stack}-position-similarity", curve, "" if number else captions.SIMILARITY))
    return Section("Positions", captions.POSITIONS, pictures)


def _training(metrics: Sequence[Mapping[str, Any]]) -> Section | None:
    if not metrics:
        return None
    curve = Sketch("loss", partial(loss_curve, metrics, title="Training"), captions.LOSS)
    return Section("Training", captions.TRAINING, [curve])


def _end(inputs: Sequence[str], last: int) -> str:
    """Return the tokens up to the `last`, as many of them as a title has room for."""
    end = visible(inputs[last])
    for number in range(last - 1, -1, -1):
        longer = f"{visible(inputs[number])} {end}"
        if len(longer) > TITLE:
            return f"… {end}"
        end = longer
    return end


def _target(seen: Trace, at: Any) -> int | None:
    """Return the right answer at a position, if it is known and asked for."""
    if seen.targets is None:
        return None
    target = int(np.asarray(seen.targets)[at])
    return target if target >= 0 else None


def _summary(model: Model, params: Tree) -> list[tuple[str, Any]]:
    config = model.config
    sizes = [(name, getattr(config, name)) for name in ("layers", "heads", "width")]
    reach = [("vocabulary", config.vocab), ("positions", config.positions), ("context", config.context)]
    if isinstance(config, EncoderDecoderConfig):
        sizes[0] = ("layers: encoder, decoder", f"{config.encoder_depth}, {config.layers}")
        reach[0] = ("vocabulary: source, target", f"{config.source_size:,}, {config.vocab:,}")
    return [("architecture", config.architecture), ("parameters", tree.count(params)), *sizes, *reach]
