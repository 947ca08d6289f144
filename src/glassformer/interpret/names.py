"""The names of values: dotted paths of the record, of the parameters, and of what each layer returned.

    blocks.0.attention.attend.weights   an array of the record
    blocks.0.attention.query            what the op of a record, or of a parameter, returned
    blocks.0.attention, blocks.0        what a layer returned
    blocks.0.attention.attend.scores    what the softmax of attention read, and its mask
    blocks.0.attention.query.input      what one matrix or norm reads alone, where others read the same array

A value gets its name when its layer returns: the path of the layer is the dotted name of the parameters that it was
handed, and what it returns is its value and its record. Every name stands for an address: a call on the tape, and what
it returned or read. `Where` selects entries of a value: by example, head, position, key and feature, whatever its axes
are.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, namespace
from ..core.errors import ConfigError, LengthError, did_you_mean
from ..core.tree import flatten
from ..layers.stack import RematInputs
from .tracing import Call

RETURNED = -1
LOGITS, VECTORS, WEIGHTS, SCORES, MASK, INPUT = "logits", "vectors", "weights", "scores", "mask", ".input"
READERS = (".query", ".key", ".value", ".up", ".gate", "attention_norm", "feed_forward_norm")
"""How the paths of layers end that may read the same array as others do."""
UNNAMED = ("extra_inputs", "rotation")
"""Parts of records that hold what several blocks read, such as tables of angles."""


class Address(NamedTuple):
    """A value on the tape of a run."""

    number: int  # of the call
    place: int | str  # which argument, by its number or its keyword; RETURNED: what the call returned


Addresses = dict[str, Address]


class Names:
    """Gives every value of a pass its name, as a tracing engine calls ops and layers return."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Call, int | str]] = {}
        self.axes: dict[str, int] = {}  # how many axes each value has
        # The call that made each array, or read it first; arrays are held, so that their identities stay theirs.
        self._births: dict[int, tuple[Call, int, Array]] = {}
        self._ops: list[Call] = []  # those that the layer which computes has called itself
        self._inner: list[Any] = []  # the records of layers inside
        self._layers: set[str] = set()  # the paths of those that have returned

    def addresses(self) -> Addresses:
        """Return the address of each name, in the order in which the values are there."""
        moments = {name: call.end if place == RETURNED else call.number for name, (call, place) in self._found.items()}
        found = {name: Address(call.number, place) for name, (call, place) in self._found.items()}
        return {name: found[name] for name in sorted(found, key=moments.__getitem__)}

    def begun(self, call: Call) -> None:
        """Note a call that begins: what it reads, and no call has made, is known by its first reader."""
        for place, value in enumerate(call.arguments):
            if is_real(value):
                self._births.setdefault(id(value), (call, place, value))

    def ended(self, call: Call) -> None:
        """Note a call that has returned: what it made is known by it, unless a call inside has made it."""
        y = call.outputs[0]
        if is_real(y):
            self._births.setdefault(id(y), (call, RETURNED, y))
        if not call.is_method and (call.parent is None or call.parent.is_method):
            self._ops.append(call)

    def forget(self, unpacked: Iterable[Any]) -> None:
        """Forget the matrices that were unpacked for one call."""
        for part in unpacked:
            for leaf in flatten(part).values() if isinstance(part, dict) else (part,):
                self._births.pop(id(leaf), None)

    @contextmanager
    def layer(self) -> Iterator[None]:
        """Be in a layer, which names what it returns by `returned`, while a `with` block lasts."""
        ops, records = self._ops, self._inner
        self._ops, self._inner = [], []
        yield
        self._ops, self._inner = ops, [*records, *self._inner]

    def note(self, name: str, value: Any) -> None:
        """Give a value a name, if a call made or read it: what an op keeps for itself has none."""
        if is_real(value) and id(value) in self._births:
            call, place, _ = self._births[id(value)]
            self._found[name], self.axes[name] = (call, place), value.ndim
            if name.endswith(f".{WEIGHTS}") and call.name == "softmax":
                for other, at in ((SCORES, 0), (MASK, MASK)):
                    other = name.removesuffix(WEIGHTS) + other
                    self._found[other], self.axes[other] = (call, at), value.ndim

    def returned(self, path: str, result: Any) -> None:
        """Name what the layer at a path returned: its value, and all in its record that no layer inside has named."""
        if not isinstance(result, tuple) or len(result) != 2:
            return
        y, record = result
        if not self._is_named(record):  # else by a layer inside, of the same parameters
            self._record(path, record)
            if path:
                self.note(path, y)
        self._layers.add(path)
        self._inner.append(record)

    def _is_named(self, record: Any) -> bool:
        return record is not None and any(record is one for one in self._inner)

    def _record(self, name: str, part: Any) -> None:
        op = next((call for call in self._ops if _is_record(part, call)), None)
        if op is not None:
            self._ops.remove(op)
            # An activation keeps what it read.
            for own, leaf in [("x", part)] if hasattr(part, "dtype") else _children(part):
                self.note(f"{name}.{own}", leaf)
            if not name.endswith(".attend"):  # its heads, side by side, are `output.x`
                self.note(name, op.outputs[0])
            if name.endswith(READERS) and is_real(op.arguments[0]):
                self._found[name + INPUT], self.axes[name + INPUT] = (op, 0), op.arguments[0].ndim
        elif hasattr(part, "dtype"):
            self.note(name, part)
        elif not isinstance(part, RematInputs):  # what is in a block that runs again was named inside
            for own, below in _children(part):
                inner = f"{name}.{own}" if name else own
                if below is None:  # keys and values that read what the queries read have no record of their own
                    self._found.pop(f"{inner}.x", None)
                elif inner not in self._layers and own not in UNNAMED and not self._is_named(below):
                    self._record(inner, below)


