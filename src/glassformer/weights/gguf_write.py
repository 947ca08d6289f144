"""Writes a GGUF file: the reverse of `gguf_header`."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array
from .gguf_header import DEFAULT_ALIGNMENT, MAGIC, TYPES, VERSIONS

_CODES = {name: code for code, (name, _, _) in TYPES.items()}
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


def write_gguf(path: Path, settings: dict[str, Any], tensors: dict[str, tuple[str, tuple[int, ...], Array]]) -> None:
    """Write a file with settings by key and, by name, the type, shape and bytes of each tensor."""
    header = MAGIC + struct.pack("<IQQ", VERSIONS[-1], len(tensors), len(settings))
    header += b"".join(_string(key) + _value(value) for key, value in settings.items())
    place = 0
    for name, (form, shape, stored) in tensors.items():
        header += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], _CODES[form], place)
        place += stored.nbytes + _padding(stored.nbytes)
    with path.open("wb") as file:
        file.write(header + bytes(_padding(len(header))))
        for _, _, stored in tensors.values():
            stored.tofile(file)
            file.write(bytes(_padding(stored.nbytes)))


def _padding(size: int) -> int:
    return -size % DEFAULT_ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """Return the type and the bytes of a value; whole numbers are unsigned, but not in lists."""
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", _FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if not value or isinstance(value[0], str):  # llama.cpp insists on a list of merges, even an empty one
        code, content = _STRING, b"".join(map(_string, value))
    else:
        code = _FLOAT32 if isinstance(value[0], float) else _INT32
        content = np.asarray(value, "<f4" if code == _FLOAT32 else "<i4").tobytes()
    return struct.pack("<IIQ", _ARRAY, code, len(value)) + content
