"""Models of llama2.c: seven numbers, then all weights in float32, one after the other.

    int32: width, feed-forward width, layers, heads, key/value heads, vocabulary, context
    a negative vocabulary says that the head has a matrix of its own, at the very end

The file has no names and no checksum: its length is the only thing that can be checked, and it is.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, Tree
from ..config import DecoderConfig
from ..errors import ConfigError, WeightsError
from ..text import Llama2cTokenizer
from ..text.llama2c import START
from .loaded import Loaded

HEADER = 7 * 4
_LATER_MAGIC = 0x616B3432
_LARGEST = 1 << 24


class _Sizes(NamedTuple):
    width: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    context: int


def open_llama2c(path: str | Path, tokenizer: str | Path | None = None) -> Loaded:
    """Read a model of llama2.c, mapped into memory.

    tokenizer    its tokenizer.bin; unless given, one that lies beside the model and fits: tok512.bin for a
                 vocabulary of 512, or tokenizer.bin

    Its texts begin after the start token, and the next start token ends them.
    """
    path = Path(path)
    sizes, tied = _read_sizes(path)
    config = _config(path, sizes, tied=tied)
    arrays = _cut(path, _shapes(sizes, tied=tied))
    return Loaded(
        config=config,
        params=_params(arrays, sizes, tied=tied),
        family="llama",
        tokenizer=_tokenizer(path, tokenizer, sizes.vocab),
        start_id=START,
        end_ids=(START,),
        source=str(path),
    )


def _read_sizes(path: Path) -> tuple[_Sizes, bool]:
    try:
        with path.open("rb") as file:
            numbers = np.frombuffer(file.read(HEADER), dtype="<i4")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is shorter than its header"
        raise WeightsError(f"{path} cannot be read: {reason}", hint="check the path") from None
    if len(numbers) == 7 and numbers[0] == _LATER_MAGIC:
        raise WeightsError(
            f"{path} is in a later format of llama2.c, of which only the first can be read",
            hint="export it again: python export.py --version 0",
        )
    sizes = [int(number) for number in numbers]
    if len(sizes) < 7 or not all(0 < abs(size) < _LARGEST for size in sizes) or min(sizes[:5] + sizes[6:]) < 0:
        raise WeightsError(f"{path} is no model of llama2.c: its sizes would be {sizes}", hint="check the file")
    tied = sizes[5] > 0
    sizes[5] = abs(sizes[5])
    return _Sizes(*sizes), tied


def _config(path: Path, sizes: _Sizes, *, tied: bool) -> DecoderConfig:
    try:
        return DecoderConfig(
            vocab=sizes.vocab,
            width=sizes.width,
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            layers=sizes.layers,
            context=sizes.context,
            feed_forward=sizes.hidden,
            norm="rms",
            norm_eps=1e-5,
            activation="silu",
            gated=True,
            positions="rotary",
            rotary_pairing="interleaved",
            attention_bias=False,
            feed_forward_bias=False,
            tied_head=tied,
        )
    except ConfigError as error:
        raise WeightsError(f"{path} is no model of llama2.c: {error.fact}", hint="check the file") from error


def _shapes(sizes: _Sizes, *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays in the order in which they stand in the file; matrices are (outputs, inputs)."""
    width, hidden, layers, heads, kv_heads, vocab, context = sizes
    channels = width // heads
    shared = kv_heads * channels
    shapes: dict[str, tuple[int, ...]] = {
        "tokens": (vocab, width),
        "attention_norm.gamma": (layers, width),
        "attention.query.w": (layers, width, width),
        "attention.key.w": (layers, shared, width),
        "attention.value.w": (layers, shared, width),
        "attention.output.w": (layers, width, width),
        "feed_forward_norm.gamma": (layers, width),
        "feed_forward.gate.w": (layers, hidden, width),
        "feed_forward.down.w": (layers, width, hidden),
        "feed_forward.up.w": (layers, hidden, width),
        "final_norm": (width,),
        "cosines": (context, channels // 2),
        "sines": (context, channels // 2),
    }
    return shapes if tied else {**shapes, "head": (vocab, width)}


def _cut(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return views of the mapped file, one for each array."""
    expected = HEADER + 4 * sum(math.prod(shape) for shape in shapes.values())
    size = path.stat().st_size
    if size != expected:
        raise WeightsError(
            f"{path} has {size:,} bytes, but its sizes ask for {expected:,}",
            hint="it is damaged or was not downloaded completely, or it is no model of llama2.c",
        )
    numbers = np.memmap(path, dtype="<f4", mode="r", offset=HEADER).view(np.ndarray)
    arrays, start = {}, 0
    for name, shape in shapes.items():
        arrays[name] = numbers[start : start + math.prod(shape)].reshape(shape)
        start += math.prod(shape)
    return arrays


def _params(arrays: dict[str, Array], sizes: _Sizes, *, tied: bool) -> Tree:
    blocks: list[Tree] = []
    for layer in range(sizes.layers):
        norms: dict[str, Any] = {
            name: {"gamma": arrays[f"{name}.gamma"][layer]} for name in ("attention_norm", "feed_forward_norm")
        }
        maps = {
            name: {part: {"w": arrays[f"{name}.{part}.w"][layer].T} for part in parts}
            for name, parts in (
                ("attention", ("query", "key", "value", "output")),
                ("feed_forward", ("gate", "up", "down")),
            )
        }
        names = ("attention_norm", "attention", "feed_forward_norm", "feed_forward")
        blocks.append({name: norms.get(name) or maps[name] for name in names})
    return {
        "embedding": {"tokens": {"table": arrays["tokens"]}},
        "blocks": blocks,
        "final_norm": {"gamma": arrays["final_norm"]},
        "head": {} if tied else {"w": arrays["head"].T},
    }


def _tokenizer(path: Path, given: str | Path | None, vocab: int) -> Llama2cTokenizer | None:
    if given is not None:
        tokenizer = Llama2cTokenizer.load(given)
        if tokenizer.size != vocab:
            raise WeightsError(
                f"{given} has {tokenizer.size:,} pieces, but {path} a vocabulary of {vocab:,}",
                hint="pass the tokenizer that the model was trained with",
            )
        return tokenizer
    for name in (f"tok{vocab}.bin", "tokenizer.bin"):
        if path.with_name(name).is_file():
            tokenizer = Llama2cTokenizer.load(path.with_name(name))
            if tokenizer.size == vocab:
                return tokenizer
    return None
