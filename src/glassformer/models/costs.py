"""Costs of a model before anything is allocated: parameters, arithmetic and memory."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..core.arrays import Tree
from ..core.execution import PLAIN, Execution
from ..core.format import bytes_text, count_text, flops_text
from ..core.settings import check_count, check_known
from ..core.show import Result
from ..core.tree import flatten, named_leaves
from . import build

ITEMSIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
MEMORY = ("weights", "gradients", "optimizer", "activations", "training", "kv_cache")
"""Kinds of memory: fields of `Costs`."""
MOST_ROWS, MOST_BYTES = 64, 1 << 30
"""Limits of a batch that is read without training: sequences, and bytes of the activation record."""
LEAST_TOKENS, MOST_PADDING = 512, 1 / 16
"""Of a batch of about the same length: so much work before one ends because the next sequence is shorter by this."""
"""The title, the columns and the rows of a table; a column of numbers begins with ">"."""


@dataclass(frozen=True, repr=False)
class Costs:
    """Costs of a model: to hold, to run and to train on `batch` sequences of `length` tokens.

    Memory is in bytes. The optimizer is Adam in float32 (two moments per parameter). A FLOP is one addition or one
    multiplication in a matrix product; an encoder-decoder reads a source as long as its target.
    """

    config: TransformerConfig
    dtype: str
    parts: dict[str, int]  # parameters of each part
    parameters: int
    estimate: int  # 12 · L · D², the rule of thumb for the blocks
    batch: int
    length: int
    flops_forward: int  # per token
    flops_training: int  # per token: the backward pass costs twice the forward pass
    weights: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int

    @property
    def training(self) -> int:
        """Memory while training: weights, gradients, optimizer and activations."""
        return self.weights + self.gradients + self.optimizer + self.activations

    def tables(self) -> tuple[Result, Result]:
        """Return the parameters of each part, and what running and training need, as they are printed."""
        c = self.config
        parts = [(name, f"{number:,}", f"{number / self.parameters:.1%}") for name, number in self.parts.items()]
        parts += [
            ("total", f"{self.parameters:,}", count_text(self.parameters)),
            ("12 · L · D² (blocks only)", f"{self.estimate:,}", f"{self.estimate / self.parameters:.1%}"),
        ]
        labels = {"optimizer": "optimizer (Adam, float32)", "training": "training in all", "kv_cache": "KV cache"}
        needs = [
            ("forward pass, per token", flops_text(self.flops_forward)),
            ("training, per token", flops_text(self.flops_training)),
            *((labels.get(name, name), bytes_text(getattr(self, name))) for name in MEMORY),
        ]
        title = f"{c.architecture}, layers {c.layers:,}, width {c.width:,}, heads {c.heads:,}"
        below = f"batch {self.batch:,}, length {self.length:,}, {self.dtype}"
        return Result(title, ("part", ">parameters", ">share"), parts), Result(below, ("for", ">needs"), needs)

    def __repr__(self) -> str:
        lines = []
        for table in self.tables():
            cells = (f"  {name:<28}{'  '.join(f'{cell:>18}' for cell in row)}" for name, *row in table.rows)
            lines += [table.title, *cells]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables())


def costs(
    config: TransformerConfig,
    *,
    batch: int = 1,
    length: int | None = None,
    dtype: str = "float32",
    execution: Execution = PLAIN,
) -> Costs:
    """Count everything for a config; `dtype` is that of weights and activations."""
    check_known("there is no dtype", dtype, ITEMSIZES)
    check_count("batch", batch, least=1)
    if length is not None:
        check_count("length", length, least=1, most=config.context)
    length, itemsize = config.context if length is None else length, ITEMSIZES[dtype]
    parts = parameters_by_part(config)
    parameters = sum(parts.values())
    flops = flops_per_token(config, length)
    return Costs(
        config=config,
        dtype=dtype,
        parts=parts,
        parameters=parameters,
        estimate=12 * (config.layers + getattr(config, "encoder_depth", 0)) * config.width**2,
        batch=batch,
        length=length,
        flops_forward=flops,
        flops_training=3 * flops,
        weights=parameters * itemsize,
        gradients=parameters * itemsize,
        optimizer=2 * 4 * parameters,
        activations=activation_bytes(config, batch, length, itemsize, execution=execution),
        kv_cache=kv_cache_bytes(config, batch, length, itemsize),
    )


def parameters_by_part(config: TransformerConfig) -> dict[str, int]:
    """Count parameters, the blocks of a stack taken together: "blocks.attention", "embedding.tokens", …"""
    parts: dict[str, int] = {}
    for name, spec in named_leaves(build(config).specs()):
        steps = [step for step in name.split(".") if not step.isdigit()]
        outside = 2 if steps[0] in ("embedding", "source_embedding") else 1
        part = ".".join(steps[: steps.index("blocks") + 2 if "blocks" in steps else outside])
        parts[part] = parts.get(part, 0) + math.prod(spec.shape)
    return parts


def flops_per_token(config: TransformerConfig, length: int) -> int:
    """Count the FLOPs of the forward pass per token of a sequence of `length`.

    2 per weight of every matrix, and 4 · keys · H · C per attention: scores, then the mixture of values. The keys are
    as many as a token sees at most: all of the length, though causal tokens see half of it on average, or those that a
    window or a stride lets it see.
    """
    specs = named_leaves(build(config).specs())
    # Tables that are only looked up enter no matrix product.
    matrices = [spec.shape for name, spec in specs if len(spec.shape) == 2 and not name.endswith("table")]
    products = sum(2 * math.prod(shape) for shape in matrices)
    if config.tied_head and not (isinstance(config, EncoderConfig) and config.head != "tokens"):
        products += 2 * config.vocab * config.width
    if config.block == "feed_forward_only":
        return products
    causal = not isinstance(config, EncoderConfig)
    keys = config.layers * _keys_seen(config, length, causal=causal)
    if isinstance(config, EncoderDecoderConfig):
        keys += config.encoder_depth * _keys_seen(config, length, causal=False)
        keys += config.layers * length  # all of the source, by every block of the decoder
    return products + 4 * keys * config.heads * config.channels


def kv_cache_bytes(config: TransformerConfig, batch: int, length: int, itemsize: int = 4) -> int:
    """Return the memory for the keys and values that decoding remembers; none where nothing is."""
    if isinstance(config, EncoderConfig) or config.block == "feed_forward_only":
        return 0
    kept = length if config.window is None else min(length, config.window)
    if isinstance(config, EncoderDecoderConfig):
        kept += length  # the keys and values of the source
    return 2 * config.layers * config.key_heads * config.channels * kept * batch * itemsize


def _keys_seen(config: TransformerConfig, length: int, *, causal: bool) -> int:
    """Return how many keys a token sees at most, itself included: on one side of it, or on both."""
    both = (lambda size: size) if causal else (lambda size: 2 * size - 1)
    within = length if config.window is None else min(length, both(config.window))
    if config.stride is None:
        return within
    return min(within, both(config.stride) + (within - 1) // config.stride)  # its neighbors, and every stride-th beyond


# --- the record of a forward pass -------------------------------------------------------------------------------------


def activation_bytes(
    config: TransformerConfig, batch: int, length: int, itemsize: int = 4, *, execution: Execution = PLAIN
) -> int:
    """Return the memory of everything that training on `batch` sequences of `length` records for the backward pass.

    Token ids and masks given from outside are left out; an encoder-decoder reads a source as long as its target.
    A model that computes in half precision has numbers of two bytes, but for statistics and tables, which keep
    `itemsize`. With remat, the record of one block is counted as well: it is there while that block runs again.
    """
    model = build(config, execution)
    shapes = [model.record_shapes((batch, length))]
    if execution.remat:
        shapes.append(model.stacks[-1].block.record_shapes(model.stream_shape((batch, length))))
    return record_bytes(shapes, itemsize, execution)


def record_bytes(shapes: Tree, itemsize: int, execution: Execution) -> int:
    """Return the memory of arrays of these shapes, where a number of the parameters has `itemsize` bytes."""
    sizes = {"compute": itemsize if execution.half is None else 2, "params": itemsize, "bool": 1}
    return sum(sizes[array.dtype] * math.prod(array.shape) for array in flatten(shapes).values())


def rows_at_once(config: TransformerConfig, length: int) -> int:
    """Return how many sequences of `length` tokens are read together where nothing is trained."""
    # Logits, their exponentials and what they are compared with, beside the record; eight bytes suit every type.
    logits = 0 if isinstance(config, EncoderConfig) and config.head != "tokens" else 3 * 8 * length * config.vocab
    return max(1, min(MOST_ROWS, MOST_BYTES // (activation_bytes(config, 1, length, 8) + logits)))


def length_batches(lengths: Sequence[int], config: TransformerConfig) -> Iterator[list[int]]:
    """Yield the numbers of sequences to read together: those of about the same length.

    Short and long batches take turns, so that those done tell how long the rest will take.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    batches, start = [], 0
    while start < len(order):
        longest = max(1, min(lengths[order[start]], config.context))
        rows, enough = order[start : start + rows_at_once(config, longest)], -(-LEAST_TOKENS // longest)
        alike = sum(lengths[row] >= (1 - MOST_PADDING) * longest for row in rows)
        batches.append(rows[: max(alike, enough)])
        start += len(batches[-1])
    random.Random(0).shuffle(batches)
    yield from batches
