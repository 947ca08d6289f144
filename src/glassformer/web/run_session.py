"""An open model, and one run of it with what was computed about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.dispatch import use_engine
from ..core.errors import ConfigError
from ..core.quantized import Quantized, read_only, unpacked
from ..core.settings import check_known
from ..core.tree import count, flatten, tree_map
from ..interpret import Gradients, Logit, Run, Update, gradients, products, update, watch
from ..interpret.changes import Change
from ..interpret.memory import check_free, give_back
from ..interpret.reading import batch_of
from ..training.optimizers import OPTIMIZERS
from ..weights.loaded_model import LoadedModel
from .state import OptimizerStep, PageState

STEPPED = 5
"""Trees of parameters in a step of an optimizer: old and new ones, gradients, and two of the optimizer's state."""
PRECISE = 4_000_000
"""Models of at most this many parameters are explored in float64, so that every card is exact to the last digits."""


@dataclass(eq=False)
class OpenModel:
    """A model with its parameters as the explorer needs them: small ones in float64, quantized weights unpacked."""

    model: LoadedModel
    _words: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def count(self) -> int:
        """The number of parameters."""
        return count(self.model.params)

    @property
    def dtype(self) -> Any:
        """The dtype in which it computes."""
        return np.dtype(np.float64 if self.count <= PRECISE else np.float32)

    @cached_property
    def params(self) -> Tree:
        """The parameters as plain arrays; the model has quantized weights in this form, too, from then on."""
        if self.dtype == np.float64:
            return tree_map(lambda leaf: read_only(unpacked(leaf).astype(np.float64)), self.model.params)
        params = tree_map(lambda leaf: read_only(leaf.view()), unpacked(self.model.params))
        if any(isinstance(leaf, Quantized) for leaf in flatten(self.model.params).values()):
            self.model = replace(self.model, params=params)  # others may hold the one before
        give_back()
        return params

    def identities(self) -> set[int]:
        """The identities of the arrays of its parameters."""
        return {id(leaf) for tree in (self.model.params, self.params) for leaf in flatten(tree).values()}

    def words(self, part: str) -> list[str]:
        """Return the labels of all tokens that the model reads as `tokens` or `source`, or of all classes."""
        if part not in self._words:
            labels, config = self.model.token_labels, self.model.config
            sizes = {"tokens": "vocab", "source": "source_size", "classes": "classes"}
            call, size = (getattr(one, name, None) if part in sizes else None
                          for one, name in ((labels, part), (config, sizes.get(part, ""))))  # fmt: skip
            if call is None or size is None:
                raise ConfigError(f"the model has no {part[:40]!r}", hint="use tokens, source or classes")
            self._words[part] = [call(number) for number in range(size)]
        return self._words[part]

    def watch(self, text: str, answer: str | None = None, params: Tree | None = None) -> Run:
        """Run the model on a text, with its own or other parameters, and record everything."""
        own = self.params if params is None else params
        return watch(self.model.model, own, batch_of(self.model, text, answer), labels=self.model.token_labels)


