"""Every layer with the inputs and settings under which its gradients are proved.

All of a layer moves at once: its parameters and whatever else it reads that has a gradient (x, memory, bias, table).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import ops, registry
from ..arrays import Array, Tree, namespace
from ..config import RotaryScaling
from ..layers import (
    AlibiPositions,
    Attention,
    AttentionOnly,
    Block,
    Embedding,
    FeedForward,
    InputEmbedding,
    Layer,
    LayerNorm,
    Linear,
    NoNorm,
    Norm,
    Parallel,
    RelativePositions,
    Residual,
    RMSNorm,
    RotaryPositions,
    Stack,
    TokenHead,
)
from ..ops import CAUSAL, Pattern
from ..tree import tree_map
from .case import Case

WIDTH, HEADS, HIDDEN = 8, 4, 5
PADDING = np.array([[True, True, True, False], [True, False, False, False]])  # of two sequences of four tokens


@dataclass(frozen=True, eq=False)
class LayerCase(Case):
    """A layer with parameters, inputs and settings:  y, saved = layer.forward(params, **inputs, **settings)."""

    name: str
    """The class, then what is special about the case: "Attention, grouped queries"."""
    layer: Layer
    params: Tree
    inputs: Mapping[str, Array]
    """What has a gradient: x, memory, bias, table."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What has none: ids, masks, rotations, keys."""

    @property
    def point(self) -> Tree:
        """All that may move."""
        return {"params": self.params, "inputs": dict(self.inputs)}

    def forward(self, point: Tree | None = None) -> tuple[Array, Tree]:
        """Run the layer, at another point when given."""
        point = self.point if point is None else point
        return self.layer.forward(point["params"], **point["inputs"], **self.settings)

    def function(self, point: Tree) -> Array:
        """Return  Σ dy · y  for a fixed random dy."""
        y, _ = self.forward(point)
        return (y * cotangent(y)).sum()

    def gradients(self, point: Tree | None = None) -> Tree:
        """Return the hand-derived gradient of `function`, by the names of the point."""
        point = self.point if point is None else point
        y, saved = self.forward(point)
        backward = self.layer.backward
        again = {name: x for name, x in point["inputs"].items() if name in inspect.signature(backward).parameters}
        read, grads = backward(point["params"], saved, cotangent(y), **again)
        if hasattr(read, "_asdict"):
            inputs = {name: dx for name, dx in read._asdict().items() if dx is not None}
        else:
            inputs = {} if read is None else {"x": read}
        return {"params": grads, "inputs": inputs}


def cotangent(y: Array) -> Array:
    """Return random numbers in the shape and library of y, the same each time."""
    dy = np.random.default_rng(3).standard_normal(tuple(y.shape))
    return namespace(y).asarray(dy, dtype=y.real.dtype)


def scattered(layer: Layer, rng: np.random.Generator) -> Tree:
    """Return parameters far from their first values, where no gamma is one and no bias zero."""
    params = layer.init(rng, np.float64)
    return tree_map(lambda x: x + 0.3 * rng.standard_normal(x.shape), params)


def layer_cases() -> list[LayerCase]:
    """Return all cases of all layers, made afresh."""
    rng = np.random.default_rng(0)
    cases = []
    for source in SOURCES:
        for name, layer, inputs, settings in source(rng.standard_normal):
            cases.append(LayerCase(name, layer, scattered(layer, rng), inputs, settings))
    return cases


Recipe = tuple[str, Layer, dict[str, Array], dict[str, Any]]
Normal = Callable[..., Array]


def simple_layers(normal: Normal) -> Iterator[Recipe]:
    """Maps and norms, with and without what is optional."""
    for lead, what in (((), "one vector"), ((3,), "rows"), ((2, 2), "batch"), ((0, 3), "no example")):
        x = {"x": normal((*lead, 4))}
        yield f"Linear, {what}", Linear(4, 3), x, {}
        yield f"LayerNorm, {what}", LayerNorm(4), x, {}
        yield f"RMSNorm, {what}", RMSNorm(4), x, {}
        yield f"NoNorm, {what}", NoNorm(4), x, {}
    x = {"x": normal((2, 3, 4))}
    yield "Linear, no bias", Linear(4, 3, bias=False), x, {}
    yield "LayerNorm, no shift", LayerNorm(4, bias=False), x, {}
    # Inputs this small let eps decide the root.
    yield "LayerNorm, large eps", LayerNorm(4, eps=1e-2), {"x": 0.1 * x["x"]}, {}
    yield "RMSNorm, large eps", RMSNorm(4, eps=1e-2), {"x": 0.1 * x["x"]}, {}


