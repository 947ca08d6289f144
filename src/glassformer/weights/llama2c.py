"""Models of llama2.c: seven numbers, then all weights in float32, one after the other.

    int32: width, feed-forward width, layers, heads, key/value heads, vocabulary, context
    a negative vocabulary says that the head has a matrix of its own, at the very end

The file has no names and no checksum: its length is the only thing that can be checked, and it is.
"""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from ..config import DecoderConfig
from ..core.errors import ConfigError, WeightsError
from ..core.files import explained
from ..core.tree import flatten, map_named
from ..models import build
from ..text import PublishedTokenizer
from .gguf import ARCHITECTURES
from .gguf_tokenizer import BYTE, CONTROL, KEY, NORMAL, SPACE, UNKNOWN, read_tokenizer
from .loaded_model import LoadedModel
from .tensors import TensorEntry, Tensors

START = 1
HEADER = 7 * 4
_FIRST_BYTE = 3
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_MOST_PIECES = 1 << 20
_LATER_MAGIC = 0x616B3432
_LARGEST = 1 << 24
_SIZES = ("width", "feed_forward", "layers", "heads", "kv_heads", "vocab", "context")
_BLOCK = (
    "attention_norm.gamma", "attention.query.w", "attention.key.w", "attention.value.w", "attention.output.w",
    "feed_forward_norm.gamma", "feed_forward.gate.w", "feed_forward.down.w", "feed_forward.up.w",
)  # fmt: skip
"""The parameters of the blocks, in the order of the file: each stands there for all layers."""


def is_llama2c(path: Path) -> bool:
    """Return whether a file may be one of these: a .bin that is no pickle."""
    if path.suffix != ".bin" or not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(4)
    # A file of llama2.c begins with a width; no pickle has a zero there.
    return begin != b"PK\x03\x04" and not (begin[:1] == b"\x80" and begin[1:2] <= b"\x05" and begin[2:3] != b"\0")


def open_llama2c(path: str | Path, *, dtype: Any = np.float32) -> LoadedModel:
    """Read a model of llama2.c; as float32 it is mapped into memory.

    Its tokenizer lies beside it: tok512.bin for a vocabulary of 512, or tokenizer.bin. Its texts begin after the start
    token, and the next start token ends them.
    """
    path = Path(path)
    config = _read_config(path)
    tensors = Tensors(_entries(path, config))
    beside = [path.with_name(name) for name in (f"tok{config.vocab}.bin", "tokenizer.bin")]
    tokenizers = (read_vocabulary(file) for file in beside if file.is_file())

    def read(name: str, _: Any) -> Any:
        return tensors.read(name, dtype).T if name.endswith(".w") else tensors.read(name, dtype)

    return LoadedModel(
        config=config,
        params=map_named(read, build(config).specs()),
        family="llama",
        tokenizer=next((tokenizer for tokenizer in tokenizers if tokenizer.size == config.vocab), None),
        start_id=START,
        end_ids=(START,),
        source=str(path),
    )


