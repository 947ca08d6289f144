"""A run of a model that one can look into, change, and run back.

    run = watch(model, params, batch)
    run["blocks.0.attention.attend.weights"]                        any value by its name
    run.changed(zero("blocks.0.attention.output.x", head=1)).loss   what would have been
    gradients(run)["blocks.0.attention.attend.weights"]             the gradient of the loss, by the same name

Nothing is approximated and nothing is changed in place: a changed run is a new run, in which the same lines of the same
ops and layers ran on other numbers. Calls before the first change have nothing to do with it, and are not done again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, overload

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.dispatch import use_engine
from ..core.errors import ConfigError
from ..core.execution import Execution
from ..core.quantized import Quantized, as_stored, owned, unpacked
from ..core.show import NamedValues
from ..core.tree import flatten, named, rebuilt
from ..models import Batch, Model
from ..text.tokenizer import NUMBERS, Labels, id_of
from ..weights.loaded_model import LoadedModel, trained_or_pair
from .changes import ALL, Change, Intervention, Placed, listed
from .memory import check_fits
from .names import LOGITS, RETURNED, VECTORS, Address, Addresses, Names, check_name, value_at
from .tracing import Call, TracingEngine, is_block, run_traced


@dataclass(frozen=True, eq=False, repr=False)
class Run(NamedValues):
    """One forward pass over a batch, with every value by its name.

    changes   what was changed, in the order given
    no_effect those of them that altered nothing
    plain     the run without changes; None if this is one
    originals what was there before, by the address of each change
    labels    how to call the ids
    """

    model: Model
    params: Tree
    batch: Batch
    logits: Array
    record: Tree
    calls: list[Call]
    addresses: Addresses
    changes: tuple[Change, ...] = ()
    no_effect: tuple[Change, ...] = ()
    plain: Run | None = None
    originals: Mapping[Address, Array] = field(default_factory=dict)
    labels: Labels = NUMBERS

    def __getitem__(self, name: str) -> Array:
        check_name(name, self.addresses)
        number, place = self.addresses[name]
        return value_at(self.calls[number], place)

    @property
    def known(self) -> Addresses:
        """The address of every value by its name."""
        return self.addresses

    def __repr__(self) -> str:
        changed = f", {len(self.changes)} changes" if self.changes else ""
        return f"<run of {type(self.model).__name__} on {self.batch.tokens.shape}: {len(self)} values{changed}>"

    def __reduce__(self) -> Any:
        """Pickle, or copy, what made the run: it runs again."""
        start = self.plain or self
        return _again, (start.model, start.params, start.batch, self.labels, self.changes)

    @property
    def heads(self) -> int:
        """Heads of attention."""
        return int(self.model.config.heads)

    @cached_property
    def tokens(self) -> list[list[str]]:
        """The names of the tokens of each example; padding is empty."""
        ids = np.asarray(self.batch.tokens)
        real = np.ones(ids.shape, dtype=bool) if self.batch.mask is None else np.asarray(self.batch.mask)
        return [[self.labels.tokens(int(i)) if is_real else "" for i, is_real in zip(*row, strict=True)]
                for row in zip(ids, real, strict=True)]  # fmt: skip

    def token_id(self, token: int | str) -> int:
        """Return the id of a token, or of a class, that the run predicts: by itself, by its text, or as #id."""
        return id_of(self.labels, token, self.logits.shape[-1], is_class=self.logits.ndim == 2)

    def label(self, token: int | str) -> str:
        """Return what a token, or a class, that the run predicts is called."""
        number = self.token_id(token)
        return (self.labels.tokens if self.logits.ndim == 3 else self.labels.classes or str)(number)

    @cached_property
    def loss(self) -> float:
        """The mean cross-entropy of the batch."""
        return float(mean_loss(self.logits, self.targets)[0])

    @property
    def targets(self) -> Array:
        """The targets of the batch."""
        if self.batch.targets is None:
            raise ConfigError("the batch has no targets", hint="a loss needs Batch(tokens, targets)")
        return self.batch.targets

    def changed(self, *changes: Change) -> Run:
        """Return the run as it would have been with these changes, besides those that this one has.

        A change may be to a value of the run, to a parameter, or to a part of the batch, such as tokens or mask.
        """
        start = self.plain or self
        wanted = (*self.changes, *listed(changes))
        inputs, values = sorted_changes(start, wanted)
        check_fits(start.model.config, start.batch, start.logits.itemsize)
        for change in values:  # what cannot be found is refused before anything runs
            change.where.index(change.name, start[change.name].shape, start.heads)
        base, no_effect = with_inputs(start, inputs)
        run = changed_run(base, values, start)
        no_effect += run.no_effect
        for change in no_effect:
            if change.word == "freeze":
                continue  # what would not have moved is frozen all the same
            logging.getLogger("glassformer").warning("the change %r of %s altered nothing", change.word, change.name)
        return replace(run, changes=wanted, no_effect=no_effect, plain=start) if wanted else start