def feed_forward_layers(normal: Normal) -> Iterator[Recipe]:
    """Every activation, gated and not, with and without biases."""
    for activation in ops.ACTIVATIONS:
        for gated in (False, True):
            layer = FeedForward(WIDTH, HIDDEN, activation, gated)
            yield f"FeedForward, {activation}{', gated' * gated}", layer, {"x": normal((2, 3, WIDTH))}, {}
    for gated in (False, True):
        layer = FeedForward(WIDTH, HIDDEN, gated=gated, bias=False)
        yield f"FeedForward, no bias{', gated' * gated}", layer, {"x": normal((2, 3, WIDTH))}, {}
    yield "FeedForward, unbatched", FeedForward(WIDTH, HIDDEN), {"x": normal((3, WIDTH))}, {}
    yield "FeedForward, no example", FeedForward(WIDTH, HIDDEN), {"x": normal((0, 3, WIDTH))}, {}


def attention_layers(normal: Normal) -> Iterator[Recipe]:
    """Self-attention in all its kinds."""
    x = {"x": normal((2, 4, WIDTH))}
    bias = {"bias": normal((HEADS, 4, 4))}
    mask = {"mask": PADDING[:, None, :]}
    key = {"key": ops.new_key(5)}
    variants: dict[str, dict[str, Any]] = {
        "multi-head": {},
        "grouped queries": {"kv_heads": 2},
        "multi-query": {"kv_heads": 1},
        "own head width": {"head_width": 3},
        "no bias": {"bias": False},
        "no output bias": {"output_bias": False},
        "output bias alone": {"bias": False, "output_bias": True},
        "own scale": {"scale": 1.0},
    }
    for what, settings in variants.items():
        yield f"Attention, {what}", Attention(WIDTH, HEADS, **settings), x, {}
    yield "Attention, unbatched", Attention(WIDTH, HEADS, kv_heads=2), {"x": normal((4, WIDTH))}, {}
    yield "Attention, two batch axes", Attention(WIDTH, HEADS), {"x": normal((2, 1, 3, WIDTH))}, {}
    yield "Attention, one token", Attention(WIDTH, HEADS, pattern=CAUSAL), {"x": normal((2, 1, WIDTH))}, {}
    for tile in (None, 3):
        where = "" if tile is None else ", tiled"
        yield f"Attention, causal{where}", Attention(WIDTH, HEADS, pattern=CAUSAL, tile=tile), x, {}
        window = Pattern(causal=True, window=2)
        yield f"Attention, window{where}", Attention(WIDTH, HEADS, pattern=window, tile=tile), x, mask
        yield f"Attention, stride{where}", Attention(WIDTH, HEADS, pattern=Pattern(stride=2), tile=tile), x, {}
        yield f"Attention, padding{where}", Attention(WIDTH, HEADS, tile=tile), x, mask
        blind = {"mask": PADDING[:, None, :] & (np.arange(4) > 0)[:, None]}
        yield f"Attention, a query that sees nothing{where}", Attention(WIDTH, HEADS, tile=tile), x, blind
        yield f"Attention, bias{where}", Attention(WIDTH, HEADS, tile=tile), x | bias, mask
        yield f"Attention, dropout{where}", Attention(WIDTH, HEADS, dropout=0.4, tile=tile), x, key
        everything = Attention(WIDTH, HEADS, kv_heads=2, pattern=CAUSAL, dropout=0.3, tile=tile)
        yield f"Attention, everything{where}", everything, x | bias, mask | key
        yield f"Attention, no example{where}", Attention(WIDTH, HEADS, tile=tile), {"x": normal((0, 4, WIDTH))}, {}
    fixed = Attention(WIDTH, HEADS, learned_bias=False)
    yield "Attention, fixed bias", fixed, x, {"bias": ops.alibi_bias(HEADS, np.arange(4), np.arange(4))}


