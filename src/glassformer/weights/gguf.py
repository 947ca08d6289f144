"""GGUF files, as llama.cpp reads them: one file with settings, tokenizer and weights, most often quantized.

model = open_gguf("SmolLM2-135M-Instruct.Q4_1.gguf")
logits, saved = build(model.config).forward(model.params, tokens)
"""

import functools
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..config import DecoderConfig
from ..errors import WeightsError
from ..models import build
from ..quantized import Quantized
from ..trained_model import TrainedModel
from ..tree import flatten, rebuilt
from .family import Names, PublishedTensor, published
from .gguf_blocks import dequantize
from .gguf_config import ROTATIONS, read_config, read_scaling
from .gguf_header import Header, TensorInfo, read_header
from .gguf_tokenizer import read_tokenizer

TABLE = "embedding.tokens.table"
NAMES: Names = {
    "embedding.tokens": "token_embd",
    "embedding.positions": "position_embd",
    "blocks.*.attention_norm": "blk.*.attn_norm",
    "blocks.*.attention.query": "blk.*.attn_q",
    "blocks.*.attention.key": "blk.*.attn_k",
    "blocks.*.attention.value": "blk.*.attn_v",
    "blocks.*.attention.output": "blk.*.attn_output",
    "blocks.*.feed_forward_norm": "blk.*.ffn_norm",
    "blocks.*.feed_forward.gate": "blk.*.ffn_gate",
    "blocks.*.feed_forward.up": "blk.*.ffn_up",
    "blocks.*.feed_forward.down": "blk.*.ffn_down",
    "final_norm": "output_norm",
    "head": "output",
}
# Some models have query, key and value in one matrix.
FUSED = NAMES | {f"blocks.*.attention.{part}": "blk.*.attn_qkv" for part in ("query", "key", "value")}
_PLAIN = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


def open_gguf(path: str | Path, dtype: Any = np.float32, *, kept: Collection[str] = ()) -> TrainedModel:
    """Read a model from a GGUF file.

    Tensors that are stored in `dtype` stay in the file and are mapped into memory; quantized ones are turned into it,
    but for matrices of the types that are to be `kept` (see `quantized.FORMS`).
    """
    path = Path(path)
    header = read_header(path)
    try:
        return _open(path, header, np.dtype(dtype), kept)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error.fact}", hint=error.hint) from error


def read_tensor(content: Array, tensor: TensorInfo, dtype: Any = np.float32) -> Array:
    """Return one tensor out of the bytes of the file, in `dtype`: a view where it is stored like that."""
    raw = content[tensor.start : tensor.start + tensor.size]
    # Damaged numbers may be infinite; NumPy need not warn about them.
    with np.errstate(all="ignore"):
        if tensor.type in _PLAIN:
            return raw.view(_PLAIN[tensor.type]).reshape(tensor.shape).astype(dtype, copy=False)
        return dequantize(raw, tensor.shape, tensor.type).astype(dtype, copy=False)


def _read_blocks(content: Array, tensor: TensorInfo, part: tuple[int, int] | None) -> Quantized:
    """Return a matrix, or some of its rows, in the blocks in which it is stored."""
    rows, columns = tensor.shape
    stored = content[tensor.start : tensor.start + tensor.size].reshape(rows, tensor.size // rows)
    return Quantized.of_rows(tensor.type, stored if part is None else np.split(stored, part[1])[part[0]], columns)


def _is_sound(content: Array, tensor: TensorInfo) -> bool:
    """Tell whether float16 numbers are finite, which products with them take for granted; blocks may be damaged."""
    if tensor.type != "F16":
        return True
    return bool(np.isfinite(content[tensor.start : tensor.start + tensor.size].view(np.float16)).all())


def _open(path: Path, header: Header, dtype: Any, kept: Collection[str]) -> TrainedModel:
    family, config = read_config(header)
    sources = _sources(config, header)
    content = np.memmap(path, mode="r").view(np.ndarray)
    if ROTATIONS in header.tensors:
        scaling = read_scaling(config, read_tensor(content, header.tensors[ROTATIONS]))
        config = config.replace(rotary_scaling=scaling)
    tokenizer, start_id, end_ids = read_tokenizer(header, vocab=config.vocab)
    return TrainedModel(
        config=config,
        params=_read_params(config, sources, content, dtype, kept),
        family=family,
        tokenizer=tokenizer,
        start_id=start_id,
        end_ids=end_ids,
        chat_template=tokenizer.chat_template,
        source=str(path),
    )


def _sources(config: DecoderConfig, header: Header) -> dict[str, tuple[TensorInfo, PublishedTensor]]:
    """Return the tensor of every parameter, and how it is stored there."""
    names = FUSED if "blk.0.attn_qkv.weight" in header.tensors else NAMES
    sources: dict[str, tuple[TensorInfo, PublishedTensor]] = {}
    for name, spec in flatten(build(config).specs()).items():
        place = published(names, name)
        stored, shape = place.name, place.published_shape(spec.shape)
        if stored not in header.tensors:
            raise WeightsError(f"tensor {stored!r} is missing", hint="the file is damaged, or not supported")
        tensor = header.tensors[stored]
        if tensor.shape != shape:
            fact = f"tensor {stored!r} has shape {tensor.shape}, the settings ask for {shape}"
            raise WeightsError(fact, hint="the file is damaged, or not supported")
        sources[name] = (tensor, place)
    unused = header.tensors.keys() - {tensor.name for tensor, _ in sources.values()} - {ROTATIONS}
    if unused:
        raise WeightsError(f"tensor {min(unused)!r:.80} is not supported", hint="use another model")
    return sources


def _read_params(
    config: DecoderConfig,
    sources: dict[str, tuple[TensorInfo, PublishedTensor]],
    content: Array,
    dtype: Any,
    kept: Collection[str],
) -> Tree:
    numbers = functools.cache(lambda tensor: read_tensor(content, tensor, dtype))
    leaves: dict[str, Any] = {}
    for name, (tensor, place) in sources.items():
        if tensor.type in kept and (place.transposed or name == TABLE) and _is_sound(content, tensor):
            blocks = _read_blocks(content, tensor, place.part)
            leaves[name] = blocks.T if place.transposed else blocks
        else:
            leaves[name] = place.read(numbers(tensor))
    return rebuilt(build(config).specs(), leaves)