@dataclass(eq=False)
class RunSession:
    """A run as a page has asked for it, and what was found out about it.

    start     the session of the run without the changes, after the steps; None if this is it
    made      the changes, in the order in which the page gave them
    memory    what the optimizer of the last step remembers, by its name
    """

    state: PageState
    opened: OpenModel
    run: Run
    of: Any
    made: tuple[Change, ...] = ()
    memory: dict[str, Tree] = field(default_factory=dict)
    start: RunSession | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def plain_session(self) -> RunSession:
        """The session of the run without changes."""
        return self.start or self

    @property
    def plain(self) -> Run:
        """The run without changes, after the steps."""
        return self.plain_session.run

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return something about the run, computed when first asked for."""
        with self.lock:
            if name not in self.kept:
                self.kept[name] = make()
            return self.kept[name]

    @property
    def backward(self) -> tuple[Change, ...]:
        """The changes of gradients."""
        return tuple(change for change in self.made if change.backward)

    @property
    def idle(self) -> list[int]:
        """The changes that altered nothing, by their indices."""
        nothing = [*self.run.no_effect, *(self.gradients.no_effect if self.backward else ())]
        return [number for number, change in enumerate(self.made) if any(change is one for one in nothing)]

    @property
    def gradients(self) -> Gradients:
        """The gradients of the number asked for."""
        return self.once("gradients", lambda: self._gradients(self.run, self.backward))

    def _gradients(self, run: Run, changes: tuple[Change, ...] = ()) -> Gradients:
        return gradients(run, self.of, changes)

    @property
    def plain_gradients(self) -> Gradients:
        """The gradients without any change."""
        return self.once("plain gradients", lambda: self._gradients(self.plain))

    def array(self, what: str, name: str) -> Array:
        """Return a value, a parameter, or the gradient of either; `before` and `change` are about the run unchanged."""
        kinds: dict[str, Callable[[], Array]] = {
            "value": lambda: self._named(self.run, name),
            "gradient": lambda: self._named(self.gradients, name),
            "before": lambda: self._named(self.plain, name),
            "gradient before": lambda: self._named(self.plain_gradients, name),
            "change": lambda: self.array("value", name).astype(np.float64) - self.array("before", name),
            "products": lambda: products(self.run, name),  # of an attention: q·k before it is scaled
            "gradient change": lambda: self.array("gradient", name) - self.array("gradient before", name),
        }
        check_known("there is no kind of number", what, kinds)
        return kinds[what]()

    def is_parameter(self, name: str) -> bool:
        """Whether a name is that of a parameter."""
        return name in self._leaves(self.run)

    def _named(self, of: Run | Gradients, name: str) -> Array:
        """Return a parameter, or a value, by its name; or the gradient of either."""
        if not self.is_parameter(name):
            return of[name]
        return of.param(name) if isinstance(of, Gradients) else unpacked(self._leaves(of)[name])

    def _leaves(self, of: Run) -> dict[str, Array]:
        """Return all parameters by their names, flattened once."""
        return self.once(f"parameters {id(of)}", lambda: flatten(of.params))

    def other(self, text: str) -> Run:
        """Return the run of the same parameters on another text."""
        return self.once(f"other {text}", lambda: self.opened.watch(text, self.state.answer, self.run.params))

    def step(self, step: OptimizerStep) -> Update:
        """Return what one step of an optimizer does; the last one asked for is remembered."""
        check_known("there is no optimizer", step.optimizer, OPTIMIZERS)
        if self.start is not None:
            return self.start.step(step)
        with self.lock:
            asked, found = self.kept.get("step", (None, None))
            if found is None or asked != step:
                optimizer = OPTIMIZERS[step.optimizer]()
                check_free(STEPPED * self.opened.count * self.opened.dtype.itemsize, "a step of an optimizer")
                found = update(self.plain, optimizer, lr=step.lr, state=self.memory.get(step.optimizer))
                self.kept["step"] = (step, found)
            return found

    def arrays(self) -> dict[int, int]:
        """Return the bytes of every array that is kept, by its identity: sessions share many of them."""
        own = self.once("arrays", lambda: dict([*_arrays(self.plain), *_arrays(self.run), *_leaves(self.memory)]))
        given = self.opened.identities()
        found = {n: size for n, size in own.items() if n not in given}
        for thing in list(self.kept.values()):
            if isinstance(thing, Run):
                found |= {n: size for n, size in _arrays(thing) if n not in given}
            elif isinstance(thing, Gradients):  # of each value, and of each parameter
                found |= {-n: size for n, size in own.items() if n not in given} | dict(_leaves(thing.params))
        after = self.kept.get("step", (None, ()))[1][:2]
        return found | {n: size for tree in after for n, size in _leaves(tree)}


def _arrays(run: Run) -> Iterator[tuple[int, int]]:
    """Return the bytes of the arrays of a run, each with its identity."""
    yield from ((id(a), a.nbytes) for call in run.calls for a in call.outputs if isinstance(a, np.ndarray))
    yield from _leaves(run.params)


def _leaves(tree: Tree) -> Iterator[tuple[int, int]]:
    yield from ((id(leaf), leaf.nbytes) for leaf in flatten(tree).values() if isinstance(leaf, np.ndarray))


def probabilities(run: Run, position: int = -1) -> Array:
    """Return the probability of every token at a position, or of every class."""
    row = run.logits[Logit(0, position).place(run, 0)[:-1]]
    with use_engine("numpy"):  # no other engine need be started for one row
        return ops.softmax(np.asarray(row, dtype=np.float64))[0]