def _is_record(part: Any, call: Call) -> bool:
    """Return whether a part of a record is that of an op; layers leave parameters out of it."""
    saved = call.outputs[1] if len(call.outputs) > 1 else None
    return saved is not None and (saved is part or (type(saved) is type(part) and hasattr(part, "_fields")))


def _children(part: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(part, dict):
        return part.items()
    if isinstance(part, list | tuple):
        return zip(map(str, getattr(part, "_fields", range(len(part)))), part, strict=True)
    return ()


def value_at(call: Call, place: int | str) -> Array:
    """Return the value at a place of a call."""
    if isinstance(place, str):
        return full_mask(call)
    return call.outputs[0] if place == RETURNED else call.arguments[place]


def full_mask(call: Call) -> Array:
    """Return which keys each query of a softmax in attention may see, for every head: (..., H, T, S)."""
    scores, mask = call.arguments[0], call.settings.get(MASK)
    return namespace(scores).broadcast_to(np.bool(True) if mask is None else mask, scores.shape)


def check_name(name: str, known: Any, what: str = "value") -> None:
    """Refuse the name of a value that a run does not have."""
    if name not in known:
        hint = our_name(str(name), known) or did_you_mean(str(name), known)
        raise ConfigError(f"there is no {what} {name!r} in this run", hint=hint)


def is_real(value: Any) -> bool:
    """Return whether a value is an array of real numbers."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "fc"


# --- the entries of a value ------------------------------------------------------------------------------------------

Selection = int | slice | Sequence[int] | Array | None

MAPS = ("weights", "scores", "mask", "keep")
BY_HEAD = ("q", "k", "v", *MAPS)
BATCH = ("tokens", "targets", "mask", "source", "source_mask", "segments")
PARAMETERS = ("w", "b", "gamma", "beta", "table", "cls")
MIXED = "attention.output.x"
"""How the value ends in which the heads stand side by side, each in channels of its own."""


@dataclass(frozen=True)
class Where:
    """Some entries of a value; what is None is not asked about.

    example    of the batch
    head       of attention; of keys and values, their own heads, which may be fewer
    position   of the token; in scores and weights, of the one that looks
    key        in scores and weights, of the one that is looked at
    feature    of the vector: a neuron of a feed-forward layer, a channel of a head, a token of the logits
    row        of a parameter: the input that a weight belongs to, the token or the position of a table
    """

    example: Selection = None
    head: Selection = None
    position: Selection = None
    key: Selection = None
    feature: Selection = None
    row: Selection = None

    def index(self, name: str, shape: tuple[int, ...], heads: int) -> tuple[Any, ...]:
        """Return the index of these entries in a value of such a name and shape, with one axis of examples."""
        axes = axes_of(name, len(shape))
        asked = {field.name: getattr(self, field.name) for field in fields(self)}
        if asked["head"] is not None and name.endswith(MIXED):
            if asked["feature"] is not None:
                raise ConfigError("a head and a feature both say which features", hint="give one of them")
            channels = np.arange(shape[-1]).reshape(heads, -1)
            asked["feature"] = channels[numbers_of(name, "head", asked["head"], heads)].reshape(-1)
            asked["head"] = None
        for axis, part in asked.items():
            if part is not None and axis not in axes:
                sizes = ", ".join(f"{word} {size}" for word, size in zip(axes, shape, strict=True))
                raise ConfigError(f"{name} has no {axis}", hint=f"it has {sizes}")
        numbers = [numbers_of(name, axis, asked[axis], size) for axis, size in zip(axes, shape, strict=True)]
        return np.ix_(*numbers)


EVERYWHERE = Where()


def is_of_source(name: str) -> bool:
    """Return whether the positions of a value are those of the source that an encoder-decoder reads."""
    parts = name.split(".")
    of_memory = "cross_attention" in parts and bool({"k", "v", "key", "value"} & {*parts})
    return parts[0] == "encoder" or name.startswith("source") or of_memory


def axes_of(name: str, count: int) -> list[str]:
    """Return what the axes of a value are called."""
    last = name.rpartition(".")[2]
    if name in BATCH:
        return ["example", "position"][:count]
    if last in PARAMETERS:
        return ["row", "feature"][-count:]
    if last in BY_HEAD and count == 4:
        return ["example", "head", "position", "key" if last in MAPS else "feature"]
    if name.endswith("embedding.positions"):
        return ["example", "position", "feature"][-count:]  # in a run, the same for every example
    if last in ("bias", "relative", "positions") and count == 3:
        return ["head", "position", "key"]  # likewise
    return {1: ["example"], 2: ["example", "feature"], 3: ["example", "position", "feature"]}.get(count, [])


def numbers_of(name: str, axis: str, part: Selection, size: int) -> Array:
    """Return the numbers of the entries along one axis."""
    if part is None or isinstance(part, slice):
        return np.arange(size)[slice(None) if part is None else part]
    numbers = np.atleast_1d(np.asarray(part))
    if numbers.dtype == bool and numbers.shape == (size,):
        return np.flatnonzero(numbers)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise ConfigError(f"{axis} is {part!r}", hint="give a number, numbers, a slice, or True or False for each")
    wrong = numbers[(numbers < -size) | (numbers >= size)]
    if wrong.size:
        raise LengthError(f"{name} has no {axis} {wrong[0]}", hint=f"it has {size}, from 0 to {size - 1}")
    return numbers % size


def part_name(name: str, **numbers: int | None) -> str:
    """Return the name of a sublayer, or of its head or neuron, as tables show it: blocks.0.attention head 3."""
    words = [f"{word} {number}" for word, number in numbers.items() if number is not None]
    return " ".join([name.removesuffix(".output.x"), *words])


# --- the names that TransformerLens gives to values, beside ours; N is the number of a block -------------------------


class OurName(NamedTuple):
    """Our name of a value of TransformerLens: the first of the names that a run has, and how it differs."""

    names: tuple[str, ...]
    note: str = ""


SCALE = "1 / scale"
SIDE_BY_SIDE = "heads side by side: (B, T, H · C)"
ALL_HEADS = "for all heads: (B, T, D)"

TRANSFORMER_LENS = {
    "hook_embed": OurName(("embedding.tokens",)),
    "hook_pos_embed": OurName(("embedding.positions",), "the same for all examples: (T, D)"),
    "blocks.N.hook_resid_pre": OurName(("blocks.N-1", "embedding")),
    "blocks.N.hook_attn_in": OurName(("blocks.N.attention_norm.input",), ALL_HEADS),
    "blocks.N.hook_q_input": OurName(("blocks.N.attention.query.input",), f"after the norm, {ALL_HEADS}"),
    "blocks.N.hook_k_input": OurName(("blocks.N.attention.key.input",), f"after the norm, {ALL_HEADS}"),
    "blocks.N.hook_v_input": OurName(("blocks.N.attention.value.input",), f"after the norm, {ALL_HEADS}"),
    "blocks.N.hook_mlp_in": OurName(("blocks.N.feed_forward_norm.input",)),
    "blocks.N.ln1.hook_scale": OurName(("blocks.N.attention_norm.rstd", "blocks.N.attention_norm.rrms"), SCALE),
    "blocks.N.ln1.hook_normalized": OurName(("blocks.N.attention_norm",)),
    "blocks.N.attn.hook_q": OurName(("blocks.N.attention.query",), SIDE_BY_SIDE),
    "blocks.N.attn.hook_k": OurName(("blocks.N.attention.key",), SIDE_BY_SIDE),
    "blocks.N.attn.hook_v": OurName(("blocks.N.attention.attend.v",), "(B, H, T, C)"),
    "blocks.N.attn.hook_rot_q": OurName(("blocks.N.attention.attend.q",), "(B, H, T, C)"),
    "blocks.N.attn.hook_rot_k": OurName(("blocks.N.attention.attend.k",), "(B, H, T, C)"),
    "blocks.N.attn.hook_attn_scores": OurName(("blocks.N.attention.attend.scores",), "before the mask"),
    "blocks.N.attn.hook_pattern": OurName(("blocks.N.attention.attend.weights",)),
    "blocks.N.attn.hook_z": OurName(("blocks.N.attention.output.x",), SIDE_BY_SIDE),
    "blocks.N.attn.hook_result": OurName(
        ("blocks.N.attention.output.x",),
        '`head_results(run, "blocks.N.attention")` is what each head adds: (B, H, T, D)',
    ),
    "blocks.N.hook_attn_out": OurName(("blocks.N.attention",)),
    "blocks.N.hook_resid_mid": OurName(("blocks.N.feed_forward_norm.x",)),
    "blocks.N.ln2.hook_scale": OurName(("blocks.N.feed_forward_norm.rstd", "blocks.N.feed_forward_norm.rrms"), SCALE),
    "blocks.N.ln2.hook_normalized": OurName(("blocks.N.feed_forward_norm",)),
    "blocks.N.mlp.hook_pre": OurName(("blocks.N.feed_forward.gate", "blocks.N.feed_forward.up")),
    "blocks.N.mlp.hook_pre_linear": OurName(("blocks.N.feed_forward.up",)),
    "blocks.N.mlp.hook_post": OurName(("blocks.N.feed_forward.activation",)),
    "blocks.N.hook_mlp_out": OurName(("blocks.N.feed_forward",)),
    "blocks.N.hook_resid_post": OurName(("blocks.N",)),
    "ln_final.hook_scale": OurName(("final_norm.rstd", "final_norm.rrms"), SCALE),
    "ln_final.hook_normalized": OurName(("final_norm",)),
}

POST_NORM = {
    "blocks.N.hook_attn_in": OurName(("blocks.N.attention.query.input",), ALL_HEADS),
    **{f"blocks.N.hook_{one[0]}_input": OurName((f"blocks.N.attention.{one}.input",), ALL_HEADS)
       for one in ("query", "key", "value")},
    "blocks.N.hook_resid_mid": OurName(("blocks.N.attention_norm.x",)),
    "blocks.N.hook_mlp_in": OurName(("blocks.N.feed_forward.up.input",)),
    "blocks.N.hook_resid_post": OurName(("blocks.N.feed_forward_norm.x",)),
    "blocks.N.hook_normalized_resid_post": OurName(("blocks.N",)),
}  # fmt: skip
"""What differs in models whose norms come after their sublayers, such as BERT."""


def our_name(name: str, known: Iterable[str]) -> str | None:
    """Return a sentence with our name for a value that TransformerLens calls `name`, None where there is none.

    known   the names of a run, in the order in which its values are computed
    """
    block = re.match(r"blocks\.(\d+)\.", name)
    number = int(block[1]) if block else 0
    known = [*known]
    both = [one for one in known if one in (f"blocks.{number}.attention", f"blocks.{number}.attention_norm")]
    table = {**TRANSFORMER_LENS, **POST_NORM} if both and both[0].endswith("attention") else TRANSFORMER_LENS
    ours = table.get(re.sub(r"^blocks\.\d+\.", "blocks.N.", name), OurName(()))
    names = [own.replace("N-1", str(number - 1)).replace(".N", f".{number}") for own in ours.names]
    note = f" ({ours.note.replace('.N.', f'.{number}.')})" if ours.note else ""
    found = [own for own in names if own in known]
    return f"TransformerLens' {name} is {found[0]} here{note}" if found else None
