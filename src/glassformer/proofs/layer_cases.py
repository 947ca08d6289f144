"""Every layer with the inputs and settings under which its gradients are proved.

All of a layer moves at once: its parameters and whatever else it reads that has a gradient (x, memory, bias, table).
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import layers, ops
from ..config import RotaryScaling
from ..core import registry
from ..core.arrays import Array
from ..layers import Attention, Embedding, FeedForward, InputEmbedding, LayerNorm, Linear, RMSNorm, Stack, TokenHead
from ..ops import CAUSAL, Pattern
from .case import LayerCase, scattered

WIDTH, HEADS, HIDDEN = 8, 4, 5
PADDING = np.array([[True, True, True, False], [True, False, False, False]])  # of two sequences of four tokens
MASK = {"mask": PADDING[:, None, :]}
TILES = {"": None, ", tiled": 3}

Recipe = tuple[str, layers.Layer, dict[str, Array], dict[str, Any]]
"""The name of a case, its layer, what it reads that has a gradient, and settings without one."""
Normal = Callable[..., Array]


def layer_cases() -> list[LayerCase]:
    """Return all cases of all layers, made afresh."""
    rng = np.random.default_rng(0)
    recipes = (recipe for source in SOURCES for recipe in source(rng.standard_normal))
    return [LayerCase(name, layer, scattered(layer, rng), *rest) for name, layer, *rest in recipes]


def simple_layers(normal: Normal) -> Iterator[Recipe]:
    """Maps, norms and feed-forward layers, with and without what is optional."""
    for what, lead in {"one vector": (), "rows": (3,), "batch": (2, 2), "no example": (0, 3)}.items():
        x = {"x": normal((*lead, 4))}
        for layer in (Linear(4, 3), LayerNorm(4), RMSNorm(4), layers.NoNorm(4), FeedForward(4, HIDDEN)):
            yield f"{type(layer).__name__}, {what}", layer, x, {}
    x = {"x": normal((2, 3, 4))}
    yield "Linear, no bias", Linear(4, 3, bias=False), x, {}
    yield "LayerNorm, no shift", LayerNorm(4, bias=False), x, {}
    # Inputs this small let eps decide the root.
    yield "LayerNorm, large eps", LayerNorm(4, eps=1e-2), {"x": 0.1 * x["x"]}, {}
    yield "RMSNorm, large eps", RMSNorm(4, eps=1e-2), {"x": 0.1 * x["x"]}, {}
    for gated in (False, True):
        for name in ops.ACTIVATIONS:
            yield f"FeedForward, {name}{', gated' * gated}", FeedForward(4, HIDDEN, name, gated), x, {}
        yield f"FeedForward, no bias{', gated' * gated}", FeedForward(4, HIDDEN, gated=gated, bias=False), x, {}


def attention_layers(normal: Normal) -> Iterator[Recipe]:
    """Self-attention in all its kinds."""
    x, bias, key = {"x": normal((2, 4, WIDTH))}, {"bias": normal((HEADS, 4, 4))}, {"key": ops.new_key(5)}
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
    blind = {"mask": PADDING[:, None, :] & (np.arange(4) > 0)[:, None]}
    everything = {"kv_heads": 2, "pattern": CAUSAL, "dropout": 0.3}
    both: dict[str, tuple[dict[str, Any], dict[str, Array], dict[str, Any]]] = {
        "causal": ({"pattern": CAUSAL}, x, {}),
        "window": ({"pattern": Pattern(causal=True, window=2)}, x, MASK),
        "stride": ({"pattern": Pattern(stride=2)}, x, {}),
        "padding": ({}, x, MASK),
        "a query that sees nothing": ({}, x, blind),
        "bias": ({}, x | bias, MASK),
        "dropout": ({"dropout": 0.4}, x, key),
        "everything": (everything, x | bias, MASK | key),
        "no example": ({}, {"x": normal((0, 4, WIDTH))}, {}),
    }
    for where, tile in TILES.items():
        for what, (settings, inputs, others) in both.items():
            yield f"Attention, {what}{where}", Attention(WIDTH, HEADS, tile=tile, **settings), inputs, others
    fixed = Attention(WIDTH, HEADS, learned_bias=False)
    yield "Attention, fixed bias", fixed, x, {"bias": ops.alibi_bias(HEADS, np.arange(4), np.arange(4))}


def rotary_and_cross_layers(normal: Normal) -> Iterator[Recipe]:
    """Attention that turns queries and keys, and attention over a memory."""
    x = {"x": normal((2, 4, WIDTH))}
    for pairing in ("halves", "interleaved"):
        layer = Attention(WIDTH, 2, kv_heads=1, pairing=pairing)
        yield f"Attention, rotary, {pairing}", layer, x, {"rotation": ops.rotary_angles(np.arange(4), 4)}
    own = layers.RotaryPositions(2).rotation(np.array([[0, 1, 2, 3], [0, 0, 0, 1]]))
    yield "Attention, rotary, own positions", Attention(WIDTH, HEADS, pattern=CAUSAL), x, {"rotation": own}
    crossed = {"x": normal((2, 3, WIDTH)), "memory": normal((2, 4, WIDTH))}
    for where, tile in TILES.items():
        yield f"Attention, cross{where}", Attention(WIDTH, HEADS, tile=tile), crossed, {}
        grouped = Attention(WIDTH, HEADS, kv_heads=2, dropout=0.3, tile=tile)
        settings = {**MASK, "key": ops.new_key(1)}
        yield f"Attention, cross, padding, groups, dropout{where}", grouped, crossed, settings
    biased = crossed | {"bias": normal((HEADS, 1, 4))}
    yield "Attention, cross, bias per key", Attention(WIDTH, HEADS), biased, MASK
    single = {"x": normal((1, WIDTH)), "memory": normal((1, WIDTH))}
    yield "Attention, cross, unbatched, one token", Attention(WIDTH, HEADS), single, {}


def block_layers(normal: Normal) -> Iterator[Recipe]:
    """Blocks: norm before or after, sublayers one after the other or side by side, one of them alone; residuals."""
    x, memory, bias = {"x": normal((2, 4, WIDTH))}, {"memory": normal((2, 3, WIDTH))}, {"bias": normal((HEADS, 4, 4))}
    key, rotation = {"key": ops.new_key(2)}, {"rotation": ops.rotary_angles(np.arange(4), 2)}
    source = {"memory_mask": np.array([[True, True, False], [True, True, True]])[:, None, :]}
    for position in ("pre", "post"):
        for norm in (LayerNorm(WIDTH), RMSNorm(WIDTH)):
            which = type(norm).__name__
            yield f"Block, {position}, {which}", _block(norm, position), x, MASK
            yield f"Block, {position}, {which}, cross", _block(norm, position, cross=True), x | memory, MASK | source
        dropping = _block(LayerNorm(WIDTH), position, cross=True, dropout=0.3)
        yield f"Block, {position}, dropout", dropping, x | memory, MASK | source | key
        residual = layers.Residual("feed_forward", FeedForward(WIDTH, HIDDEN), LayerNorm(WIDTH), position, dropout=0.3)
        yield f"Residual, {position}", residual, x, {}
        yield f"Residual, {position}, dropout", residual, x, key
        direct = layers.Direct("feed_forward", FeedForward(WIDTH, HIDDEN), LayerNorm(WIDTH), position, dropout=0.3)
        yield f"Direct, {position}, dropout", direct, x, key
    yield "Block, unbatched, one token", _block(LayerNorm(WIDTH), "post"), {"x": normal((1, WIDTH))}, {}
    for part in (layers.AttentionOnly, layers.FeedForwardOnly, layers.NoResidual):
        yield f"{part.__name__}, post", _block(LayerNorm(WIDTH), "post", part), x, {}
    crossed = _block(LayerNorm(WIDTH), form=layers.NoResidual, cross=True, dropout=0.3)
    yield "NoResidual, cross, dropout", crossed, x | memory, MASK | key
    for form in (layers.Block, layers.Parallel, layers.AttentionOnly):
        name = form.__name__
        yield f"{name}, LayerNorm", _block(LayerNorm(WIDTH), form=form), x, MASK
        yield f"{name}, NoNorm", _block(layers.NoNorm(WIDTH), form=form), x, MASK
        yield f"{name}, bias", _block(RMSNorm(WIDTH), form=form), x | bias, {}
        crossed = _block(LayerNorm(WIDTH), form=form, cross=True, dropout=0.3)
        yield f"{name}, cross, dropout", crossed, x | memory, key
        yield f"{name}, rotary", _block(RMSNorm(WIDTH), form=form), x, rotation
        yield f"{name}, no example", _block(LayerNorm(WIDTH), form=form), {"x": normal((0, 4, WIDTH))}, {}


def stack_layers(normal: Normal) -> Iterator[Recipe]:
    """Two blocks with each kind of positions; the memory and the learned bias collect from both."""
    x, memory = {"x": normal((2, 4, WIDTH))}, {"memory": normal((2, 3, WIDTH))}
    norm, relative = LayerNorm(WIDTH), layers.RelativePositions(HEADS, 8, 4)
    for where, tile in TILES.items():
        plain, fixed = _block(norm, tile=tile), _block(norm, tile=tile, learned_bias=False)
        yield f"Stack, relative{where}", Stack(plain, 2, norm, relative), x, MASK
        yield f"Stack, ALiBi{where}", Stack(fixed, 2, norm, layers.AlibiPositions(HEADS)), x, MASK
        yield f"Stack, rotary{where}", Stack(plain, 2, norm, layers.RotaryPositions(2)), x, MASK
    stretched = layers.RotaryPositions(2, 50.0, RotaryScaling(4.0, 1.0, 3.0, 8))
    own = {"positions": np.array([[0, 1, 2, 3], [0, 0, 5, 6]])}
    yield "Stack, rotary, own positions", Stack(_block(norm), 2, None, stretched), x, own
    yield "Stack, no positions", Stack(_block(norm, "post"), 2), x, MASK
    crossed = Stack(_block(norm, cross=True, dropout=0.2), 2, norm, relative)
    yield "Stack, cross, dropout", crossed, x | memory, {"key": ops.new_key(4)}
    yield "Stack, unbatched", Stack(_block(RMSNorm(WIDTH)), 1, RMSNorm(WIDTH)), {"x": normal((3, WIDTH))}, {}
    yield "Stack, no example", Stack(_block(norm), 2, norm, relative), {"x": normal((0, 4, WIDTH))}, {}


def _block(
    norm: layers.Norm,
    norm_position: str = "pre",
    form: type[layers.Block] = layers.Block,
    *,
    cross: bool = False,
    dropout: float = 0.0,
    **settings: Any,
) -> layers.Block:
    attention = Attention(WIDTH, HEADS, pattern=CAUSAL, dropout=dropout, **settings)
    memory = Attention(WIDTH, HEADS, dropout=dropout) if cross else None
    # The activation of the models that tasks train; `simple_layers` has all of them.
    return form(attention, FeedForward(WIDTH, HIDDEN, "gelu_tanh"), norm, memory, norm_position, dropout)


def embedding_layers(normal: Normal) -> Iterator[Recipe]:
    """From ids to vectors; ids repeat."""
    ids = np.array([[1, 4, 1, 0], [1, 1, 4, 2]])
    tokens = Embedding(5, WIDTH)
    yield "Embedding, repeated ids", tokens, {}, {"ids": ids}
    yield "Embedding, scaled", Embedding(5, WIDTH, scale=WIDTH**0.5), {}, {"ids": ids}
    yield "Embedding, one id", tokens, {}, {"ids": np.array(3)}
    yield "Embedding, no example", tokens, {}, {"ids": ids[:0]}
    for positions in ("learned", "sinusoidal", "none"):
        yield f"InputEmbedding, {positions}", InputEmbedding(tokens, 6, positions), {}, {"ids": ids}
    own = {"ids": ids, "positions": np.array([[0, 1, 2, 3], [0, 0, 0, 1]])}
    yield "InputEmbedding, own positions", InputEmbedding(tokens, 6), {}, own
    everything = InputEmbedding(Embedding(5, WIDTH, 2.0), 6, segments=2, norm=LayerNorm(WIDTH), dropout=0.3)
    settings = {"ids": ids, "segments": np.array([[0, 0, 1, 1], [0, 1, 1, 1]]), "key": ops.new_key(6)}
    yield "InputEmbedding, segments, norm, dropout", everything, {}, settings
    one = InputEmbedding(tokens, 6, segments=2, norm=RMSNorm(WIDTH))
    yield "InputEmbedding, one segment for all", one, {}, {"ids": ids}
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
    for what, length, settings in (("both sides", 7, (8, 5, True)), ("past", 7, (8, 5, False)), ("one token", 1, (4,))):
        positions = {"rows": np.arange(length), "columns": np.arange(length)}
        yield f"RelativePositions, {what}", layers.RelativePositions(HEADS, *settings), {}, positions


def own_layers(normal: Normal) -> Iterator[Recipe]:
    """Registered norms and blocks."""
    for name, make in registry.own("norm").items():
        yield name, make(4, 1e-5), {"x": normal((2, 3, 4))}, {}
    for name, form in registry.own("block").items():
        yield name, _block(LayerNorm(WIDTH), form=form), {"x": normal((2, 4, WIDTH))}, MASK


SOURCES: tuple[Callable[[Normal], Iterator[Recipe]], ...] = (
    simple_layers, attention_layers, rotary_and_cross_layers, block_layers, stack_layers, embedding_layers,
    head_and_position_layers, own_layers,
)  # fmt: skip
