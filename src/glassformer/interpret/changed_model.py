"""A model that makes changes while it writes: which calls are changed, and the engine that changes them.

A call of an op has the same key with a cache as without one. So an engine that observes reading makes the changes at
these calls, by the lines that change a run. Blocks without changes, and all other ops, run on the engine in use, by its
kernels. What a token alone does not tell is changed in runs on the whole text, one for every token that is written: by
a function that may mix positions, by what was there without other changes, or where a token would see later ones.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ..core.arrays import Array, Tree
from ..core.dispatch import Engine, current, use_engine
from ..core.errors import ConfigError, did_you_mean
from ..core.quantized import unpacked
from ..core.tree import flatten, named, rebuilt
from ..layers import Cache
from ..models import Batch, EncoderDecoder, Model
from ..text.tokenizer import NUMBERS
from .changes import ALL, EXACT, Change, Intervention, Placed
from .names import MASK, RETURNED, WEIGHTS, axes_of, is_of_source
from .pieces import Piece, check_asked, is_of_all_tokens, within
from .run import Run, addresses_of, changed_run, sorted_changes, watched, with_inputs
from .tracing import NOWHERE, Call, Key, PathCounter

PROMPT, NEW = "prompt", "new"
INPUTS = ("tokens", "source")
"""What a model reads first."""


def changed_model(model: Model, params: Tree, changes: Sequence[Change], prompt: int) -> tuple[Model, Tree]:
    """Return a model, and its parameters, that makes these changes wherever it reads what it continues.

    prompt   how many tokens the prompts have
    """
    leaves = flatten(params)
    for change in changes:
        if change.name in leaves:
            leaves[change.name] = change.apply(np.asarray(unpacked(leaves[change.name])), model.config.heads)
    values = [change for change in changes if change.name not in leaves]
    plan = _planned(model, params, values, prompt)
    own = type(f"Changed{type(model).__name__}", (_ChangedReading, type(model)), {"plan": plan})
    changed: Any = object.__new__(own)
    changed.__dict__.update(vars(model))
    return changed, named(params if len(values) == len(changes) else rebuilt(params, leaves))


class _ChangedReading:
    """Reads with changes; stands before the class of a model."""

    plan: "ChangePlan"

    @property
    def rereads(self) -> bool:
        """Whether the whole text is read for every token."""
        return self.plan.rereads or super().rereads  # type: ignore[misc]

    def read(
        self, params: Tree, tokens: Array, cache: Cache, *, positions: Array | None = None, **settings: Any
    ) -> Any:
        rows, keys = cache.rows(tokens.shape[-1]), cache.columns(tokens.shape[-1])
        if positions is not None:  # texts are padded on the left, so all end here
            padding = (rows[-1] - positions[..., -1])[..., None]
            rows, keys = rows - padding, keys - padding
        with _ChangingEngine(self.plan, current(), rows, keys).changing():
            return super().read(_located(params), tokens, cache, positions=positions, **settings)  # type: ignore[misc]

    def new_cache(self, *arguments: Any, **settings: Any) -> Any:
        if not arguments:
            return super().new_cache()  # type: ignore[misc]
        params, source, *others = arguments
        places = np.arange(source.shape[-1])
        with _ChangingEngine(self.plan, current(), places, places).changing(of_source=True):
            return super().new_cache(_located(params), source, *others, **settings)  # type: ignore[misc]

    def predict(self, params: Tree, batch: Batch, **settings: Any) -> Any:
        run = self.plan.changed(params, batch)
        return run.logits, run.record


def _located(params: Tree) -> Tree:
    """Return parameters that know their paths: those that JAX traces have lost them."""
    return params if hasattr(params, "path") else named(params)


class Site(NamedTuple):
    """Where a value is made, or read first, in any pass: at a place of a call.

    axes     what its axes are called
    around   keys of the ops that make the call
    """

    key: Key
    place: int | str
    axes: list[str]
    around: frozenset[Key]


@dataclass
class BlockGroup:
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
    """The calls that are changed, and their changes.

    placed    by the key of a call: what of it is changed, by which change
    opened    keys of the ops in which such a call is made; these run as written
    rereads   whether a change needs the whole text
    """

    model: Model
    changes: list[Change]
    sites: dict[str, Site]
    placed: Placed = field(default_factory=dict)
    opened: set[Key] = field(default_factory=set)
    rereads: bool = False
    groups: WeakKeyDictionary[Cache, list[BlockGroup]] = field(default_factory=WeakKeyDictionary)
    _plain: tuple[Tree, Tree] = None, None

    def is_inside(self, path: str) -> bool:
        """Return whether a value is changed in a layer, given its path."""
        return any(not path or f"{key.path}.".startswith(f"{path}.") for key in self.placed)

    def changed(self, params: Tree, batch: Batch) -> Run:
        """Return a run on whole texts with the changes that are about tokens of it."""
        if self._plain[0] is not params:
            self._plain = params, unpacked(params)
        run = watched(self.model, self._plain[1], batch, NUMBERS)
        sizes = {"text": batch.tokens.shape[-1], "source": 0 if batch.source is None else batch.source.shape[-1]}
        own = (within(change, self.sites[change.name].axes, sizes) for change in self.changes)
        inputs, values = sorted_changes(run, tuple(change for change in own if change is not None))
        return changed_run(with_inputs(run, inputs)[0], values, run)


def _planned(model: Model, params: Tree, changes: list[Change], prompt: int) -> ChangePlan:
    """Return the plan for changes of values; refuse what cannot be done while a model writes."""
    plan = ChangePlan(model, [], sites_of(model, params) if changes else {})
    for change in (from_start(one, prompt) for one in changes):
        if change.backward:
            raise ConfigError(f"{change.word} is about a gradient, and writing computes none", hint="leave it out")
        if change.where.example is not None:
            raise ConfigError("a model that writes knows no examples", hint="call generate with all prompts")
        if change.name not in plan.sites:
            raise ConfigError(
                f"there is no value {change.name!r} that is computed while this model writes",
                hint=did_you_mean(change.name, plan.sites),
            )
        check_asked(change)
        site = plan.sites[change.name]
        plan.changes.append(change)
        if change.name not in INPUTS:
            plan.placed.setdefault(site.key, []).append((site.place, ALL, change))
            plan.opened |= site.around
        plan.rereads = plan.rereads or not _is_of_each_token(change, site)
    return plan


def from_start(change: Change, prompt: int) -> Change:
    """Return a change with "prompt" and "new" as the positions that they are."""
    asked = change.where.position
    if not isinstance(asked, str):
        return change
    if asked not in (PROMPT, NEW):
        raise ConfigError(f"position is {asked!r}", hint='use "prompt", "new", numbers or a slice')
    position = slice(0, prompt) if asked == PROMPT else slice(prompt, None)
    return replace(change, where=replace(change.where, position=position))


def _is_of_each_token(change: Change, site: Site) -> bool:
    """Return whether a token, with those before it, tells what a change makes of its value."""
    if change.function is not None:
        return change.per_position and "key" not in site.axes
    if change.name in INPUTS or change.word in EXACT or is_of_all_tokens(change, site.axes):
        return False
    parts = change.name.split(".")
    # What is put at keys that a token may not see would make it depend on what comes later.
    lets_see = parts[-1] in (WEIGHTS, MASK) and not {"cross_attention", "encoder"} & {*parts}
    return not (lets_see and np.any(change.value))


def sites_of(model: Model, params: Tree) -> dict[str, Site]:
    """Return where a model makes each of its values, found once by a run on one token."""
    if "_sites" not in vars(model):
        token = np.zeros((1, 1), np.int64)
        batch = Batch(token, source=token.copy() if isinstance(model, EncoderDecoder) else None)
        addresses, axes, calls = addresses_of(model, params, batch)
        found = {}
        for name, (number, place) in addresses.items():
            call, around, own = calls[number], set(), calls[number].parent
            while own is not None:
                around |= set() if own.is_method else {own.key}
                own = own.parent
            found[name] = Site(call.key, place, axes_of(name, axes[name]), frozenset(around))
        given = [name for name in INPUTS if getattr(batch, name) is not None]
        found |= {name: Site(NOWHERE, RETURNED, axes_of(name, 2), frozenset()) for name in given}
        vars(model)["_sites"] = found
    return vars(model)["_sites"]


class _ChangingEngine(Engine):
    """Changes values where ops make or read them; everything else runs on another engine."""

    observes = True

    def __init__(self, plan: ChangePlan, base: Engine, positions: Array, keys: Array) -> None:
        self.plan, self.base, self.paths = plan, base, PathCounter()
        self.name, self.library = base.name, base.library
        self.intervention = Intervention(plan.placed, plan.model.config.heads, Piece(positions, keys, base.on_host))

    @contextmanager
    def changing(self, *, of_source: bool = False) -> Iterator[None]:
        """Use the engine for one reading, of the source or of what is written, which must make all its changes."""
        with use_engine(self):
            yield
        for change in self.plan.changes:
            if is_of_source(change.name) == of_source and change not in self.intervention.made:
                raise ConfigError(
                    f"the change {change.word!r} of {change.name} was not made: reading on does not compute it",
                    hint="make it on a text, model.watch(text).changed(…); or write without a cache",
                )

    def inside(self, method: Callable[..., Any], arguments: tuple[Any, ...], settings: Any) -> Any:
        """Execute a method of a layer: what it calls stands at its path."""
        outer = self.paths.path
        self.paths.enter(arguments)
        try:
            return method(*arguments, **settings)
        finally:
            self.paths.path = outer

    def observe(self, function: Any, written: Callable[..., Any], arguments: tuple[Any, ...], settings: Any) -> Any:
        """Do one call: with changes, as written with changes inside, or on the other engine."""
        call = Call(0, function, arguments, settings, None)
        outer = self.paths.path
        path = self.paths.enter(arguments) if call.is_method else None
        call.key = self.paths.key(call.name)
        try:
            if call.name.endswith(".read_blocks") and type(arguments[3]) is Cache and not self._changes_bias(arguments):
                return self._read_blocks(function, *arguments)  # else a compiler sees all blocks at once
            self.intervention.before(call)
            if self._is_opened(call, path):
                call.result = written(*call.arguments, **call.settings)
            else:
                with use_engine(self.base):
                    call.result = function(*call.arguments, **call.settings)
            self.intervention.after(call)
        finally:
            self.paths.path = outer
        return call.result

    def _is_opened(self, call: Call, path: str | None) -> bool:
        """Return whether a value is changed inside of a call."""
        if not call.is_method:
            return call.key in self.plan.opened
        if path is None:  # a part of a layer
            return any(key.path == call.key.path for key in self.plan.placed)
        return self.plan.is_inside(path)

    def _changes_bias(self, arguments: tuple[Any, ...]) -> bool:
        """Return whether the bias is changed that all blocks of a stack share."""
        stack, params, *_ = arguments
        return stack.positions is not None and self.plan.is_inside(params.get(stack.positions.name, {}).path)

    def _read_blocks(self, function: Any, stack: Any, params: Tree, x: Array, cache: Cache, rotation: Any) -> Array:
        """Read one token through all blocks: those without changes inside together, as the other engine does it."""
        if cache not in self.plan.groups:
            self.plan.groups[cache] = list(self._groups(stack, params, cache))
        for group in self.plan.groups[cache]:
            group.cache.mask, group.cache.memory_mask = cache.mask, cache.memory_mask
            if group.is_opened:
                x = function.__wrapped__(group.stack, group.params, x, group.cache, rotation)
            else:
                with use_engine(self.base):
                    x = function(group.stack, group.params, x, group.cache, rotation)
            for change in group.after:
                x = self.intervention.of_piece(change, x)
        return x

    def _groups(self, stack: Any, params: Tree, cache: Cache) -> Iterator[BlockGroup]:
        """Cut a stack after each block whose result is changed, and around each that is changed inside."""
        names = [block.path for block in params["blocks"]]
        changes = [[change for key, placed in self.plan.placed.items() if f"{key.path}.".startswith(f"{name}.")
                    for *_, change in placed] for name in names]  # fmt: skip
        opened = [any(change.name != name for change in own) for name, own in zip(names, changes, strict=True)]
        edges = {0, len(names), *(n + 1 for n, own in enumerate(changes) if own)} | {
            n for n, is_opened in enumerate(opened) if is_opened
        }
        for start, stop in pairwise(sorted(edges)):
            part = copy.copy(cache)
            part.blocks = cache.blocks[start:stop]
            own = {**params, "blocks": params["blocks"][start:stop]}
            after = [] if opened[stop - 1] else changes[stop - 1]
            yield BlockGroup(replace(stack, layers=stop - start), own, part, opened[start], after)