def _again(model: Model, params: Tree, batch: Batch, labels: Labels, changes: tuple[Change, ...]) -> Run:
    return watch(model, params, batch, labels=labels).changed(*changes)


@dataclass(frozen=True, eq=False, repr=False)
class Kept(NamedValues):
    """Some values of a forward pass that may have ended early, by their names.

    names, until   what was asked for
    addresses      of all values that the whole pass has
    """

    model: Model
    params: Tree
    batch: Batch
    kept: dict[str, Array]
    names: Sequence[str] | None
    until: str | None
    addresses: Addresses

    def again(self, batch: Batch) -> Kept:
        """Return the same values of another batch, which has the same parts: a mask, a source, segments."""
        if [part is None for part in batch[2:]] != [part is None for part in self.batch[2:]]:
            return watch(self.model, self.params, batch, names=self.names, until=self.until)
        return _kept(self.model, self.params, batch, self.names, self.until, self.addresses)

    def __getitem__(self, name: str) -> Array:
        check_name(name, self.addresses)
        if name not in self.kept:
            raise ConfigError(f"{name} was not kept", hint=f"watch with names=[{name!r}, …], or without any")
        return self.kept[name]

    @property
    def known(self) -> dict[str, Array]:
        """The values that were kept."""
        return self.kept

    def __repr__(self) -> str:
        return f"<{len(self)} values of {type(self.model).__name__} on {self.batch.tokens.shape}>"


@overload
def watch(model: Model, params: Tree, batch: Batch, *, labels: Labels = NUMBERS) -> Run: ...
@overload
def watch(
    model: Model, params: Tree, batch: Batch, *, names: Sequence[str] | None = None, until: str | None = None
) -> Kept: ...
@overload
def watch(model: LoadedModel, batch: Batch, **settings: Any) -> Any: ...


@trained_or_pair
def watch(
    model: Model,
    params: Tree,
    batch: Batch,
    *,
    labels: Labels = NUMBERS,
    names: Sequence[str] | None = None,
    until: str | None = None,
) -> Run | Kept:
    """Run a model on a batch with one axis of examples, and keep every value, or those asked for.

    A trained model stands for `model` and `params`, and knows its labels; `model.watch(text)` makes the batch as well.

    labels   how to call the ids
    names    the only values to keep; the pass ends with the last of them
    until    the value with which the pass ends
    """
    if np.ndim(batch.tokens) != 2:
        raise ConfigError(
            f"the tokens have shape {np.shape(batch.tokens)}", hint="a watched batch is (examples, positions)"
        )
    if batch.source is batch.tokens and batch.source is not None:
        batch = batch._replace(source=np.array(batch.source))  # two values, told apart by their arrays
    if names is not None or until is not None:
        return _kept(_lean(model), as_stored(params), batch, names, until, addresses_of(model, params, batch)[0])
    params = owned(unpacked(params))
    check_fits(model.config, batch, max(leaf.itemsize for leaf in flatten(params).values()))
    return watched(replace(model, execution=Execution()), params, batch, labels)  # type: ignore[type-var]


