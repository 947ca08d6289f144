"""Where a model that writes makes the values of a run: names of values as calls of ops that read with a cache.

A call is told from all others by its block and by the path of calls that leads to it there, so that it is found with a
cache and without one, whichever calls around it an engine computes at once.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..arrays import Array, Tree
from ..errors import ConfigError, ShapeError, did_you_mean
from ..layers import Cache
from ..models import Batch, Decoder, EncoderDecoder, Model
from ..tree import flatten
from .changes import Change
from .names import LOGITS
from .run import Run, watch
from .tracing import Call
from .where import axes_of, is_of_source

PROMPT, NEW = "prompt", "new"
STACKS = (".run_blocks", ".read_blocks")
"""Methods that run all blocks of a stack, without a cache and with one."""
WORDS = ("put", "zero", "scale", "add", "mean", "transform")
"""Changes that can be made while a model writes."""
BY_TOKEN = ("example", "position")
"""The axes of tokens, of which a model that writes reads some at a time."""

Key = tuple[str, Any]
"""What tells a call from all others: its block, or the part of the model outside of blocks, and the path to it there.

Each step of the path is the name of a call, and the parameters that it reads or the how-manieth of its name it is.
"""


@dataclass
class Part:
    """Blocks of a stack that are read together.

    is_opened   whether values inside of them are changed, so that they run as written
    after       the changes of what the last of them returns
    """

    stack: Any
    params: Tree
    cache: Cache
    is_opened: bool
    after: list[Change]


@dataclass(eq=False)
class ChangePlan:
    """Which calls are changed, and how.

    placed   by the key of a call: what of it is changed, by which change
    opened   keys of the calls in which such a call is made; these run as written
    prompt   how many tokens each prompt has
    """

    heads: int
    prompt: int
    placed: dict[Key, list[tuple[int | str, Change]]] = field(default_factory=dict)
    opened: set[Key] = field(default_factory=set)
    parts: WeakKeyDictionary[Cache, list[Part]] = field(default_factory=WeakKeyDictionary)
    keys: CallKeys | None = None

    def changes_of(self, block: str) -> list[Change]:
        """Return the changes that are made in a block."""
        return [change for (part, _), placed in self.placed.items() if part == block for _, change in placed]

    def new_keys(self, params: Tree, section: int) -> CallKeys:
        """Return what gives the calls of one reading their keys; the names of the parameters are collected once."""
        if self.keys is None or self.keys.params is not params:
            self.keys = CallKeys(params)
        return self.keys.begun(section)


class CallKeys:
    """Gives every call of one reading its key.

    section   how many stacks were run before: what stands outside of blocks is told apart by it
    """

    def __init__(self, params: Tree, section: int = 0) -> None:
        self.params = params
        self.names = {id(leaf): name for name, leaf in flatten(params).items()}
        self.blocks = {
            id(block): f"{prefix}blocks.{n}"
            for prefix, part in (("", params), *((f"{own}.", params.get(own, {})) for own in ("encoder", "decoder")))
            for n, block in enumerate(part.get("blocks", ()))
        }
        self.section = section
        self.block, self.seen = "", Counter[str]()
        self.path: tuple[Any, ...] = ()

    def begun(self, section: int) -> CallKeys:
        """Return the same for another reading."""
        found = copy.copy(self)
        found.section, found.seen = section, Counter()
        return found

    @contextmanager
    def entered(self, name: str, arguments: tuple[Any, ...]) -> Iterator[Key]:
        """Return the key of a call, while it runs."""
        outer = self.block, self.path, self.seen
        own = tuple(self.names[id(part)] for part in arguments if id(part) in self.names)
        if not own:
            self.seen[name] += 1
        block = self.blocks.get(id(arguments[1])) if "." in name and len(arguments) > 1 else None
        if block is None:
            self.path = (*self.path, (name, own or self.seen[name]))
        elif block != self.block:
            self.block, self.path = block, ()
        self.seen = Counter()
        try:
            yield self.block or str(self.section), self.path
        finally:
            self.block, self.path, self.seen = outer
            if name.endswith(STACKS):
                self.section, self.seen = self.section + 1, Counter()


def sorted_changes(changes: Sequence[Change], params: Tree) -> tuple[list[Change], list[Change]]:
    """Tell changes of parameters from those of values; refuse those that cannot be made while a model writes."""
    names = flatten(params)
    for change in changes:
        if change.word not in WORDS:
            raise ConfigError(
                f"{change.word} cannot be done while a model writes", hint=f"use one of {', '.join(WORDS)}"
            )
        if change.where.example is not None:
            raise ConfigError("a change while a model writes has no example", hint="call generate for each prompt")
    return [c for c in changes if c.name in names], [c for c in changes if c.name not in names]


def plan_changes(model: Model, params: Tree, changes: list[Change], prompt: int) -> ChangePlan:
    plan = ChangePlan(model.config.heads, prompt)
    known = keys_of(model)
    blocks = list(CallKeys(params).blocks.values())
    for change in changes:
        position = change.where.position
        if isinstance(position, str) and position not in (PROMPT, NEW):
            raise ConfigError(f"position is {position!r}", hint='use "prompt", "new", numbers or a slice')
        prefix, block, rest = change.name.partition("blocks.")
        number, dot, inner = rest.partition(".")
        if block and f"{prefix}blocks.{number}" not in blocks:
            raise ConfigError(f"there is no {prefix}blocks.{number}", hint=f"the model has {', '.join(blocks):.300}")
        name = f"{prefix}blocks.{min(int(number), 1)}{dot}{inner}" if block else change.name
        if name not in known:
            raise ConfigError(
                f"there is no value {change.name!r} that is computed while this model writes",
                hint=did_you_mean(change.name, known),
            )
        place, shape, *keys = known[name]
        axes = axes_of(name, len(shape))
        # A cache has maps of other keys than a run, and some values of each example that a run has once for all.
        if "key" in axes or (change.function is not None and "example" not in axes):
            raise never_made(change)
        if change.function is not None:
            _check_function(change, shape, model.config.heads)
        own, *around = (_renamed(key, blocks, int(number) if block else None) for key in keys)
        plan.placed.setdefault(own, []).append((place, change))
        plan.opened.update(around)
    return plan


def never_made(change: Change) -> ConfigError:
    """Return the refusal of a change that reading on with a cache does not make."""
    return ConfigError(
        f"the change {change.word!r} of {change.name} cannot be made while a model writes",
        hint="make it on a text, model.watch(text).changed(…); or change another value: what a head of attention adds "
        "is attention.output.x with head=",
    )


def _check_function(change: Change, shape: tuple[int, ...], heads: int) -> None:
    """Refuse a function that gives a token another value among others than alone: they are read piece by piece."""
    axes = axes_of(change.name, len(shape))
    sizes = [3 if axis in BY_TOKEN else size for axis, size in zip(axes, shape, strict=True)]
    where = replace(change.where, position=None).index(change.name, tuple(sizes), heads)
    x = np.random.default_rng(0).standard_normal(sizes)[where]
    function: Any = change.function

    def alone(axis: int) -> Array:
        return np.concatenate([function(x.take([n], axis)) for n in range(x.shape[axis])], axis)

    try:
        together = np.asarray(function(x.copy()))
        each = [alone(axes.index(axis)) for axis in BY_TOKEN]
    except Exception as error:  # of whatever is in the function
        raise ConfigError(
            f"the function that changes {change.name} does not take values {x.shape}: {error}",
            hint="while a model writes, it is called with one token or several, of one sequence or several",
        ) from error
    if together.shape != x.shape:
        fact = f"the function that changes {change.name} returns {together.shape} for entries {x.shape}"
        raise ShapeError(fact, hint="return as many")
    size = np.abs(together).max(initial=0)
    if not all(np.allclose(own, together, rtol=1e-5, atol=1e-5 * size, equal_nan=True) for own in each):
        raise ConfigError(
            f"the function that changes {change.name} gives a token another value among others than alone",
            hint="a model that writes reads token by token: use a function of each, or model.watch(text).changed(…)",
        )


def _renamed(key: Key, blocks: list[str], number: int | None) -> Key:
    """Return the key of the same call in a model of more blocks, for a value of one of them or of none.

    In the model of two blocks, number 1 stands for the block of the value, or for the last one, and 0 for that before.
    """
    part, path = key
    prefix, block, own = part.partition("blocks.")
    if not block:
        return key
    last = sum(name.startswith(f"{prefix}blocks.") for name in blocks) - 1
    number = last if number is None else number
    new = f"{prefix}blocks.{max(number - 1 + int(own), 0)}"

    def renamed(reads: Any) -> Any:
        return tuple(name.replace(part, new, 1) for name in reads) if isinstance(reads, tuple) else reads

    return new, tuple((name, renamed(reads)) for name, reads in path)


def keys_of(model: Model) -> dict[str, tuple[Any, ...]]:
    """Return for each value of a run its place and shape, for one token, and the keys of its call and those around."""
    stack: Any = model.stack if isinstance(model, Decoder) else model.decoder  # type: ignore[attr-defined]
    return _keys(model, type(stack.block).__qualname__, id(type(stack.block)))


@lru_cache(maxsize=16)
def _keys(model: Model, *block: Any) -> dict[str, tuple[Any, ...]]:
    """Return what `keys_of` does.

    All blocks but the first are alike: the names are those of a model with at most two blocks, and few tokens.
    """
    config = model.config
    small: dict[str, Any] = {"layers": min(config.layers, 2), "vocab": 2}
    if isinstance(model, EncoderDecoder):
        small |= {"encoder_layers": min(config.encoder_depth, 2), "source_vocab": 2}
    twin = replace(model, config=replace(config, **small))  # type: ignore[type-var]
    token = np.zeros((1, 1), np.int64)
    run = watch(twin, twin.init(0), Batch(token, source=token.copy() if isinstance(model, EncoderDecoder) else None))
    keys = _keys_of_calls(run)
    found = {}
    for name, (number, place) in run.addresses.items():
        call: Call | None = run.calls[number]
        if call is None or call.is_method or _is_remembered(name):
            continue
        chain = []
        while call is not None:
            chain.append(keys[call.number])
            call = call.parent
        shape = run.spec(name).shape
        if run.addresses[name] == run.addresses[LOGITS]:
            shape = (*shape[:-1], config.vocab)
        found[name] = (place, shape, *chain)
    return found


def _is_remembered(name: str) -> bool:
    """Tell whether a value is computed from the source before anything is written, outside of the blocks."""
    parts = name.split(".")
    return "cross_attention" in parts and is_of_source(name)


def _keys_of_calls(run: Run) -> dict[int, Key]:
    """Return the key of every call of a run."""
    labels = CallKeys(run.params)
    keys: dict[int, Key] = {}

    def visit(call: Call) -> None:
        with labels.entered(call.name, call.arguments) as key:
            keys[call.number] = key
            inner = call.number + 1
            while inner < call.end:
                visit(run.calls[inner])
                inner = run.calls[inner].end

    number = 0
    while number < len(run.calls):
        visit(run.calls[number])
        number = run.calls[number].end
    return keys
