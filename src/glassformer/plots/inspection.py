"""All pictures of one model and one example, together on one page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import tree
from ..arrays import Tree
from ..interpret import (
    NUMBERS,
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
from .attention import attention_grid, attention_heads, full_against_causal
from .heads import head_positions, head_specialization
from .labels import plain, visible, visible_all
from .layers import layer_curves
from .loss import loss_curve
from .positions import position_heat_map, similarity_curve
from .predictions import prediction_bars, prediction_table
from .report import Section, Table, saved_picture, write_report

MOST_LAYERS = 12
"""Layers drawn in full; of deeper models, these many spread evenly, and all of them in the small maps."""


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
    summary: Sequence[tuple[str, Any]] = (),
    embed: bool = False,
) -> list[Path]:
    """Draw everything there is to see of one example into `folder`, and return the files, `index.html` first.

    example   which one of the batch is shown; what the heads do is averaged over all of them
    labels    how ids are called
    metrics   records of the training, for the loss curve
    summary   names and values for the top of the page, before those of the model
    embed     put the pictures into the page as well
    """
    traces = trace_each(model, params, batch, labels=labels)
    folder = Path(folder)
    seen = traces[example]
    drawn = [
        _predictions(folder, seen, labels),
        *(_attention(folder, seen, attention) for attention in seen.kinds),
        _masks(folder, seen),
        _heads(folder, seen, traces),
        _positions(folder, model, params, seen),
        _layers(folder, traces),
        _training(folder, metrics),
    ]
    sections = [section for section in drawn if section is not None]
    summary = [*summary, *_summary(model, params)]
    page = write_report(folder, title, sections, intro=_intro(seen), summary=summary, embed=embed)
    return [page, *(folder / p.path for section in sections for p in (*section.pictures, *section.aside))]


def _predictions(folder: Path, seen: Trace, labels: Labels) -> Section | None:
    probabilities = seen.probabilities
    if probabilities is None:
        return None
    if probabilities.ndim == 1:
        answer = _target(seen, ())
        figure = prediction_bars(probabilities, labels.classes or str, answer=answer, title="Which class is it?")
        bars = saved_picture(folder, "prediction", figure, captions.CLASS_BARS)
        return Section("Prediction", captions.CLASSES, [bars])
    stack = list(seen.labels)[-1]
    inputs, targets = seen.labels[stack], seen.targets
    # The last position whose answer is known, or else the last of all.
    last = len(inputs) - 1
    if targets is not None and np.any(np.asarray(targets) >= 0):
        last = int(np.flatnonzero(np.asarray(targets) >= 0)[-1])
    after = visible(inputs[last])
    is_encoder = seen.architecture == "encoder"
    title = f"Which token stands at {after}?" if is_encoder else f"What comes after {after}?"
    figure = prediction_bars(probabilities[last], labels.tokens, answer=_target(seen, last), title=title)
    table = prediction_table(probabilities, inputs, labels.tokens, targets=targets)
    pictures = [
        saved_picture(folder, "prediction", figure, captions.TOKEN_BARS),
        saved_picture(folder, "predictions", table, captions.TOKEN_TABLE),
    ]
    return Section("Prediction", captions.MASKED_TOKENS if is_encoder else captions.TOKENS, pictures)


def _attention(folder: Path, seen: Trace, attention: str) -> Section:
    weights, allowed = seen.attention[attention], seen.allowed[attention]
    queries, keys = seen.query_labels(attention), seen.key_labels(attention)
    heading = captions.HEADINGS[attention]
    hidden = None if allowed.all() else allowed
    pictures = []
    if len(weights) * weights.shape[1] > 1:
        figure = attention_grid(weights, allowed=hidden, title=f"{heading}: all layers and heads")
        pictures.append(saved_picture(folder, f"{attention}-grid", figure, captions.GRID))
    layers = np.unique(np.linspace(0, len(weights) - 1, min(len(weights), MOST_LAYERS)).round().astype(int)).tolist()
    for layer in layers:
        title = f"{heading}, layer {layer + 1}"
        figure = attention_heads(weights[layer], queries, keys, allowed=hidden, title=title)
        caption = captions.MAPS[attention] if layer == layers[0] else ""
        pictures.append(saved_picture(folder, f"{attention}-layer-{layer + 1}", figure, caption))
    return Section(heading, captions.ATTENTION[attention], pictures[:4], aside=pictures[4:])


def _masks(folder: Path, seen: Trace) -> Section | None:
    """Show the head of the decoder whose attention the mask changes most: the same scores with and without it."""
    if "decoder" not in seen.attention or len(seen.labels["decoder"]) < 2:
        return None
    full, causal = full_and_causal(seen, "decoder")
    changed = np.abs(full - causal).sum(axis=(-2, -1))
    layer, head = (int(i) for i in np.unravel_index(int(np.argmax(changed)), changed.shape))
    title = f"Layer {layer + 1}, head {head + 1}, with and without the mask"
    figure = full_against_causal(full[layer, head], causal[layer, head], seen.labels["decoder"], title=title)
    maps = saved_picture(folder, "full-against-causal", figure, captions.MASK_MAPS)
    return Section("Full against causal", captions.MASK, [maps])


def _heads(folder: Path, seen: Trace, traces: Sequence[Trace]) -> Section:
    pictures, rows = [], []
    for attention in seen.kinds:
        statistics = head_statistics(traces, attention)
        name = captions.HEADINGS[attention]
        figure = head_specialization(statistics, title=f"{name}: do the heads specialize?")
        pictures.append(saved_picture(folder, f"{attention}-heads", figure, captions.SCORE))
        # The tokens of one example name the positions only where they are all there is.
        names = seen.key_labels(attention) if len(traces) == 1 else None
        figure = head_positions(statistics, names, title=f"{name}: where each head looks")
        pictures.append(saved_picture(folder, f"{attention}-positions", figure, captions.RECEIVED))
        every = (row.values() for row in statistics.rows())
        rows += [(attention, *figures, ", ".join(map(str, most))) for *figures, most in every]
    over = "this example" if len(traces) == 1 else f"{len(traces)} examples"
    columns = ("attention", "layer", "head", "kind", "specialization", "entropy", "distance", "looks most at")
    table = Table(columns, rows[:64], f"Every head, over {over}. Positions count from 0.")
    return Section("What the heads do", captions.HEADS, pictures, [table])


def _positions(folder: Path, model: Model, params: Tree, seen: Trace) -> Section | None:
    positions = model.config.positions
    learned = positions == "learned"
    stacks = list(seen.residual) if learned else [list(seen.residual)[-1]]
    pictures = []
    for stack in stacks:
        table = position_table(model, params, stack=stack)
        if table is None:
            return None
        where = f" of the {stack}" if len(stacks) > 1 else ""
        origin = "Learned" if learned else "Sinusoidal"
        figure = position_heat_map(table, title=f"{origin} positions{where}")
        pictures.append(saved_picture(folder, f"{stack}-position-table", figure, captions.TABLE[positions]))
        figure = similarity_curve(similarity_by_distance(table), title=f"Similarity by distance{where}")
        pictures.append(saved_picture(folder, f"{stack}-position-similarity", figure, captions.SIMILARITY))
    return Section("Positions", captions.POSITIONS, pictures)


def _layers(folder: Path, traces: Sequence[Trace]) -> Section:
    pictures, tables = [], []
    for stack in traces[0].residual:
        statistics = layer_statistics(traces, stack)
        figure = layer_curves(statistics, title=f"What leaves each layer of the {stack}")
        pictures.append(saved_picture(folder, f"{stack}-layers", figure, captions.CURVES))
        columns = ("layer", "mean", "std", "rms", "minimum", "maximum", "zeros", "length", "change")
        tables.append(Table(columns, [tuple(row) for row in statistics], f"The {stack}, layer by layer."))
    return Section("Layer by layer", captions.LAYERS, pictures, tables)


def _training(folder: Path, metrics: Sequence[Mapping[str, Any]]) -> Section | None:
    if not metrics:
        return None
    curve = saved_picture(folder, "loss", loss_curve(metrics, title="Training"), captions.LOSS)
    return Section("Training", captions.TRAINING, [curve])


def _target(seen: Trace, at: Any) -> int | None:
    """Return the right answer at a position, if it is known and asked for."""
    if seen.targets is None:
        return None
    target = int(np.asarray(seen.targets)[at])
    return target if target >= 0 else None


def _intro(seen: Trace) -> str:
    parts = [f"{name} reads: " + " ".join(map(plain, visible_all(row[:60]))) + (" …" if len(row) > 60 else "")
             for name, row in seen.labels.items()]  # fmt: skip
    return f"{captions.INTRO}\n\n" + "\n\n".join(f"The {part}" for part in parts)


def _summary(model: Model, params: Tree) -> list[tuple[str, Any]]:
    config = model.config
    sizes = [(name, getattr(config, name)) for name in ("layers", "heads", "width")]
    reach = [("vocabulary", config.vocab), ("positions", config.positions), ("context", config.context)]
    return [("architecture", config.architecture), ("parameters", tree.count(params)), *sizes, *reach]
