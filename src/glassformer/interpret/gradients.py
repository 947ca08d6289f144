"""The backward pass, by the names of the forward pass: the gradient of one number for every value.

The layers' own backward passes run, traced as the forward pass was. A backward is handed the gradient of what its
forward returned, and returns those of what its forward read: so each gradient has the name of its value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.dispatch import use_engine
from ..core.errors import ConfigError, LengthError, did_you_mean
from ..core.show import NamedValues
from ..core.tree import flatten, named
from ..text.tokenizer import NUMBERS, check_token
from .changes import Change, add_gradient, exchanged, listed
from .memory import check_fits
from .names import RETURNED, Address, check_name, value_at
from .run import Run, mean_loss, thawed
from .tracing import Call, TracingEngine, argument_name, forward_name, gradient_of, gradient_place, run_traced

NORMS = ("layer_norm", "rms_norm")


@dataclass(frozen=True)
class Loss:
    """The mean cross-entropy of the batch."""

    def label(self, run: Run) -> str:
        """Return what tables call it."""
        return "loss"

    def value(self, run: Run) -> Any:
        """Return the number itself."""
        return mean_loss(run.logits, run.targets)[0]

    def seed(self, run: Run) -> tuple[Array, list[Change]]:
        """Return the gradient of the logits, and of values besides."""
        record = mean_loss(run.logits, run.targets)[1]
        with use_engine("numpy"):
            return ops.cross_entropy_backward(np.ones((), run.logits.dtype), record), []


def token_text(run: Run, token: int | str) -> str:
    """Return a token, or a class, as tables show it: its text in quotes, or the number in a run without texts."""
    return str(token) if run.labels == NUMBERS else repr(run.label(token))


@dataclass(frozen=True)
class Logit:
    """One logit, or by how much it is above another: of a token at a position, or of a class.

        Logit(7, against=3)      Logit(" Paris", against=" Rome")      texts where the run has a tokenizer

    A negative position counts from the end of the example, its padding left out.
    """

    token: int | str
    position: int = -1
    example: int = 0
    against: int | str | None = None

    def __post_init__(self) -> None:
        for token in (self.token, 0 if self.against is None else self.against):
            check_token(token)
        for number in (self.position, self.example):
            if not isinstance(number, int | np.integer):
                raise ConfigError(f"{number!r} is no number of a position or an example", hint="give a whole number")

    def label(self, run: Run) -> str:
        """Return what tables call it."""
        chosen = [self.token] if self.against is None else [self.token, self.against]
        return " − ".join(f"logit of {token_text(run, one)}" for one in chosen)

    def seed(self, run: Run) -> tuple[Array, list[Change]]:
        """Return the gradient of the logits: 1 at the one, −1 at the other."""
        dlogits = np.zeros_like(run.logits)
        for token, sign in ((self.token, 1), (self.against, -1)):
            if token is not None:
                dlogits[self.place(run, token)] += sign
        return dlogits, []

    def value(self, run: Run) -> Any:
        """Return the number itself."""
        minus = 0 if self.against is None else run.logits[self.place(run, self.against)]
        return run.logits[self.place(run, self.token)] - minus

    def place(self, run: Run, token: int | str) -> tuple[int, ...]:
        """Return where the logit of a token stands."""
        number, mask = run.token_id(token), run.batch.mask
        examples, *positions, _ = run.logits.shape
        if not -examples <= self.example < examples:
            raise LengthError(f"there is no example {self.example}", hint=f"the batch has {examples}")
        if not positions:
            return self.example, number
        places = np.arange(positions[0])
        if mask is not None and self.position < 0:
            places = places[np.asarray(mask)[self.example]]
        if not -len(places) <= self.position < len(places):
            raise LengthError(f"there is no position {self.position}", hint=f"the example has {len(places)}")
        return self.example, int(places[self.position]), number


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of the entries of any value of the run, each weighed: Sum("blocks.0", direction, position=3)."""

    change: Change

    def __init__(self, name: str, weights: Array | float = 1.0, **where: Any) -> None:
        object.__setattr__(self, "change", add_gradient(name, weights, **where))

    def value(self, run: Run) -> Any:
        """Return the number itself."""
        check_name(self.change.name, run)
        value = run[self.change.name]
        return np.sum(value[self.change.where.index(self.change.name, value.shape, run.heads)] * self.change.value)

    def seed(self, run: Run) -> tuple[Array, list[Change]]:
        """Return no gradient of the logits, and one of the entries."""
        check_name(self.change.name, run)
        return np.zeros_like(run.logits), [self.change]


Target = Loss | Logit | Sum
LOSS = Loss()