def _read_config(path: Path) -> DecoderConfig:
    with explained(path, WeightsError, "check the path", "read"), path.open("rb") as file:
        header = file.read(HEADER)
    sizes = [int(number) for number in np.frombuffer(header[: len(header) // 4 * 4], dtype="<i4")]
    if sizes[:1] == [_LATER_MAGIC]:
        fact = f"{path} is in a later format of llama2.c, of which only the first can be read"
        raise WeightsError(fact, hint="export it again: python export.py --version 0")
    if len(sizes) < 7 or not all(0 < abs(size) < _LARGEST for size in sizes) or min(sizes[:5] + sizes[6:]) < 0:
        raise WeightsError(f"{path} is no model of llama2.c: its sizes would be {sizes}", hint="check the file")
    settings = {**ARCHITECTURES["llama"].fixed, **dict(zip(_SIZES, sizes, strict=True)), "norm_eps": 1e-5}
    settings |= {"attention_bias": False, "feed_forward_bias": False}
    settings |= {"vocab": abs(settings["vocab"]), "tied_head": settings["vocab"] > 0}
    try:
        return DecoderConfig(**settings)
    except ConfigError as error:
        raise WeightsError(f"{path} is no model of llama2.c: {error.fact}", hint="check the file") from error


def _entries(path: Path, config: DecoderConfig) -> dict[str, TensorEntry]:
    """Return where each parameter lies, by our names; matrices are (outputs, inputs)."""
    # One block tells the shapes of all: until the file's length is known to be right, there may be any number of them.
    specs = flatten(build(config.replace(layers=1)).specs())
    shapes = {name: spec.shape[::-1] if name.endswith(".w") else spec.shape for name, spec in specs.items()}
    rotations = (config.context, config.channels // 2)
    parts = [("embedding.tokens.table", 1, shapes["embedding.tokens.table"])]
    parts += [(f"blocks.{{}}.{name}", config.layers, shapes[f"blocks.0.{name}"]) for name in _BLOCK]
    parts += [("final_norm.gamma", 1, shapes["final_norm.gamma"]), ("cosines", 1, rotations), ("sines", 1, rotations)]
    parts += [] if config.tied_head else [("head.w", 1, shapes["head.w"])]
    expected = HEADER + 4 * sum(count * math.prod(shape) for _, count, shape in parts)
    size = path.stat().st_size
    if size != expected:
        fact = f"{path} has {size:,} bytes, but its sizes ask for {expected:,}"
        raise WeightsError(fact, hint="it is damaged or was not downloaded completely, or it is no model of llama2.c")
    entries, start = {}, HEADER
    for name, count, shape in parts:
        for number in range(count):
            stop = start + 4 * math.prod(shape)
            entries[name.format(number)] = TensorEntry(path, "F32", shape, start, stop)
            start = stop
    return entries


def read_vocabulary(path: str | Path) -> PublishedTokenizer:
    """Read a `tokenizer.bin`: the longest length of a piece, then for every piece its score, its length and its bytes.

    The first three are the unknown, start and end tokens. Then come the 256 bytes, as they are in older files, spelled
    <0x00> to <0xFF> in later ones, then the pieces of text: the pair whose join has the highest score is joined first.
    """
    with explained(Path(path), WeightsError, "check the path", "read"):
        content = Path(path).read_bytes()
    try:
        names, scores = _pieces(content)
        types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(names) - _FIRST_BYTE - 256)]
        numbers = {"token_type": np.array(types), "scores": np.array(scores)}
        ids = {"unknown_token_id": 0, "bos_token_id": START, "eos_token_id": 2, "add_bos_token": False}
        settings = {"model": "llama", "tokens": names, **numbers, **ids}
        return read_tokenizer({KEY + key: value for key, value in settings.items()}, vocab=len(names))[0]
    except (struct.error, UnicodeDecodeError, WeightsError) as error:
        reason = error.fact if isinstance(error, WeightsError) else str(error)
        raise WeightsError(f"{path} is no tokenizer.bin of llama2.c: {reason}", hint="check the file") from None


def _pieces(content: bytes) -> tuple[list[str], list[float]]:
    """Return the pieces, with ▁ for spaces and the bytes in the later spelling, and their scores."""
    pieces: list[bytes] = []
    scores: list[float] = []
    offset = 4
    while offset < len(content):
        score, length = struct.unpack_from("<fi", content, offset)
        offset += 8 + length
        if length < 0 or offset > len(content) or len(pieces) >= _MOST_PIECES:
            raise struct.error(f"piece {len(pieces)} has a length of {length:,} bytes")
        pieces.append(content[offset - length : offset])
        scores.append(score)
    first, last = _FIRST_BYTE, _FIRST_BYTE + 256
    spellings = ([bytes([i]) for i in range(256)], [chr(i).encode() for i in range(256)], [b.encode() for b in _BYTES])
    if pieces[first:last] not in spellings:
        raise struct.error("the pieces from 3 to 258 are not the 256 bytes")
    texts = [piece.decode().replace(" ", SPACE) for piece in pieces[last:]]
    return [*(piece.decode().strip() for piece in pieces[:first]), *_BYTES, *texts], scores
