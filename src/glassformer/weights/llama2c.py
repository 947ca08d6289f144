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

from ..arrays import Array, Tree
from ..config import DecoderConfig
from ..errors import ConfigError, WeightsError
from ..files import explained
from ..models import build
from ..text import PublishedTokenizer
from ..trained_model import TrainedModel
from ..tree import flatten, map_named, tree_map
from .gguf_config import FAMILIES
from .gguf_tokenizer import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, build_tokenizer

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


def open_llama2c(path: str | Path, tokenizer: str | Path | None = None, *, dtype: Any = np.float32) -> TrainedModel:
    """Read a model of llama2.c; as float32 it is mapped into memory.

    tokenizer    its tokenizer.bin; unless given, one that lies beside the model and fits: tok512.bin for a
                 vocabulary of 512, or tokenizer.bin

    Its texts begin after the start token, and the next start token ends them.
    """
    path = Path(path)
    config = _config(path, _read_sizes(path))
    params = _params(config, _cut(path, _shapes(config)))
    return TrainedModel(
        config=config,
        params=tree_map(lambda array: array.astype(dtype, copy=False), params),
        family="llama",
        tokenizer=_tokenizer(path, tokenizer, config.vocab),
        start_id=START,
        end_ids=(START,),
        source=str(path),
    )


def _read_sizes(path: Path) -> list[int]:
    try:
        with path.open("rb") as file:
            numbers = np.frombuffer(file.read(HEADER), dtype="<i4")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is shorter than its header"
        raise WeightsError(f"{path} cannot be read: {reason}", hint="check the path") from None
    if len(numbers) == 7 and numbers[0] == _LATER_MAGIC:
        fact = f"{path} is in a later format of llama2.c, of which only the first can be read"
        raise WeightsError(fact, hint="export it again: python export.py --version 0")
    sizes = [int(number) for number in numbers]
    if len(sizes) < 7 or not all(0 < abs(size) < _LARGEST for size in sizes) or min(sizes[:5] + sizes[6:]) < 0:
        raise WeightsError(f"{path} is no model of llama2.c: its sizes would be {sizes}", hint="check the file")
    return sizes


def _config(path: Path, sizes: list[int]) -> DecoderConfig:
    vocab = sizes[_SIZES.index("vocab")]
    settings = {**FAMILIES["llama"], **dict(zip(_SIZES, sizes, strict=True)), "vocab": abs(vocab), "norm_eps": 1e-5}
    try:
        return DecoderConfig(**settings, attention_bias=False, feed_forward_bias=False, tied_head=vocab > 0)
    except ConfigError as error:
        raise WeightsError(f"{path} is no model of llama2.c: {error.fact}", hint="check the file") from error


def _shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all arrays in the order in which they stand in the file; matrices are (outputs, inputs)."""
    # One block tells the shapes of all: until the file's length is known to be right, there may be any number of them.
    specs = flatten(build(config.replace(layers=1)).specs())
    shapes = {name: spec.shape[::-1] if name.endswith(".w") else spec.shape for name, spec in specs.items()}
    rotations = (config.context, config.channels // 2)
    return {
        "embedding.tokens.table": shapes["embedding.tokens.table"],
        **{name: (config.layers, *shapes[f"blocks.0.{name}"]) for name in _BLOCK},
        "final_norm.gamma": shapes["final_norm.gamma"],
        "cosines": rotations,
        "sines": rotations,
        **({} if config.tied_head else {"head.w": shapes["head.w"]}),
    }


def _cut(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return views of the mapped file, one for each array."""
    expected = HEADER + 4 * sum(math.prod(shape) for shape in shapes.values())
    size = path.stat().st_size
    if size != expected:
        fact = f"{path} has {size:,} bytes, but its sizes ask for {expected:,}"
        raise WeightsError(fact, hint="it is damaged or was not downloaded completely, or it is no model of llama2.c")
    numbers = np.memmap(path, dtype="<f4", mode="r", offset=HEADER).view(np.ndarray)
    arrays, start = {}, 0
    for name, shape in shapes.items():
        arrays[name] = numbers[start : start + math.prod(shape)].reshape(shape)
        start += math.prod(shape)
    return arrays


def _params(config: DecoderConfig, arrays: dict[str, Array]) -> Tree:
    def find(name: str, _: Any) -> Array:
        array = arrays[name] if name in arrays else arrays[name.split(".", 2)[2]][int(name.split(".")[1])]
        return array.T if name.endswith(".w") else array

    return map_named(find, build(config).specs())


def _tokenizer(path: Path, given: str | Path | None, vocab: int) -> PublishedTokenizer | None:
    beside = [path.with_name(name) for name in (f"tok{vocab}.bin", "tokenizer.bin")]
    for place in [place for place in beside if place.is_file()] if given is None else [given]:
        tokenizer = read_tokenizer(place)
        if tokenizer.size == vocab:
            return tokenizer
        if given is not None:
            fact = f"{given} has {tokenizer.size:,} pieces, but {path} a vocabulary of {vocab:,}"
            raise WeightsError(fact, hint="pass the tokenizer that the model was trained with")
    return None


def read_tokenizer(path: str | Path) -> PublishedTokenizer:
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
        return build_tokenizer({"model": "llama", "tokens": names, **numbers, **ids}, vocab=len(names))[0]
    except (struct.error, UnicodeDecodeError, WeightsError) as error:
        reason = error.fact if isinstance(error, WeightsError) else str(error)
        raise WeightsError(f"{path} is no tokenizer.bin of llama2.c: {reason}", hint="check the file") from None


def _pieces(content: bytes) -> tuple[list[str], list[float]]:
    """Return the pieces, with ▁ for spaces and the bytes in the later spelling, and their scores."""
    pieces: list[bytes] = []
    scores: list[float] = []
    place = 4
    while place < len(content):
        score, length = struct.unpack_from("<fi", content, place)
        place += 8 + length
        if length < 0 or place > len(content) or len(pieces) >= _MOST_PIECES:
            raise struct.error(f"piece {len(pieces)} has a length of {length:,} bytes")
        pieces.append(content[place - length : place])
        scores.append(score)
    first, last = _FIRST_BYTE, _FIRST_BYTE + 256
    spellings = ([bytes([i]) for i in range(256)], [chr(i).encode() for i in range(256)], [b.encode() for b in _BYTES])
    if pieces[first:last] not in spellings:
        raise struct.error("the pieces from 3 to 258 are not the 256 bytes")
    texts = [piece.decode().replace(" ", SPACE) for piece in pieces[last:]]
    return [*(piece.decode().strip() for piece in pieces[:first]), *_BYTES, *texts], scores
