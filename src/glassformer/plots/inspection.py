"""All figures of one model and one example, as files."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .. import interpret, ops
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from ..generation.sampling import check_finite
from ..interpret import NUMBERS, Labels, Logit, Run
from ..interpret.attention import AttentionMaps
from ..interpret.run import has_no_head
from ..interpret.stream import attentions, example_tokens, points, stacks
from ..models import Batch, Encoder, Model
from ..weights.loaded_model import trained_or_pair
from .attention_maps import MOST_HEADS, attention_grid, attention_heads, full_against_causal
from .heads import detector_maps, head_positions, head_specialization
from .labels import visible
from .layers import layer_curves, position_heat_map, similarity_curve
from .predictions import MOST_POSITIONS, lens_map, prediction_bars, prediction_table, signed_bars
from .style import save_themes
from .training import loss_curve

HEADINGS = {"encoder": "Encoder self-attention", "decoder": "Decoder self-attention", "cross": "Cross-attention"}
LONGEST = 256
"""Tokens of an example up to which the lens and attributions are drawn: they keep every value of the run."""
SHORTEST = 4
"""Smallest context for head detection: two tokens, repeated."""
TITLE = 28
"""Characters of the input in a title, at most."""

Sketches = Iterator[tuple[str, Callable[[], Figure]]]
"""Names of files, with what draws the figure."""


@trained_or_pair
def inspect_model(
    model: Model,
    params: Tree,
    batch: Batch,
    folder: str | Path,
    *,
    example: int = 0,
    labels: Labels = NUMBERS,
    metrics: Sequence[Mapping[str, Any]] = (),
    theme: str | None = None,
    form: str = "png",
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Path]:
    """Draw everything there is to see of one example into `folder`, and return the files.

    A trained model stands for `model` and `params`, and knows its labels.

    example    which one of the batch is drawn; what the heads and layers do is averaged over all of them
    labels     names of the ids
    metrics    records of the training, for the loss curve
    theme      light or dark; None: both, NAME.png and NAME-dark.png
    form       png, svg or pdf
    progress   called before each figure with the number drawn, the total, and its name
    """
    axes = np.ndim(batch.tokens) - 1  # with exactly one of examples
    batch = Batch(*(None if part is None else np.reshape(part, (-1, *np.shape(part)[axes:])) for part in batch))
    run = interpret.watch(model, params, batch, labels=labels)
    _check_finite(run)
    maps = interpret.attention_maps(run, example)
    sketches = [
        *_predictions(run, example),
        *_answer(run, example),
        *_heads_and_layers(run, maps),
        *_attention(maps),
        *_masks(run, maps, example),
        *_positions(run),
    ]
    if metrics:
        sketches.append(("loss", partial(loss_curve, metrics, title="Training")))
    paths = []
    for done, (name, draw) in enumerate(sketches):
        if progress is not None:
            progress(done, len(sketches), name)
        paths += save_themes(draw, folder, name, form=form, theme=theme)
    return paths


def _check_finite(run: Run) -> None:
    """Refuse to draw numbers that are not finite."""
    for stack in stacks(run):
        for point in points(run, stack):
            check_finite(np.square(run[point.name]), "residual stream's squares")
    for names in attentions(run).values():
        for name in names:
            check_finite(run[f"{name}.attend.weights"], "attention weights")
    check_finite(run.logits)


def _predictions(run: Run, example: int) -> Sketches:
    if has_no_head(run.model):
        return
    labels, targets = run.labels, None if run.batch.targets is None else np.asarray(run.batch.targets)[example]
    probabilities = ops.softmax(run.logits[example])[0]
    if probabilities.ndim == 1:
        names, title = labels.classes or str, "Which class is it?"
        yield "prediction", partial(prediction_bars, probabilities, names, answer=_target(targets, ()), title=title)
        return
    rows, inputs = example_tokens(run, list(stacks(run))[-1], example)
    probabilities, targets = probabilities[rows], None if targets is None else targets[rows]
    # The last position whose answer is known, or else the last of all.
    last = len(inputs) - 1
    if targets is not None and np.any(np.asarray(targets) >= 0):
        last = int(np.flatnonzero(np.asarray(targets) >= 0)[-1])
    place: dict[str, Any] = {}
    title = f"What comes after “{_end(inputs, last)}”?"
    if isinstance(run.model, Encoder):
        place, title = {"place": "the token that was read there"}, f"Which token stands at “{visible(inputs[last])}”?"
    answer = _target(targets, last)
    yield "prediction", partial(prediction_bars, probabilities[last], labels.tokens, answer=answer, title=title)
    yield "predictions", partial(prediction_table, probabilities, inputs, labels.tokens, targets=targets, **place)


def _answer(every: Run, example: int) -> Sketches:
    """Draw the lens, and what adds to the likeliest answer: at the last token, or of the whole sequence."""
    if every.batch.tokens.shape[-1] > LONGEST or has_no_head(every.model):
        return
    one = Batch(*(None if part is None else np.asarray(part)[example][None] for part in every.batch))
    run = interpret.watch(every.model, every.params, one, labels=every.labels)
    if run.logits.ndim == 2:
        target = Logit(int(np.argmax(run.logits[0])))
        seen = interpret.lens(run)
    else:
        mask = run.batch.mask
        real = np.arange(run.logits.shape[1]) if mask is None else np.flatnonzero(np.asarray(mask)[0])
        real = real[-MOST_POSITIONS:]  # more would not be drawn
        target = Logit(int(np.argmax(run.logits[0, real[-1]])), int(real[-1]))
        seen = interpret.lens(run, positions=real)
    yield "lens", partial(lens_map, seen)
    try:
        parts = interpret.attribute(run, target).rows()
    except ConfigError:  # something on the direct path is not linear
        return
    names = [part["name"] if part["head"] is None else f"{part['name']}, head={part['head']}" for part in parts]
    title = f"What adds to the logit of “{visible(run.label(target.token))}”"
    yield "attribution", partial(signed_bars, names, np.array([part["value"] for part in parts]), title=title)


def _heads_and_layers(run: Run, maps: dict[str, AttentionMaps]) -> Sketches:
    """Draw the kinds of heads, by random tokens that come twice, and what heads and layers do, over all examples."""
    if run.model.config.context >= SHORTEST:
        # Blocks of a user's own may keep their attention under other names.
        with contextlib.suppress(ConfigError):
            for name, found in interpret.detect_heads(run.model, run.params).items():
                yield f"{name}-kinds", partial(detector_maps, found, title=f"{HEADINGS[name]}: kinds of heads")
    for name, found in interpret.head_scores(run).items():
        heading = HEADINGS[name]
        yield f"{name}-heads", partial(head_specialization, found, title=f"{heading}: do the heads specialize?")
        # The tokens of one example name the positions only where they are all there is.
        names = maps[name].keys if len(run.logits) == 1 else None
        yield f"{name}-positions", partial(head_positions, found, names, title=f"{heading}: where each head looks")
    for stack in stacks(run):
        title = f"What leaves each layer of the {stack}"
        yield f"{stack}-layers", partial(layer_curves, interpret.layer_statistics(run, stack), title=title)


def _attention(maps: dict[str, AttentionMaps]) -> Sketches:
    """Draw each kind of attention: all heads as small maps, then each layer."""
    for attention, (weights, allowed, *labels) in maps.items():
        hidden = None if allowed.all() else allowed
        if len(weights) > 1:
            title = f"{HEADINGS[attention]}: all layers and heads"
            yield f"{attention}-grid", partial(attention_grid, weights, allowed=hidden, title=title)
        for layer, every in enumerate(weights):
            for first in range(0, len(every), MOST_HEADS):
                some = every[first : first + MOST_HEADS]
                name, title = f"{attention}-layer-{layer}", f"{HEADINGS[attention]}, layer {layer}"
                if len(every) > MOST_HEADS:
                    name, title = f"{name}-heads-{first}", f"{title}, heads {first} to {first + len(some) - 1}"
                yield name, partial(attention_heads, some, *labels, allowed=hidden, first=first, title=title)


def _masks(run: Run, maps: dict[str, AttentionMaps], example: int) -> Sketches:
    """Draw the head of the decoder whose attention the mask changes most: the same scores with and without it."""
    if "decoder" not in maps or len(maps["decoder"].queries) < 2:
        return
    full, causal = interpret.full_and_causal(run, "decoder", example)
    changed = np.abs(full - causal).sum(axis=(-2, -1))
    at = np.unravel_index(int(np.argmax(changed)), changed.shape)
    title, labels = f"Layer {at[0]}, head {at[1]}, with and without the mask", maps["decoder"].queries
    yield "full-against-causal", partial(full_against_causal, full[at], causal[at], labels, title=title)


def _positions(run: Run) -> Sketches:
    learned = run.model.config.positions == "learned"
    tables = list(stacks(run)) if learned else list(stacks(run))[-1:]
    for stack in tables:
        table = interpret.position_table(run.model, run.params, stack=stack)
        if table is None:
            return
        where = f" of the {stack}" if len(tables) > 1 else ""
        title = f"{'Learned' if learned else 'Sinusoidal'} positions{where}"
        yield f"{stack}-position-table", partial(position_heat_map, table, title=title)
        similarity, title = interpret.similarity_by_distance(table), f"Similarity by distance{where}"
        yield f"{stack}-position-similarity", partial(similarity_curve, similarity, title=title)


def _end(inputs: Sequence[str], last: int) -> str:
    """Return the tokens up to the `last`, as many of them as a title has room for."""
    words = [visible(word) for word in inputs[: last + 1]]
    ends = [" ".join(["…"[:first], *words[first:]]).strip() for first in range(len(words))]
    return next((text for text in ends if len(text) <= TITLE), ends[-1])


def _target(targets: Array | None, at: Any) -> int | None:
    """Return the right answer at a position, if it is known."""
    target = -1 if targets is None else int(np.asarray(targets)[at])
    return target if target >= 0 else None