def addresses_of(model: Model, params: Tree, batch: Batch) -> tuple[Addresses, dict[str, int], list[Call]]:
    """Return the address of each value, how many axes it has, and the calls, without their arrays.

    They are those of a run on one token of one example: calls do not depend on sizes.
    """
    short = (None if part is None else np.asarray(part)[:1, :1] for part in batch._replace(targets=None))
    names = Names()
    engine = TracingEngine(load=_unpack, forgets=True, names=names)
    _traced(_lean(model), as_stored(params), Batch(*short), engine)
    return names.addresses(), names.axes, engine.calls


def _lean(model: Model) -> Model:
    """Return a model whose blocks keep no record of what is inside them."""
    return replace(model, execution=Execution(remat=True))  # type: ignore[type-var]


def watched(model: Model, params: Tree, batch: Batch, labels: Labels) -> Run:
    """Return a run of a model on a batch, with parameters as they are to be kept."""
    engine = TracingEngine(names=Names())
    logits, record = _traced(model, params, batch, engine)
    addresses = engine.names.addresses()
    _lock(engine.calls, addresses)
    return Run(model, params, batch, logits, record, engine.calls, addresses, labels=labels)


def _traced(model: Model, params: Tree, batch: Batch, engine: TracingEngine) -> tuple[Array, Tree]:
    """Return the logits and the record of a traced pass, all of whose values get their names."""
    logits, record = run_traced(read, model, params, batch, engine=engine)
    engine.names.note(VECTORS if has_no_head(model) else LOGITS, logits)
    return logits, record


class _LastValueError(Exception):
    """Ends a pass: it has computed all that was asked for."""


def _kept(
    model: Model, params: Tree, batch: Batch, names: Sequence[str] | None, until: str | None, addresses: Addresses
) -> Kept:
    for name in [*(names or ()), *([until] if until else ())]:
        check_name(name, addresses)
    # What a call reads is kept before it runs, what it returned afterwards.
    moments = {name: (number, place == RETURNED) for name, (number, place) in addresses.items()}
    waiting: dict[tuple[int, bool], list[str]] = {}
    for name in addresses if names is None else names:
        waiting.setdefault(moments[name], []).append(name)
    values: dict[str, Array] = {}

    def keep(call: Call, returned: bool) -> None:
        moment = call.number, returned
        for name in waiting.pop(moment, ()):
            values[name] = value_at(call, addresses[name].place)
        if not waiting or (until is not None and moment == moments[until]):
            raise _LastValueError

    engine = TracingEngine(partial(keep, returned=False), partial(keep, returned=True), _unpack, forgets=True)
    with suppress(_LastValueError):
        run_traced(read, model, params, batch, engine=engine)
    late = [name for name in names or () if name not in values]
    if late:
        raise ConfigError(f"{late[0]} is computed after {until}", hint=f"end later: until={late[0]!r}")
    for value in values.values():
        value.flags.writeable = False
    return Kept(model, params, batch, values, names, until, addresses)


def _lock(calls: list[Call], addresses: Addresses) -> None:
    """Make the values of a run read-only, since writing into them would change later answers."""
    for number, place in addresses.values():
        value = value_at(calls[number], place)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


def read(model: Model, params: Tree, batch: Batch) -> tuple[Array, Tree]:
    """Return the logits of a batch and the record; of an encoder without a head, its vectors."""
    params = named(params)
    if has_no_head(model):
        return model.forward(params, batch.tokens, mask=batch.mask, segments=batch.segments)
    return model.predict(params, batch)


def has_no_head(model: Model) -> bool:
    """Return whether a model makes vectors and predicts nothing."""
    return getattr(model.config, "head", None) == "none"


def mean_loss(logits: Array, targets: Array) -> tuple[Array, Any]:
    """Return the mean cross-entropy of logits (..., V), and its record."""
    with use_engine("numpy"):
        return ops.cross_entropy(logits, targets)