def rotary_and_cross_layers(normal: Normal) -> Iterator[Recipe]:
    """Attention that turns queries and keys, and attention over a memory."""
    x = {"x": normal((2, 4, WIDTH))}
    for pairing in ("halves", "interleaved"):
        layer = Attention(WIDTH, 2, kv_heads=1, pairing=pairing)
        yield f"Attention, rotary, {pairing}", layer, x, {"rotation": ops.rotary_angles(np.arange(4), 4)}
    own = RotaryPositions(2).rotation(np.array([[0, 1, 2, 3], [0, 0, 0, 1]]))
    yield "Attention, rotary, own positions", Attention(WIDTH, HEADS, pattern=CAUSAL), x, {"rotation": own}

    crossed = {"x": normal((2, 3, WIDTH)), "memory": normal((2, 4, WIDTH))}
    mask = {"mask": PADDING[:, None, :]}
    for tile in (None, 2):
        where = "" if tile is None else ", tiled"
        yield f"Attention, cross{where}", Attention(WIDTH, HEADS, tile=tile), crossed, {}
        grouped = Attention(WIDTH, HEADS, kv_heads=2, dropout=0.3, tile=tile)
        settings = {**mask, "key": ops.new_key(1)}
        yield f"Attention, cross, padding, groups, dropout{where}", grouped, crossed, settings
    biased = crossed | {"bias": normal((HEADS, 1, 4))}
    yield "Attention, cross, bias per key", Attention(WIDTH, HEADS), biased, mask
    one = {"x": normal((1, WIDTH)), "memory": normal((1, WIDTH))}
    yield "Attention, cross, unbatched, one token", Attention(WIDTH, HEADS), one, {}


def block_layers(normal: Normal) -> Iterator[Recipe]:
    """The block: norm before or after, with and without a memory, dropout and bias."""
    x = {"x": normal((2, 4, WIDTH))}
    memory = {"memory": normal((2, 3, WIDTH))}
    mask = {"mask": PADDING[:, None, :]}
    key = {"key": ops.new_key(2)}
    source = {"memory_mask": np.array([[True, True, False], [True, True, True]])[:, None, :]}
    norms: tuple[Norm, ...] = (LayerNorm(WIDTH), RMSNorm(WIDTH))
    for place in ("pre", "post"):
        for norm in norms:
            which = type(norm).__name__
            yield f"Block, {place}, {which}", _block(norm, place), x, mask
            yield f"Block, {place}, {which}, cross", _block(norm, place, cross=True), x | memory, mask | source
        dropping = _block(LayerNorm(WIDTH), place, cross=True, dropout=0.3)
        yield f"Block, {place}, dropout", dropping, x | memory, mask | source | key
    biased = x | {"bias": normal((HEADS, 4, 4))}
    yield "Block, bias", _block(RMSNorm(WIDTH), "pre"), biased, {}
    yield "Block, rotary", _block(RMSNorm(WIDTH), "pre"), x, {"rotation": ops.rotary_angles(np.arange(4), 2)}
    yield "Block, unbatched, one token", _block(LayerNorm(WIDTH), "post"), {"x": normal((1, WIDTH))}, {}
    yield "Block, no example", _block(LayerNorm(WIDTH), "pre"), {"x": normal((0, 4, WIDTH))}, {}


