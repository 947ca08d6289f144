"""The residual stream of a run: where it can be read, what writes to it, and what the head makes of it.

points(run)        before the first block, between its sublayers, after it, and so on to the end
sublayers(run)     attention, cross-attention and feed-forward of every block
read_out(run, x)   logits = head(norm x), for the stream at any point
layer_statistics(run)   the sizes of the vectors that leave each layer
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, LengthError, ShapeError
from ..core.quantized import unpacked
from ..core.settings import check_known
from ..core.show import Table
from ..core.tree import flatten
from ..layers import Stack
from ..models import Encoder, EncoderDecoder
from ..text.tokenizer import CLS
from .names import check_name, is_of_source
from .run import Kept, Run

KINDS = {"attention": "query", "cross_attention": "query", "feed_forward": "up"}
"""The sublayers of a block, each with the first of its matrices to read the stream."""

ATTENTIONS = ("attention", "cross_attention")


class Sublayer(NamedTuple):
    """One sublayer of a run."""

    stack: str  # encoder or decoder
    layer: int
    kind: str  # attention, cross_attention or feed_forward
    name: str  # of what it returned, and so added to the stream: blocks.0.attention


class Point(NamedTuple):
    """One point of the residual stream."""

    name: str  # of the value, to be read and changed
    label: str  # what wrote last

    @property
    def is_block(self) -> bool:
        """Whether a block ends here."""
        return self.name.rpartition(".")[2].isdigit()


def stacks(run: Run) -> dict[str, str]:
    """Return the stacks of a model by name, each with the name its blocks go by."""
    if isinstance(run.model, EncoderDecoder):
        return {"encoder": "encoder.blocks", "decoder": "decoder.blocks"}
    return {"encoder" if isinstance(run.model, Encoder) else "decoder": "blocks"}


def chosen_stack(run: Run, stack: str | None) -> str:
    """Return the stack of a name; the one that the head reads unless given."""
    if stack is None:
        return list(stacks(run))[-1]
    check_known("this model has no stack", stack, stacks(run))
    return stack


def sublayers(
    run: Run, stack: str | None = None, kinds: tuple[str, ...] = tuple(KINDS), layers: int | Sequence[int] | None = None
) -> list[Sublayer]:
    """Return the sublayers of one stack, or of all, and of some layers, or of all, in the order in which they run."""
    found = [
        Sublayer(own, layer, kind, name)
        for own in (stacks(run) if stack is None else [chosen_stack(run, stack)])
        for layer, block in enumerate(_blocks(run, own))
        for kind, name in _sublayers(run, block).items()
        if kind in kinds
    ]
    wanted = {one.layer for one in found} if layers is None else {*np.atleast_1d(layers).tolist()}
    for layer in wanted - {one.layer for one in found}:
        last = max((one.layer for one in found), default=-1)
        raise LengthError(f"there is no layer {layer!r} with {' or '.join(kinds)}", hint=f"they count from 0 to {last}")
    return [one for one in found if one.layer in wanted]


def attentions(run: Run) -> dict[str, list[str]]:
    """Return the names of all attentions of a run, by kind: encoder, decoder and cross."""
    found = {stack: [one.name for one in sublayers(run, stack, ("attention",))] for stack in stacks(run)}
    found["cross"] = [one.name for one in sublayers(run, None, ("cross_attention",))]
    return {kind: names for kind, names in found.items() if names}


def stacks_of(kind: str) -> tuple[str, str]:
    """Return the stacks of the queries and of the keys of a kind of attention."""
    return ("decoder", "encoder") if kind == "cross" else (kind, kind)


def _sublayers(run: Run, block: str) -> dict[str, str]:
    """Return the sublayers of a block by kind; a registered block may keep the record of one inside of its own."""
    found = {}
    for kind, matrix in KINDS.items():
        names = [name for name in run if name.startswith(f"{block}.") and name.endswith(f".{kind}.{matrix}")]
        if names:
            found[kind] = min(names, key=len).removesuffix(f".{matrix}")
    return found


def neurons_of(run: Run, layer: int, stack: str | None = None) -> str:
    """Return the name of the hidden features (B, T, F) of one feed-forward layer."""
    found = {one.layer: one for one in sublayers(run, chosen_stack(run, stack), ("feed_forward",))}
    if layer not in found:
        raise LengthError(f"there is no feed-forward layer {layer}", hint=f"the model has {len(found)}, from 0")
    return f"{found[layer].name}.down.x"


def points(run: Run, stack: str | None = None) -> list[Point]:
    """Return every point of the residual stream of a stack, from the embedding to the end of the last block."""
    own = chosen_stack(run, stack)
    stream = {id(call.arguments[0]) for call in run.calls if call.name == "add"}
    found: list[Point] = []
    for layer, block in enumerate(_blocks(run, own)):
        inside = _sublayers(run, block)
        kinds = list(inside)
        for number, (kind, own_name) in enumerate(inside.items()):
            names = [f"{own_name}_norm.x", f"{own_name}.{KINDS[kind]}.x"]
            name = next((name for name in names if name in run and id(run[name]) in stream), None)
            before = f"block {layer} {kinds[number - 1].replace('_', '-')}" if number else "embedding"
            # The stream between two blocks is read where the one before returned it.
            if name is not None and (number or layer == 0):
                found.append(Point(name, before))
        found.append(Point(block, f"block {layer}"))
    if found[0].label != "embedding":  # registered blocks
        found.insert(0, Point("source_embedding" if own != chosen_stack(run, None) else "embedding", "embedding"))
    return found


def _blocks(run: Run, stack: str) -> list[str]:
    """Return the names of the blocks of a stack."""
    prefix = stacks(run)[stack]
    names: list[str] = []
    while f"{prefix}.{len(names)}" in run:
        names.append(f"{prefix}.{len(names)}")
    return names


# --- what the head makes of it ---------------------------------------------------------------------------------------


def last_stack(run: Run) -> tuple[Stack, Tree]:
    """Return the stack that the head reads, and its parameters."""
    model: Any = run.model
    return (model.stack, run.params) if isinstance(model, Encoder) else model.decoder_stack(run.params)


def is_classifier(run: Run) -> bool:
    """Return whether the model has one prediction for a sequence, not one for each token."""
    return isinstance(run.model, Encoder) and run.model.config.head == "classes"


def read_out(run: Run, x: Array) -> tuple[Array, Tree]:
    """Return what the last norm and the head make of the stream x (B, T, D), and the record.

    logits = head(norm x)      of a classifier: head(pool(norm x))
    """
    model: Any = run.model
    stack, params = last_stack(run)
    saved: dict[str, Any] = {}
    if stack.final_norm is not None:
        x, saved["final_norm"] = stack.final_norm.forward(params["final_norm"], x)
    if is_classifier(run):
        logits, saved["head"] = model.classify(run.params, x, run.batch.mask)
    else:
        table = run.params["embedding"]["tokens"]["table"]
        logits, saved["head"] = model.head.forward(run.params.get("head", {}), x, table)
    return logits, saved


def read_out_backward(run: Run, saved: Tree, dlogits: Array) -> Array:
    """Return the gradient of the stream (B, T, D) that `read_out` read: its lines, from the last."""
    model: Any = run.model
    stack, params = last_stack(run)
    if is_classifier(run):
        dx, _ = model.classify_backward(run.params, saved["head"], dlogits)
    else:
        table = run.params["embedding"]["tokens"]["table"]
        dx = model.head.backward(run.params.get("head", {}), saved["head"], dlogits, table)[0].x
    if stack.final_norm is not None:
        dx, _ = stack.final_norm.backward(params["final_norm"], saved["final_norm"], dx)
    return dx


def head_results(run: Run, name: str) -> Array:
    """Return what each head of an attention adds to the stream, (B, H, T, D).

        head_results(run, "blocks.0.attention")

    They sum to what the attention returns, up to the bias of its output, which belongs to no head.
    """
    check_name(f"{name}.output.x", run)
    mixed = run[f"{name}.output.x"]  # (B, T, H·C)
    w = unpacked(flatten(run.params)[f"{name}.output.w"])  # (H·C, D)
    by_head = mixed.reshape(*mixed.shape[:-1], run.heads, -1).swapaxes(-3, -2)
    return by_head @ w.reshape(run.heads, by_head.shape[-1], -1)


def token_rows(run: Run | Kept, name: str) -> Array:
    """Return a value (B, T, D) as rows (N, D), padding left out; of one vector per example, (B, D) as it is."""
    x = run[name]
    if x.ndim == 2:
        return x
    if x.ndim != 3:
        raise ConfigError(f"{name} has shape {x.shape}", hint="choose a value with one vector per token, (B, T, D)")
    return x[real_tokens(run, x.shape[1], source=is_of_source(name))]


def stack_tokens(run: Run, stack: str) -> tuple[Array, Array]:
    """Return the ids that a stack reads, (B, T), −1 for a learned vector before them, and which of them are tokens."""
    source = stack == "encoder" and isinstance(run.model, EncoderDecoder)
    ids = np.asarray(run.batch.source if source else run.batch.tokens)
    if isinstance(run.model, Encoder) and run.model.config.pooling == "cls":
        ids = np.pad(ids, ((0, 0), (1, 0)), constant_values=-1)
    return ids, real_tokens(run, ids.shape[1], source=source)


def real_tokens(run: Run | Kept, length: int, *, source: bool = False) -> Array:
    """Return which places are tokens and not padding, (B, length); a learned first vector is none."""
    source = source and run.batch.source is not None
    mask = run.batch.source_mask if source else run.batch.mask
    tokens = np.asarray(run.batch.source if source else run.batch.tokens).shape
    real = np.ones(tokens, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
    return np.pad(real, ((0, 0), (length - tokens[1], 0)), constant_values=False)


def example_tokens(run: Run, stack: str, example: int = 0) -> tuple[Array, list[str]]:
    """Return where the tokens of one example stand, and their names; a learned vector before them counts."""
    if not -len(run.logits) <= example < len(run.logits):
        fact = f"there is no example {example} in a batch of {len(run.logits)}"
        raise LengthError(fact, hint=f"use 0 to {len(run.logits) - 1}")
    tokens, is_token = (part[example] for part in stack_tokens(run, stack))
    places = np.flatnonzero(is_token | (tokens < 0))
    of_source = stack == "encoder" and isinstance(run.model, EncoderDecoder)
    label = (run.labels.source or run.labels.tokens) if of_source else run.labels.tokens
    return places, [CLS if tokens[n] < 0 else label(int(tokens[n])) for n in places]


# --- the sizes of what leaves each layer ------------------------------------------------------------------------------


class LayerStatistics(NamedTuple):
    """The numbers that leave one layer, over all tokens and features.

    rms      √(mean x²)
    zeros    the share of entries that are exactly zero
    norm     the mean length of a token's vector
    change   ‖x − x before‖ / ‖x before‖, averaged over tokens: how much of the vector this block wrote; 0 for the first
    """

    name: str
    mean: float
    std: float
    rms: float
    minimum: float
    maximum: float
    zeros: float
    norm: float
    change: float


def layer_statistics(run: Run, stack: str | None = None) -> list[LayerStatistics]:
    """Describe the embedding and the output of every block of one stack, over all tokens of all examples.

    `stack` is "encoder" or "decoder"; the last that the model has unless given.
    """
    own = chosen_stack(run, stack)
    tokens, is_token = stack_tokens(run, own)
    ends = [point.name for number, point in enumerate(points(run, own)) if point.is_block or number == 0]
    return residual_statistics(np.stack([run[name][is_token | (tokens < 0)] for name in ends]))


def residual_statistics(residual: Array) -> list[LayerStatistics]:
    """Describe a residual stream (L + 1, T, D): the embedding, then the output of every block."""
    residual = np.asarray(residual, dtype=np.float64)
    if residual.ndim != 3 or residual.size == 0:
        fact = f"the residual stream has shape {residual.shape}, expected (layers + 1, tokens, width)"
        raise ShapeError(fact, hint="pass the vectors of all tokens at each point")
    names = ["embedding", *(f"block {number}" for number in range(len(residual) - 1))]
    return Table(map(_describe, names, residual, [residual[0], *residual]))


def _describe(name: str, x: Array, before: Array) -> LayerStatistics:
    length = np.linalg.norm(before, axis=-1)
    moved = np.linalg.norm(x - before, axis=-1)
    return LayerStatistics(
        name=name,
        mean=float(x.mean()),
        std=float(x.std()),
        rms=float(np.sqrt(np.mean(x**2))),
        minimum=float(x.min()),
        maximum=float(x.max()),
        zeros=float(np.mean(x == 0)),
        norm=float(np.linalg.norm(x, axis=-1).mean()),
        change=float(np.mean(np.divide(moved, length, out=np.zeros_like(moved), where=length > 0))),
    )