# --- changes ---------------------------------------------------------------------------------------------------------


def sorted_changes(start: Run, changes: tuple[Change, ...]) -> tuple[list[Change], list[Change]]:
    """Return the changes of parameters and of the batch, and those of values."""
    given = [*flatten(start.params), *(name for name, part in start.batch._asdict().items() if part is not None)]
    for change in changes:
        check_name(change.name, dict.fromkeys([*given, *start.addresses]), "value or parameter")
        if change.backward:
            raise ConfigError(f"{change.word} is about a gradient", hint="pass it to gradients()")
        if change.config not in (None, start.model.config):
            raise ConfigError(
                f"the value for {change.name} comes from a run of another model",
                hint="take from a run of the same model, or put(name, other[name]) to mean it",
            )
    return [c for c in changes if c.name in given], [c for c in changes if c.name not in given]


def thawed(change: Change, start: Run) -> Change:
    """Return a change that freezes a value with what there is to put in its place."""
    return replace(change, value=start[change.name]) if change.word == "freeze" and change.value is None else change


def with_inputs(start: Run, changes: list[Change]) -> tuple[Run, tuple[Change, ...]]:
    """Return the run with other parameters and another batch."""
    if not changes:
        return start, ()
    leaves, parts, no_effect = flatten(start.params), start.batch._asdict(), []
    given = {name: unpacked(leaves[name]) if name in leaves else parts[name] for name in {c.name for c in changes}}
    for change in changes:
        where = parts if change.name in parts else leaves
        before = where[change.name] if where is parts else unpacked(where[change.name])
        own = replace(change, value=given[change.name]) if change.word == "freeze" else change
        where[change.name] = _input(own, before, start)
        if np.array_equal(before, where[change.name]):
            no_effect.append(change)
    run = watched(start.model, rebuilt(start.params, leaves), Batch(**parts), start.labels)
    return run, tuple(no_effect)


def _input(change: Change, before: Array, start: Run) -> Array:
    """Return a parameter, or a part of the batch, which keeps its type, with a change."""
    after = change.apply(np.asarray(before), start.heads)
    if before.dtype.kind in "fc":
        return after
    if not np.array_equal(after, after.astype(before.dtype)):
        raise ConfigError(
            f"{change.name} holds {before.dtype.name} numbers", hint="give whole numbers, or True or False"
        )
    return after.astype(before.dtype)


def changed_run(start: Run, changes: list[Change], plain: Run) -> Run:
    """Return a run with changes of its values, all of which it has; what is frozen stays as in the `plain` run."""
    if not changes:
        return start
    placed: Placed = {}
    for change in changes:
        number, place = start.addresses[change.name]
        placed.setdefault(start.calls[number].key, []).append((place, ALL, thawed(change, plain)))
    intervention = Intervention(placed, start.heads)
    first = min(start.addresses[change.name].number for change in changes)
    engine = TracingEngine(intervention.before, intervention.after, known=start.calls, first=first)
    logits, record = run_traced(read, start.model, start.params, start.batch, engine=engine)
    _lock(engine.calls, start.addresses)
    return replace(
        start, logits=logits, record=record, calls=engine.calls, changes=tuple(changes), plain=start,
        no_effect=tuple(intervention.no_effect), originals=intervention.originals,
    )  # fmt: skip


def _unpack(call: Call) -> tuple[Any, ...] | None:
    """Return the arguments of a block, or of a product with a packed matrix, with plain parameters; None for others.

    So only the parameters of one block, or one matrix outside of blocks, are unpacked at a time.
    """
    # The stack of a block, or the x of `linear`, comes first, and then the parameters.
    if not is_block(call) and not (call.name == "linear" and isinstance(call.arguments[1], Quantized)):
        return None
    first, packed, *rest = call.arguments
    return (first, named(unpacked(packed), getattr(packed, "path", "")), *rest)