def other_block_layers(normal: Normal) -> Iterator[Recipe]:
    """Blocks whose sublayers stand side by side, and blocks of attention alone."""
    x, memory = {"x": normal((2, 4, WIDTH))}, {"memory": normal((2, 3, WIDTH))}
    bias, key = {"bias": normal((HEADS, 4, 4))}, {"key": ops.new_key(2)}
    for form in (Parallel, AttentionOnly):
        name = form.__name__
        for norm in (LayerNorm(WIDTH), NoNorm(WIDTH)):
            which = type(norm).__name__
            yield f"{name}, {which}", _block(norm, "pre", form=form), x, {"mask": PADDING[:, None, :]}
        yield f"{name}, bias", _block(RMSNorm(WIDTH), "pre", form=form), x | bias, {}
        crossed = _block(LayerNorm(WIDTH), "pre", form=form, cross=True, dropout=0.3)
        yield f"{name}, cross, dropout", crossed, x | memory, key
        yield f"{name}, rotary", _block(NoNorm(WIDTH), "pre", form=form), x, {"rotation": _turned(4)}
    yield "AttentionOnly, post", _block(LayerNorm(WIDTH), "post", form=AttentionOnly), x, {}
    yield "Parallel, no example", _block(LayerNorm(WIDTH), "pre", form=Parallel), {"x": normal((0, 4, WIDTH))}, {}


def _turned(length: int) -> tuple[Array, Array]:
    return ops.rotary_angles(np.arange(length), 2)


def residual_layers(normal: Normal) -> Iterator[Recipe]:
    """One sublayer with its norm before or after the sum, with and without dropout."""
    x, inner = {"x": normal((2, 3, WIDTH))}, FeedForward(WIDTH, HIDDEN)
    for place in ("pre", "post"):
        residual = Residual("feed_forward", inner, LayerNorm(WIDTH), place, dropout=0.3)
        yield f"Residual, {place}", residual, x, {}
        yield f"Residual, {place}, dropout", residual, x, {"key": ops.new_key(2)}


def stack_layers(normal: Normal) -> Iterator[Recipe]:
    """Two blocks with each kind of positions; the memory and the learned bias collect from both."""
    x = {"x": normal((2, 4, WIDTH))}
    memory = {"memory": normal((2, 3, WIDTH))}
    mask = {"mask": PADDING[:, None, :]}
    norm = LayerNorm(WIDTH)
    relative = RelativePositions(HEADS, 8, 4)
    for tile in (None, 3):
        where = "" if tile is None else ", tiled"
        plain, fixed = _block(norm, "pre", tile=tile), _block(norm, "pre", tile=tile, learned_bias=False)
        yield f"Stack, relative{where}", Stack(plain, 2, norm, relative), x, mask
        yield f"Stack, ALiBi{where}", Stack(fixed, 2, norm, AlibiPositions(HEADS)), x, mask
        yield f"Stack, rotary{where}", Stack(plain, 2, norm, RotaryPositions(2)), x, mask
    rotary = Stack(_block(norm, "pre"), 2, None, RotaryPositions(2, 50.0, RotaryScaling(4.0, 1.0, 3.0, 8)))
    yield "Stack, rotary, own positions", rotary, x, {"positions": np.array([[0, 1, 2, 3], [0, 0, 5, 6]])}
    yield "Stack, no positions", Stack(_block(norm, "post"), 2), x, mask
    crossed = Stack(_block(norm, "pre", cross=True, dropout=0.2), 2, norm, relative)
    yield "Stack, cross, dropout", crossed, x | memory, {"key": ops.new_key(4)}
    yield "Stack, unbatched", Stack(_block(RMSNorm(WIDTH), "pre"), 1, RMSNorm(WIDTH)), {"x": normal((3, WIDTH))}, {}
    yield "Stack, no example", Stack(_block(norm, "pre"), 2, norm, relative), {"x": normal((0, 4, WIDTH))}, {}


def _block(
    norm: Norm, place: str, *, form: type[Block] = Block, cross: bool = False, dropout: float = 0.0, **settings: Any
) -> Block:
    attention = Attention(WIDTH, HEADS, pattern=CAUSAL, dropout=dropout, **settings)
    memory = Attention(WIDTH, HEADS, dropout=dropout) if cross else None
    # The activation of the models that tasks train; `feed_forward_layers` has all of them.
    return form(attention, FeedForward(WIDTH, HIDDEN, "gelu_tanh"), norm, memory, place, dropout)


