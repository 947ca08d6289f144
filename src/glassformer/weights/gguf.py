"""GGUF files, as llama.cpp reads them: one file with settings, tokenizer and weights, most often quantized.

model = open_gguf("SmolLM2-135M-Instruct.Q4_1.gguf")
logits, saved = build(model.config).forward(model.params, tokens)
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..config import DecoderConfig
from ..errors import WeightsError
from ..models import build
from ..quantized import Quantized
from ..tree import flatten, unflatten
from .gguf_config import ROTATIONS, read_config, read_scaling
from .gguf_header import Header, Tensor, read_header
from .gguf_tokenizer import read_tokenizer
from .loaded import Loaded

TABLE = "embedding.tokens.table"
_WHOLE = {
    TABLE: "token_embd.weight",
    "embedding.positions.table": "position_embd.weight",
    "final_norm.gamma": "output_norm.weight",
    "final_norm.beta": "output_norm.bias",
    "head.w": "output.weight",
}
_PARTS = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.output": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}
_KINDS = {"w": "weight", "b": "bias", "gamma": "weight", "beta": "bias"}
_THIRDS = {"attention.query": 0, "attention.key": 1, "attention.value": 2}
_PLAIN = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


def open_gguf(path: str | Path, dtype: Any = np.float32, *, kept: Collection[str] = ()) -> Loaded:
    """Read a model from a GGUF file.

    Tensors that are stored in `dtype` stay in the file and are mapped into memory; quantized ones are turned into it,
    but for matrices of the types that are to be `kept` (see `quantized.KINDS`).
    """
    path = Path(path)
    header = read_header(path)
    try:
        return _open(path, header, np.dtype(dtype), kept)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error.fact}", hint=error.hint) from error


def read_tensor(content: Array, tensor: Tensor, dtype: Any = np.float32) -> Array:
    """Return one tensor out of the bytes of the file, in `dtype`: a view where it is stored like that."""
    raw = content[tensor.start : tensor.start + tensor.size]
    # Damaged numbers may be infinite: that is for whoever looks at them to see, not for NumPy to warn about.
    with np.errstate(all="ignore"):
        if tensor.type in _PLAIN:
            return raw.view(_PLAIN[tensor.type]).reshape(tensor.shape).astype(dtype, copy=False)
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        values = dequantize(raw.reshape(*tensor.shape[:-1], -1), GGMLQuantizationType[tensor.type])
        return values.astype(dtype, copy=False)


def _read_blocks(content: Array, tensor: Tensor, third: int | None) -> Quantized:
    """Return a matrix, or a third of its rows, in the blocks in which it is stored."""
    rows, columns = tensor.shape
    stored = content[tensor.start : tensor.start + tensor.size].reshape(rows, tensor.size // rows)
    return Quantized.of_rows(tensor.type, stored if third is None else np.split(stored, 3)[third], columns)


def _is_sound(content: Array, tensor: Tensor) -> bool:
    """Tell whether float16 numbers are finite, which products with them take for granted; blocks may be damaged."""
    if tensor.type != "F16":
        return True
    return bool(np.isfinite(content[tensor.start : tensor.start + tensor.size].view(np.float16)).all())


def _open(path: Path, header: Header, dtype: Any, kept: Collection[str]) -> Loaded:
    family, config = read_config(header)
    sources = _sources(config, header)
    content = np.memmap(path, mode="r").view(np.ndarray)
    if ROTATIONS in header.tensors:
        scaling = read_scaling(config, read_tensor(content, header.tensors[ROTATIONS]))
        config = config.replace(rotary_scaling=scaling)
    tokenizer, start_id, end_ids = read_tokenizer(header, vocab=config.vocab)
    return Loaded(
        config=config,
        params=_read_params(sources, content, dtype, kept, tied=config.tied_head),
        family=family,
        tokenizer=tokenizer,
        start_id=start_id,
        end_ids=end_ids,
        chat_template=tokenizer.chat_template,
        source=str(path),
    )


def _sources(config: DecoderConfig, header: Header) -> dict[str, tuple[Tensor, int | None]]:
    """Return the tensor of every parameter, and which third of it where one holds query, key and value together."""
    joined = "blk.0.attn_qkv.weight" in header.tensors
    sources: dict[str, tuple[Tensor, int | None]] = {}
    for name, spec in flatten(build(config).specs()).items():
        stored, third = _stored_name(name, joined)
        if stored not in header.tensors:
            raise WeightsError(f"tensor {stored!r} is missing", hint="the file is damaged, or not supported")
        tensor = header.tensors[stored]
        shape = spec.shape[::-1] if _is_turned(name) else spec.shape
        shape = shape if third is None else (3 * shape[0], *shape[1:])
        if tensor.shape != shape:
            raise WeightsError(
                f"tensor {stored!r} has shape {tensor.shape}, the settings ask for {shape}",
                hint="the file is damaged, or not supported",
            )
        sources[name] = (tensor, third)
    unused = header.tensors.keys() - {tensor.name for tensor, _ in sources.values()} - {ROTATIONS}
    if unused:
        raise WeightsError(f"tensor {min(unused)!r:.80} is not supported", hint="use another model")
    return sources


def _stored_name(name: str, joined: bool) -> tuple[str, int | None]:
    if name in _WHOLE:
        return _WHOLE[name], None
    _, layer, part = name.split(".", 2)
    part, kind = part.rsplit(".", 1)
    third = _THIRDS.get(part) if joined else None
    stored = _PARTS[part] if third is None else "attn_qkv"
    return f"blk.{layer}.{stored}.{_KINDS[kind]}", third


def _is_turned(name: str) -> bool:
    """Tell whether the file keeps a matrix as (outputs, inputs): all but tables."""
    return name.endswith(".w")


def _read_params(
    sources: dict[str, tuple[Tensor, int | None]], content: Array, dtype: Any, kept: Collection[str], *, tied: bool
) -> Tree:
    leaves: dict[str, Any] = {}
    joined: dict[str, Array] = {}
    for name, (tensor, third) in sources.items():
        values: Any
        if tensor.type in kept and (_is_turned(name) or name == TABLE) and _is_sound(content, tensor):
            values = _read_blocks(content, tensor, third)
        elif third is None:
            values = read_tensor(content, tensor, dtype)
        else:
            if tensor.name not in joined:
                joined[tensor.name] = read_tensor(content, tensor, dtype)
            values = np.split(joined[tensor.name], 3)[third]
        leaves[name] = values.T if _is_turned(name) else values
    params = unflatten(leaves)
    if tied:
        params["head"] = {}
    return params
