"""All pictures of one model and one example, together on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import tree
from ..arrays import Tree
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
from .attention import attention_grid, attention_heads, full_against_causal
from .heads import head_positions, head_specialization
from .labels import plain, visible, visible_all
from .layers import layer_curves
from .loss import loss_curve
from .positions import position_heat_map, similarity_curve
from .predictions import prediction_bars, prediction_table
from .report import Picture, Section, Table, write_report
from .style import save

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
    album = _Album(Path(folder))
    seen = traces[example]
    sections = [_predictions(album, seen, labels)]
    sections += [_attention(album, seen, kind) for kind in seen.kinds]
    sections.append(_masks(album, seen))
    sections.append(_heads(album, seen, traces))
    sections.append(_positions(album, model, params, seen))
    sections.append(_layers(album, traces))
    if metrics:
        figure = loss_curve(metrics, title="Training")
        sections.append(Section("Training", captions.TRAINING, [album.add("loss", figure, captions.LOSS)]))
    page = write_report(
        folder,
        title,
        [section for section in sections if section is not None],
        intro=_intro(seen),
        summary=[*summary, *_summary(model, params)],
        embed=embed,
    )
    return [page, *album.paths]


@dataclass(frozen=True)
class _Album:
    """The pictures that were saved, in order."""

    folder: Path
    paths: list[Path] = field(default_factory=list)

    def add(self, name: str, figure: Figure, caption: str) -> Picture:
        self.paths.append(save(figure, self.folder / f"{name}.png"))
        return Picture(f"{name}.png", caption, str(figure.get_label()))


def _predictions(album: _Album, seen: Trace, labels: Labels) -> Section | None:
    probabilities = seen.probabilities
    if probabilities is None:
        return None
    if probabilities.ndim == 1:
        answer = _target(seen, ())
        figure = prediction_bars(probabilities, labels.classes or str, answer=answer, title="Which class is it?")
        return Section("Prediction", captions.CLASSES, [album.add("prediction", figure, captions.CLASS_BARS)])
    stack = list(seen.labels)[-1]
    inputs, targets = seen.labels[stack], seen.targets
    # The last position whose answer is known, or else the last of all.
    last = len(inputs) - 1
    if targets is not None and np.any(np.asarray(targets) >= 0):
        last = int(np.flatnonzero(np.asarray(targets) >= 0)[-1])
    after = visible(inputs[last])
    is_encoder = seen.architecture == "encoder"
    title = f"Which token stands at {after}?" if is_encoder else f"What comes after {after}?"
    bars = prediction_bars(probabilities[last], labels.tokens, answer=_target(seen, last), title=title)
    table = prediction_table(probabilities, inputs, labels.tokens, targets=targets)
    pictures = [
        album.add("prediction", bars, captions.TOKEN_BARS),
        album.add("predictions", table, captions.TOKEN_TABLE),
    ]
    return Section("Prediction", captions.MASKED_TOKENS if is_encoder else captions.TOKENS, pictures)


def _attention(album: _Album, seen: Trace, kind: str) -> Section:
    weights, allowed = seen.attention[kind], seen.allowed[kind]
    heading = captions.KINDS[kind]
    hidden = None if allowed.all() else allowed
    grid = attention_grid(weights, allowed=hidden, title=f"{heading}: all layers and heads")
    pictures = [] if len(weights) * weights.shape[1] == 1 else [album.add(f"{kind}-grid", grid, captions.GRID)]
    layers = np.unique(np.linspace(0, len(weights) - 1, min(len(weights), MOST_LAYERS)).round().astype(int)).tolist()
    for layer in layers:
        figure = attention_heads(
            weights[layer],
            seen.query_labels(kind),
            seen.key_labels(kind),
            allowed=hidden,
            title=f"{heading}, layer {layer + 1}",
        )
        pictures.append(
            album.add(f"{kind}-layer-{layer + 1}", figure, captions.MAPS[kind] if layer == layers[0] else "")
        )
    return Section(heading, captions.ATTENTION[kind], pictures[:4], aside=pictures[4:])


def _masks(album: _Album, seen: Trace) -> Section | None:
    """Show the head of the decoder whose attention the mask changes most: the same scores with and without it."""
    if "decoder" not in seen.attention or len(seen.labels["decoder"]) < 2:
        return None
    full, causal = full_and_causal(seen, "decoder")
    changed = np.abs(full - causal).sum(axis=(-2, -1))
    layer, head = (int(i) for i in np.unravel_index(int(np.argmax(changed)), changed.shape))
    title = f"Layer {layer + 1}, head {head + 1}, with and without the mask"
    figure = full_against_causal(full[layer, head], causal[layer, head], seen.labels["decoder"], title=title)
    return Section("Full against causal", captions.MASK, [album.add("full-against-causal", figure, captions.MASK_MAPS)])


def _heads(album: _Album, seen: Trace, traces: Sequence[Trace]) -> Section:
    pictures, rows = [], []
    for kind in seen.kinds:
        statistics = head_statistics(traces, kind)
        name = captions.KINDS[kind]
        figure = head_specialization(statistics, title=f"{name}: do the heads specialize?")
        pictures.append(album.add(f"{kind}-heads", figure, captions.SCORE))
        # The tokens of one example name the positions only where they are all there is.
        names = seen.key_labels(kind) if len(traces) == 1 else None
        figure = head_positions(statistics, names, title=f"{name}: where each head looks")
        pictures.append(album.add(f"{kind}-positions", figure, captions.RECEIVED))
        rows += _head_rows(statistics)
    over = "this example" if len(traces) == 1 else f"{len(traces)} examples"
    columns = ("attention", "layer", "head", "kind", "specialization", "entropy", "distance", "looks most at")
    table = Table(columns, rows[:64], f"Every head, over {over}. Positions count from 0.")
    return Section("What the heads do", captions.HEADS, pictures, [table])


def _head_rows(statistics: HeadStatistics) -> list[tuple[Any, ...]]:
    return [
        (
            statistics.kind,
            row["layer"],
            row["head"],
            row["kind"],
            round(row["score"], 3),
            round(row["entropy"], 3),
            round(row["distance"], 2),
            ", ".join(map(str, row["top_positions"])),
        )
        for row in statistics.rows()
    ]


def _positions(album: _Album, model: Model, params: Tree, seen: Trace) -> Section | None:
    positions = model.config.positions
    learned = positions == "learned"
    stacks = list(seen.residual) if learned else [list(seen.residual)[-1]]
    pictures = []
    for stack in stacks:
        table = position_table(model, params, stack=stack)
        if table is None:
            return None
        where = f" of the {stack}" if len(stacks) > 1 else ""
        kind = "Learned" if learned else "Sinusoidal"
        figure = position_heat_map(table, title=f"{kind} positions{where}")
        pictures.append(album.add(f"{stack}-position-table", figure, captions.TABLE[positions]))
        figure = similarity_curve(similarity_by_distance(table), title=f"Similarity by distance{where}")
        pictures.append(album.add(f"{stack}-position-similarity", figure, captions.SIMILARITY))
    return Section("Positions", captions.POSITIONS, pictures)


def _layers(album: _Album, traces: Sequence[Trace]) -> Section:
    pictures, tables = [], []
    for stack in traces[0].residual:
        statistics = layer_statistics(traces, stack)
        figure = layer_curves(statistics, title=f"What leaves each layer of the {stack}")
        pictures.append(album.add(f"{stack}-layers", figure, captions.CURVES))
        columns = ("layer", "mean", "std", "rms", "minimum", "maximum", "zeros", "length", "change")
        tables.append(Table(columns, [tuple(row) for row in statistics], f"The {stack}, layer by layer."))
    return Section("Layer by layer", captions.LAYERS, pictures, tables)


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
    return [
        ("architecture", config.architecture),
        ("parameters", tree.count(params)),
        ("layers", config.layers),
        ("heads", config.heads),
        ("width", config.width),
        ("vocabulary", config.vocab),
        ("positions", config.positions),
        ("context", config.context),
    ]