def embedding_layers(normal: Normal) -> Iterator[Recipe]:
    """From ids to vectors; ids repeat."""
    ids = np.array([[1, 4, 1, 0], [1, 1, 4, 2]])
    tokens = Embedding(5, WIDTH)
    yield "Embedding, repeated ids", tokens, {}, {"ids": ids}
    yield "Embedding, scaled", Embedding(5, WIDTH, scale=WIDTH**0.5), {}, {"ids": ids}
    yield "Embedding, one id", tokens, {}, {"ids": np.array(3)}
    yield "Embedding, no example", tokens, {}, {"ids": ids[:0]}
    for positions in ("learned", "sinusoidal", "none"):
        layer = InputEmbedding(tokens, 6, positions)
        yield f"InputEmbedding, {positions}", layer, {}, {"ids": ids}
    own = {"ids": ids, "positions": np.array([[0, 1, 2, 3], [0, 0, 0, 1]])}
    yield "InputEmbedding, own positions", InputEmbedding(tokens, 6), {}, own
    norm = RMSNorm(WIDTH)
    everything = InputEmbedding(Embedding(5, WIDTH, 2.0), 6, segments=2, norm=LayerNorm(WIDTH), dropout=0.3)
    settings = {"ids": ids, "segments": np.array([[0, 0, 1, 1], [0, 1, 1, 1]]), "key": ops.new_key(6)}
    yield "InputEmbedding, segments, norm, dropout", everything, {}, settings
    yield "InputEmbedding, one segment for all", InputEmbedding(tokens, 6, segments=2, norm=norm), {}, {"ids": ids}
    yield "InputEmbedding, unbatched", InputEmbedding(tokens, 6), {}, {"ids": ids[0]}
    yield "InputEmbedding, no example", InputEmbedding(tokens, 6), {}, {"ids": ids[:0]}


def head_and_position_layers(normal: Normal) -> Iterator[Recipe]:
    """From vectors to logits, and learned biases by distance."""
    x, table = {"x": normal((2, 3, WIDTH))}, {"table": normal((5, WIDTH))}
    yield "TokenHead, tied", TokenHead(WIDTH, 5), x | table, {}
    yield "TokenHead, tied, scaled, bias", TokenHead(WIDTH, 5, bias=True, scale=0.25), x | table, {}
    yield "TokenHead, free", TokenHead(WIDTH, 5, tied=False), x, {}
    yield "TokenHead, free, bias", TokenHead(WIDTH, 5, tied=False, bias=True), x, {}
    transform = TokenHead(WIDTH, 5, bias=True, transform=LayerNorm(WIDTH), scale=2.0)
    yield "TokenHead, transform", transform, x | table, {}
    free = TokenHead(WIDTH, 5, tied=False, transform=RMSNorm(WIDTH), activation="silu")
    yield "TokenHead, transform, free", free, x, {}
    yield "TokenHead, one vector", TokenHead(WIDTH, 5), {"x": normal(WIDTH)} | table, {}
    yield "TokenHead, no example", TokenHead(WIDTH, 5), {"x": normal((0, 3, WIDTH))} | table, {}
    for bidirectional in (True, False):
        layer = RelativePositions(HEADS, 8, 5, bidirectional)
        yield f"RelativePositions, {'both sides' if bidirectional else 'past'}", layer, {}, _places(7)
    yield "RelativePositions, one token", RelativePositions(HEADS, 4), {}, _places(1)


def own_layers(normal: Normal) -> Iterator[Recipe]:
    """Registered norms and blocks."""
    for name, make in registry.own("norm").items():
        yield name, make(4, 1e-5), {"x": normal((2, 3, 4))}, {}
    for name, form in registry.own("block").items():
        block = _block(LayerNorm(WIDTH), "pre", form=form)
        yield name, block, {"x": normal((2, 4, WIDTH))}, {"mask": PADDING[:, None, :]}


SOURCES: tuple[Callable[[Normal], Iterator[Recipe]], ...] = (
    simple_layers, feed_forward_layers, attention_layers, rotary_and_cross_layers, block_layers, other_block_layers,
    residual_layers, stack_layers, embedding_layers, head_and_position_layers, own_layers,
)  # fmt: skip


def _places(length: int) -> dict[str, Array]:
    """Every position of a sequence as a query and as a key."""
    return {"rows": np.arange(length), "columns": np.arange(length)}