@dataclass(frozen=True, eq=False, repr=False)
class Gradients(NamedValues):
    """The gradient of one number for every value of a run, by its name, and for the parameters."""

    run: Run
    params: Tree
    undoing: dict[int, Call]
    arrived: Mapping[Address, Array]  # the gradients of values that were changed, as they became
    no_effect: tuple[Change, ...] = ()  # the changes of gradients that altered nothing
    asked: tuple[Any, ...] = ()  # the target, and the changes of gradients

    def __reduce__(self) -> Any:
        return gradients, (self.run, *self.asked)

    def __getitem__(self, name: str) -> Array:
        check_name(name, self.run)
        if name not in self.known:
            raise ConfigError(f"{name} has no gradient", hint="it depends on no parameter, or is no real number")
        return self.known[name]()

    def __repr__(self) -> str:
        return f"<gradients of {len(self)} values for {self.run!r}>"

    @cached_property
    def known(self) -> dict[str, Callable[[], Array]]:
        """Where the gradient of each value is found, by its name."""
        return {name: place for name in self.run if (place := self.place(self.run.addresses[name])) is not None}

    def place(self, address: Address) -> Callable[[], Array] | None:
        """Return where the gradient of a value is found, None for one that has none."""
        return (lambda: self.arrived[address]) if address in self.arrived else self.handed(address)

    def handed(self, address: Address) -> Callable[[], Array] | None:
        """Return what gives the gradient before the value's changes, as passed to its producer; None for none."""
        own = self.run.calls[address.number]
        call = self.undoing.get(address.number)
        if call is None:
            norm, statistic = own.parent, _statistic(own)
            outer = None if norm is None else self.undoing.get(norm.number)
            if norm is None or outer is None or statistic is None:
                return None
            return lambda: _unfolded(self.run, norm, outer.arguments[0], lambda _, dx: dx)[statistic]
        if address.place == RETURNED:
            return lambda: call.arguments[gradient_place(call)]
        gradient = gradient_of(call, own, address.place)
        return None if gradient is None else lambda: gradient

    def param(self, name: str) -> Array:
        """Return the gradient of a parameter."""
        leaves = flatten(self.params)
        if name not in leaves:
            raise ConfigError(f"there is no parameter {name!r}", hint=did_you_mean(name, leaves))
        return leaves[name]


def gradients(run: Run, of: Target = LOSS, changes: Change | Sequence[Change] = ()) -> Gradients:
    """Run the layers backward from the loss, or from another target, with changes of gradients on the way."""
    changes = listed(changes)
    check_fits(run.model.config, run.batch, run.logits.itemsize)
    dlogits, seeds = of.seed(run)
    for change in changes:
        check_name(change.name, run)
        if not change.backward:
            raise ConfigError(f"{change.word} is about a value, not its gradient", hint="pass it to changed()")
    values = [change for change in run.changes if change.name in run.addresses]
    undo = _Undoing(run, [*values, *seeds, *changes])
    engine = TracingEngine(undo.before, undo.after)
    grads = run_traced(run.model.backward, named(run.params), run.record, dlogits, engine=engine)
    undo.check_done()
    no_effect = tuple(change for change in changes if not any(change is one for one in undo.altered))
    return Gradients(run, grads, undo.undoing, undo.arrived, no_effect, (of, changes))


class _Undoing:
    """Pairs the calls of a backward pass with those that they undo; undoes changes of values, and changes gradients.

    undoing   the call of the backward pass by the number of the call that it undoes
    arrived   the gradients of values that were changed, as they became
    altered   the changes of gradients that altered something
    """

    def __init__(self, run: Run, changes: list[Change]) -> None:
        self.run = run
        self.undoing: dict[int, Call] = {}
        self.forward: dict[int, int] = {}  # the same, the other way around
        # Of the calls of an op at one path, the last is undone first: the backward pass is the list reversed.
        self.made: dict[tuple[str, str], list[Call]] = defaultdict(list)
        for call in run.calls:
            self.made[call.key[:2]].append(call)
        self.arrived: dict[Address, Array] = {}
        self.altered: list[Change] = []
        self.changes: dict[Address, list[Change]] = {}
        self.norms: set[int] = set()
        for change in changes:
            address = run.addresses[change.name]
            own = run.calls[address.number]
            if _statistic(own) is not None and own.parent is not None:
                self.norms.add(own.parent.number)
            self.changes.setdefault(address, []).append(change)

    def check_done(self) -> None:
        """Refuse changes that the backward pass did not meet."""
        for address, (change, *_) in self.changes.items():
            own = self.run.calls[address.number]
            undone = own.parent if _statistic(own) is not None and own.parent is not None else own
            if undone.number not in self.undoing:
                raise ConfigError(f"no backward pass goes through {change.name}")

    def before(self, call: Call) -> None:
        """Change dy, the gradient of what the forward returned, and put back what an op itself had read and made."""
        made = self.made.get((call.key.path, forward_name(call.name)))
        if not made:
            return
        number = made.pop().number
        self.undoing[number], self.forward[call.number] = call, number
        arguments, address = list(call.arguments), Address(number, RETURNED)
        if address in self.changes:
            place = gradient_place(call)
            arguments[place] = self._undone(address, arguments[place])
        for own in () if call.is_method else (address, *(Address(number, n) for n in range(len(arguments)))):
            if own in self.changes and own in self.run.originals:
                now, first = value_at(self.run.calls[number], own.place), self.run.originals[own]
                # What was changed after an op had made it; before it read it, while its layer kept what there was.
                arguments[1] = exchanged(arguments[1], *((now, first) if own == address else (first, now)))
        call.arguments = tuple(arguments)

    def after(self, call: Call) -> None:
        """Change the gradients of what the forward read."""
        number = self.forward.get(call.number)
        if number is None:
            return
        own = self.run.calls[number]
        if own.number in self.norms:
            parts = _unfolded(self.run, own, call.arguments[0], self._undone)
            call.result = (parts["x"], *call.outputs[1:])
        for place in range(len(own.arguments)):
            address = Address(own.number, place)
            if address in self.changes:
                gradient = gradient_of(call, own, place)
                if gradient is None:
                    raise ConfigError("no gradient goes to what was changed")
                call.result = _with_gradient(call, own, place, self._undone(address, gradient))

    def _undone(self, address: Address, gradient: Array) -> Array:
        """Return the gradient of a value as it was made, for the one of the value as it became."""
        changes = self.changes.get(address, [])
        for change in changes:
            if change.backward:
                before, gradient = gradient, change.apply(gradient, self.run.heads)
                if not np.array_equal(before, gradient):
                    self.altered.append(change)
        if changes:
            self.arrived[address] = gradient
        return undo_changes(self.run, address, [change for change in changes if not change.backward], gradient)


