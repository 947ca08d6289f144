"""JSON of other programs: an object, small and without duplicate keys, whose fields are checked one by one.

Each field that is wrong is named.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..config import TransformerConfig
from ..core import documents
from ..core.errors import WeightsError

MOST_BYTES = 1 << 22
"""More than any index or config of a supported model needs."""
AGAIN = "get the file again"
MOST_LAYERS = 2048
LARGEST = (1 << 31) - 1

ACTIVATIONS = {
    "gelu": "gelu", "gelu_python": "gelu",
    "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_accurate": "gelu_tanh",
    "relu": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip
"""Published names of activations, and ours."""
PUBLISHED_ACTIVATION = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}

Table = dict[str, tuple[Any, ...]]
"""Our settings: each with its published field, how `Fields` asks for it, and what stands for one that is missing."""
_DERIVED = {
    "feed_forward": "hidden", "kv_heads": "key_heads", "head_width": "channels", "final_norm": "has_final_norm",
    "output_bias": "has_output_bias", "encoder_layers": "encoder_depth", "source_vocab": "source_size",
    "attention_dropout": "weight_dropout", "embedding_dropout": "input_dropout",
}  # fmt: skip
"""Settings that may be None, with the property that follows from others then."""
_NOT_ZERO = {"init_std": 0.02, "segments": 1}

UNNAMED = "LABEL_"
"""The beginning of what classes without a name are called."""
_NEEDED: Any = object()


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file of another program."""
    return documents.read_json(path, WeightsError, AGAIN, most=MOST_BYTES)


def parse_json(content: bytes, what: str) -> dict[str, Any]:
    """Return the JSON object that a part of such a file is."""
    return documents.parse_json(content, what, WeightsError, AGAIN)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name the file in errors about what it holds."""
    try:
        yield
    except WeightsError as error:
        raise WeightsError(f"{path}: {error.fact}", hint=error.hint) from error


def inside(folder: Path, name: Any, source: Path) -> Path:
    """Return the path of a file or folder that another file names; refuse names that lead out of the folder."""
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", "..") or set(name) & {"\0", "\\"}:
        raise WeightsError(f"{source} points outside its folder: {name!r:.80}", hint="do not use this model")
    return folder / name


class Fields:
    """A config.json: every question says which type of answer it wants, and what stands for a missing one."""

    def __init__(self, values: Mapping[str, Any], source: str = "config.json") -> None:
        self.values = values
        self.source = source

    def get(self, name: str, default: Any = _NEEDED) -> Any:
        """Return a field as it stands there; one that must not be missing has no default."""
        if name not in self.values:
            if default is _NEEDED:
                raise WeightsError(f"{self.source} has no {name}", hint="get the whole file: a model cannot do without")
            return default
        return self.values[name]

    def size(self, name: str, default: Any = _NEEDED) -> int:
        """Return a whole number of at least 1; null counts as missing."""
        value = self.get(name, default)
        value = default if value is None and default is not _NEEDED else value
        if type(value) is not int or not 1 <= value <= LARGEST:
            self.refuse(name, "a whole number of at least 1 is needed")
        return value

    def optional_size(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number of at least 1, or None for null."""
        return None if self.get(name, default) is None else self.size(name, default)

    def layers(self, name: str, default: Any = _NEEDED) -> int:
        """Return a number of blocks."""
        value = self.size(name, default)
        if value > MOST_LAYERS:
            self.refuse(name, f"at most {MOST_LAYERS:,} layers are supported")
        return value

    def number(self, name: str, default: Any = _NEEDED) -> float:
        """Return a finite number."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            self.refuse(name, "a number is needed")
        return value

    def rate(self, name: str, default: float = 0.0) -> float:
        """Return a rate of dropout; null is none."""
        value = self.get(name, default)
        return 0.0 if value is None else self.number(name, default)

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "true or false is needed")
        return value

    def activation(self, name: str, default: str) -> str:
        """Return our name of an activation."""
        value = self.get(name, default)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            self.refuse(name, f"supported: {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[value]

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse a field that changes the mathematics in a way that is not supported."""
        value = self.get(name, allowed[0])
        if value not in allowed or isinstance(value, bool) != isinstance(allowed[0], bool):
            self.refuse(name, f"only {' or '.join(map(repr, allowed))} is supported")

    def rotations(self, *others: str, allowed: tuple[str, ...] = ("default",)) -> tuple[str, "Fields"]:
        """Return what is said of rotary positions: the type of scaling, one of those allowed, and the fields."""
        name = "rope_parameters" if self.values.get("rope_parameters") else "rope_scaling"
        rope = self.values.get(name) or {}
        known = {"rope_theta", "rope_type", "type", "partial_rotary_factor", *others}
        if not isinstance(rope, dict) or not rope.keys() <= known:
            self.refuse(name, "it has settings that are not supported")
        scaling = rope.get("rope_type", rope.get("type", "default"))
        if scaling not in allowed:
            self.refuse(name, f"of the types of scaling, only {' and '.join(map(repr, allowed))} is supported")
        return scaling, Fields(rope, f"{name} of {self.source}")

    def refuse(self, name: str, reason: str) -> Any:
        """Raise the error that names a field."""
        value = repr(self.values.get(name))
        value = value if len(value) <= 60 else value[:57] + "…"
        raise WeightsError(f"{self.source} has {name} = {value}: {reason}", hint="use another model")


def class_names(fields: Fields) -> tuple[str, ...]:
    """Return the names of a classifier's classes; where the fields have none, these are two without names."""
    names = fields.get("id2label", None)
    if names is None:
        names = {str(i): f"{UNNAMED}{i}" for i in range(fields.size("num_labels", 2))}
    if not isinstance(names, dict) or names.keys() != {str(i) for i in range(len(names))}:
        fields.refuse("id2label", "a name for each of the numbers 0, 1, … is needed")
    if not all(isinstance(name, str) for name in names.values()):
        fields.refuse("id2label", "names are needed")
    return tuple(names[str(i)] for i in range(len(names)))


def read_table(table: Table, fields: Fields) -> dict[str, Any]:
    """Return our settings; a default may be a function of the fields."""
    return {
        ours: ask(fields, theirs, *(value(fields) if callable(value) else value for value in default))
        for ours, (theirs, ask, *default) in table.items()
    }


def write_table(table: Table, config: TransformerConfig) -> dict[str, Any]:
    """Return the published fields for our settings."""
    fields = {}
    for ours, (theirs, ask, *_) in table.items():
        value = effective(config, ours) or _NOT_ZERO.get(ours, effective(config, ours))
        if ask is Fields.activation:
            value = PUBLISHED_ACTIVATION.get(value, value)
        fields[theirs] = float(value) if ask is Fields.number else value
    return fields


def effective(config: TransformerConfig, name: str) -> Any:
    """Return the value that a setting takes effect with."""
    return getattr(config, _DERIVED.get(name, name))