def undo_changes(run: Run, address: Address, changes: Sequence[Change], gradient: Array) -> Array:
    """Return the gradient of a value before its changes, for the gradient of the value after them."""
    x = run.originals.get(address)
    inputs: list[Array | None] = []  # the value that each change was given, for those that are functions of it
    for change in changes:
        inputs.append(x)
        if x is not None and any(one.function is not None for one in changes):
            x = thawed(change, run.plain or run).apply(x, run.heads)
    for change, own in zip(reversed(changes), reversed(inputs), strict=True):
        gradient = change.undo(gradient, run.heads, own)
    return gradient


def _with_gradient(call: Call, own: Call, place: int, gradient: Array) -> Any:
    """Return what a backward returned, with another gradient of one argument."""
    outputs = list(call.outputs)
    if own.is_method and isinstance(outputs[0], tuple):
        outputs[0] = outputs[0]._replace(**{argument_name(own, place): gradient})  # type: ignore[attr-defined]
    else:
        outputs[0 if own.is_method else place] = gradient
    return tuple(outputs) if isinstance(call.result, tuple) else gradient


# --- the statistics of norms -----------------------------------------------------------------------------------------


def _statistic(own: Call) -> str | None:
    """Return which statistic of a norm a call computed."""
    if own.parent is None or own.parent.name not in NORMS:
        return None
    if own.name == "inverse_root":
        return "root"
    return "mean" if own.name == "average" and own.arguments[0] is own.parent.arguments[0] else None


def _unfolded(run: Run, norm: Call, dy: Array, undone: Callable[[Address, Array], Array]) -> dict[str, Array]:
    """Return the gradients of a norm part by part, by name: x, root and mean, which an RMS norm has not.

    The backward passes of norms fold mean and root into one formula. Here each has a gradient of its own, and may have
    been replaced by something that depends on x in another way, or not at all: `undone` is what changes do to it.

        u = x − mean      x̂ = u · root      y = gamma · x̂ + beta
        mean = average x                    root = 1 / √(average u² + eps)

        droot = Σ dx̂ · u                    root = (v + eps)^(−1/2), so dv = −root³/2 · droot, with v = average u²
        du = dx̂ · root + 2 u dv / D         dmean = −Σ du         dx = du + dmean / D
    """
    x, gamma, *_ = norm.arguments
    inner = {_statistic(one): one for one in run.calls[norm.number + 1 : norm.end]}
    addresses = {name: Address(one.number, RETURNED) for name, one in inner.items()}
    root = inner["root"].outputs[0]
    u = x - inner["mean"].outputs[0] if "mean" in inner else x
    dx_hat = dy * gamma
    droot = np.sum(dx_hat * u, axis=-1, keepdims=True)
    made = run.originals.get(addresses["root"], root)  # as it was computed, before any change
    dv = -(made**3) / 2 * undone(addresses["root"], droot)
    du = dx_hat * root + 2 * u * dv / x.shape[-1]
    if "mean" not in inner:
        return {"x": du, "root": droot}
    dmean = -np.sum(du, axis=-1, keepdims=True)
    return {"x": du + undone(addresses["mean"], dmean) / x.shape[-1], "mean": dmean, "root": droot}
