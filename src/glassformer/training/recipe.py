"""The recipe of a training: every choice besides the model and the data, and the learning rate of each step."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from .. import ops
from ..core import registry
from ..core.arrays import Array, namespace
from ..core.errors import ConfigError
from ..core.settings import check_known, check_range, check_types, from_settings
from .optimizer import Optimizer
from .optimizers import OPTIMIZERS, make_optimizer

AFTER = 0.1
"""The share of the peak learning rate at which a run goes on behind the end of a schedule that came down to nothing."""

KEEP = ("best", "accurate", "last")
SCHEDULES = registry.BUILT_IN["schedule"]

OF_ONE_OPTIMIZER = ("momentum", "beta1", "beta2")
"""Settings that mean something to some optimizers only."""


def changed_recipe(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's settings with some changed; a new optimizer drops what was meant for the one before."""
    kept, chosen = dict(settings), changes.get("optimizer")
    if chosen != settings.get("optimizer") and chosen in OPTIMIZERS:
        taken = inspect.signature(OPTIMIZERS[chosen]).parameters
        dropped = {*OF_ONE_OPTIMIZER, *({"weight_decay"} - set(taken))}
        kept = {name: value for name, value in settings.items() if name not in dropped}
    return {**kept, **changes}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of a training run, checked once.

    steps             optimizer steps
    batch             examples per step
    accumulate        microbatches that a step is computed in, one after the other, to save memory
    optimizer         what turns gradients into steps
    lr                the peak learning rate
    weight_decay      shrinks weights a little in each step, never norms and biases (none: the optimizer's own)
    momentum          of sgd and muon: share of the last step that goes on (none: the optimizer's own)
    beta1             of adam, adamw, lion and muon: memory for the mean of gradients (none: the optimizer's own)
    beta2             of adam, adamw, lion and muon: memory for their squares (none: the optimizer's own)
    schedule          how the learning rate comes down after the warm-up
    warmup            steps in which the learning rate rises to its peak
    floor             the last learning rate as a share of the peak
    decay_steps       the step at which cosine and linear are down at the floor (none: steps); from there on they stay
                      at the floor, or at a tenth of the peak where that is 0
    clip              largest global norm of the gradients (0 or none: never clip)
    loss              what is minimized, in training and evaluation
    label_smoothing   of cross_entropy: share of the target that is spread over all tokens
    class_weights     of cross_entropy: the weight of each class (empty: all weigh the same)
    eval_every        steps between evaluations
    eval_tokens       of a long text: held-out tokens that are measured, in windows drawn at random (none: all)
    save_every        steps between checkpoints (none: as eval_every)
    ema               decay of a moving average of the parameters, which is then what counts (none: off)
    patience          stop after this many evaluations without improvement (none: never)
    freeze            parameters that stay as they are: patterns over dotted names, such as "embedding" or "blocks.0.*"
    keep              parameters that the run keeps as its result: best (lowest validation loss), accurate (most right
                      answers to the validation data, which counts for patience too) or last
    seed              of the first parameters, the order of examples and dropout
    shards            parts of a batch that are computed at the same time, one per core; a new run settles on what
                      is fastest on its machine and keeps to it (none: not settled, in one part)
    """

    steps: int = 1000
    batch: int = 32
    accumulate: int = 1
    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float | None = None
    momentum: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    schedule: str = "cosine"
    warmup: int = 50
    floor: float = 0.0
    decay_steps: int | None = None
    clip: float | None = 1.0
    loss: str = "cross_entropy"
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()
    eval_every: int = 250
    eval_tokens: int | None = 1 << 17
    save_every: int | None = None
    ema: float | None = None
    patience: int | None = None
    freeze: tuple[str, ...] = ()
    keep: str = "best"
    seed: int = 0
    shards: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        check_range(self, "steps", "batch", "accumulate", "decay_steps", "shards", least=1)
        check_range(self, "eval_every", "eval_tokens", "save_every", "patience", least=1)
        check_range(self, "lr", "seed", "clip", least=0)
        check_range(self, "label_smoothing", "ema", least=0, below=1)
        if self.accumulate > self.batch:
            raise ConfigError(
                f"a batch of {self.batch} cannot be split into {self.accumulate} microbatches", hint="use fewer"
            )
        check_known("keep is", self.keep, KEEP)
        check_known("there is no loss", self.loss, registry.known("loss"))
        for name in ("label_smoothing", "class_weights"):
            if getattr(self, name) and self.loss != "cross_entropy":
                raise ConfigError(f"{self.loss} has no {name}", hint=f"leave out {name}, or leave out loss")
        if self.class_weights and not (min(self.class_weights) >= 0 < max(self.class_weights) < float("inf")):
            raise ConfigError(f"class_weights are {self.class_weights}", hint="use numbers of at least 0, one above it")
        self.build_optimizer()
        self.build_schedule()

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build a recipe; refuse settings it does not know."""
        listed, freeze = "`glassformer settings recipe` lists them all", settings.get("freeze")
        if "freeze" in settings and isinstance(freeze, str | None):
            settings = {**settings, "freeze": freeze.split(",") if freeze else ()}
        return from_settings("a recipe has no setting", settings, cls, listed=listed)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, ready for JSON."""
        return {**asdict(self), "freeze": list(self.freeze), "class_weights": list(self.class_weights)}

    def build_optimizer(self) -> Optimizer:
        """Return the optimizer these settings describe."""
        check_known("there is no optimizer", self.optimizer, OPTIMIZERS)
        taken = inspect.signature(OPTIMIZERS[self.optimizer]).parameters
        settings = {}
        for name in ("weight_decay", *OF_ONE_OPTIMIZER):
            value = getattr(self, name)
            if value is None:
                continue
            if name not in taken:
                raise ConfigError(f"{self.optimizer} has no {name}", hint=f"leave {name} out, or change the optimizer")
            settings[name] = value
        return make_optimizer(self.optimizer, **settings)

    def loss_settings(self) -> dict[str, Any]:
        """Return what `loss_and_grads` of a model takes to compute this loss."""
        if self.class_weights:
            return {"pair": weighted_cross_entropy(self.class_weights, self.label_smoothing)}
        if self.loss == "cross_entropy":
            return {"smoothing": self.label_smoothing}
        return {"pair": registry.find("loss", self.loss)}

    @property
    def decayed(self) -> int:
        """The step at which the schedule is down."""
        return self.steps if self.decay_steps is None else self.decay_steps

    @property
    def after(self) -> float:
        """The share of the peak at which cosine and linear go on behind their end: the floor, or a tenth if it is 0."""
        return self.floor or AFTER

    def build_schedule(self) -> Schedule:
        """Return the learning rate of every step."""
        warmup = min(self.warmup, self.decayed - 1)
        after = self.after if self.steps > self.decayed else None
        return Schedule(self.schedule, self.lr, warmup, self.decayed, self.floor, after)

    def with_steps(self, steps: int) -> Self:
        """Return the recipe of a run that takes another number of steps; no step up to its end so far changes."""
        return replace(self, steps=steps, decay_steps=None if steps == self.decayed else self.decayed)

    def continuation(self) -> str:
        """Return what the learning rate does from the planned end of the schedule on, as one phrase."""
        end, rate = self.decayed, f"{self.lr * self.after:.4g}"
        if self.schedule == "constant":
            return f"its learning rate is constant and stays at {self.lr:.4g}"
        if self.schedule == "inverse_sqrt":
            return "its learning rate has no planned end and goes on falling with 1/√step"
        if self.schedule not in SCHEDULES:
            return f"its learning rate goes on as {self.schedule} says"
        if self.steps == end:
            return f"its {self.schedule} schedule ends there, as planned"
        if self.steps < end:
            return f"its {self.schedule} schedule was to come down at step {end:,} and is broken off before"
        share = f"its floor, {self.floor:g} of the peak" if self.floor else "a tenth of the peak, for its floor is 0"
        return f"its {self.schedule} schedule ends at step {end:,}; from there on the rate is {rate}, {share}"


@functools.lru_cache(maxsize=8)
def weighted_cross_entropy(weights: tuple[float, ...], smoothing: float) -> tuple[Callable[..., Any], ...]:
    """Return the loss and its backward, as `register_loss` takes them.

        loss = Σ w[target] · loss of the target / number of targets

    The sum is divided by how many targets count, not by their weights: so the mean over parts of a batch is that of the
    whole batch, however it is cut into microbatches and shards.
    """

    def forward(logits: Array, targets: Array) -> tuple[Array, tuple[Any, Array]]:
        xp = namespace(logits)
        w = xp.asarray(weights, dtype=logits.dtype)
        loss, saved = ops.cross_entropy(logits, targets, class_weights=w, smoothing=smoothing)
        counted = xp.sum(xp.asarray(targets) != ops.IGNORE)
        # loss = Σ … / Σ w[target], and Σ w[target] is saved.total
        share = saved.total / xp.maximum(counted, 1).astype(logits.dtype)
        return loss * share, (saved, share)

    def backward(dloss: Array, saved: tuple[Any, Array]) -> Array:
        return ops.cross_entropy_backward(dloss * saved[1], saved[0], smoothing=smoothing)

    return forward, backward


def register_schedule(name: str, function: Callable[[int], float]) -> None:
    """Register a schedule under a name that recipes can choose: from a step, counted from 0, to a share of the rate."""
    _register("schedule", name, function)


def register_loss(name: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
    """Register a loss under a name that recipes can choose, as a pair of functions.

        loss, saved = forward(logits, targets)      the mean over all targets that are not -100
        dlogits = backward(dloss, saved)

    Write them with the namespace of their arrays, `logits.__array_namespace__()`, and the engine jax runs them too.
    """
    _register("loss", name, forward, backward)


def _register(family: str, name: str, *functions: Any) -> None:
    for function in functions:
        if not callable(function):
            raise ConfigError(f"{function!r:.80} cannot be called", hint="pass a function")
    registry.register(family, name, functions if len(functions) > 1 else functions[0])


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step, counted from zero.

        rising   = (step + 1) / (warmup + 1)                              until it is one, at step = warmup
        progress = (step − warmup) / (total − warmup)                     from 0 to 1 at step = total, then 1
        constant       lr = peak · rising
        linear         lr = peak · min(rising, floor + (1 − floor) · (1 − progress))
        cosine         lr = peak · min(rising, floor + (1 − floor) · (1 + cos(π · progress)) / 2)
        inverse_sqrt   lr = peak · min(rising, max(floor, √((warmup + 1) / (step + 1))))
        registered     lr = peak · min(rising, max(floor, function(step)))

    The first step already moves, `warmup` steps stay below the peak, and `floor` is a fraction of the peak. From step =
    total on, linear and cosine stay at the floor, or at `after`, a fraction too, where one is given.
    """

    kind: str = "cosine"
    peak: float = 1e-3
    warmup: int = 0
    total: int | None = None
    floor: float = 0.0
    after: float | None = None

    def __post_init__(self) -> None:
        check_known("there is no schedule", self.kind, registry.known("schedule"))
        check_range(self, "peak", "warmup", least=0)
        check_range(self, "floor", least=0, most=1, hint="it is a fraction of the peak, from 0 to 1")
        if self.kind not in ("cosine", "linear"):
            return
        if self.total is None:
            raise ConfigError(f"a {self.kind} schedule needs the total number of steps", hint="pass total=…")
        if self.total <= self.warmup:
            fact = f"warmup takes {self.warmup:,} of {self.total:,} steps and leaves none"
            raise ConfigError(fact, hint="make warmup shorter than total")

    def __call__(self, step: Any) -> Any:
        """Return the learning rate of `step`: a float for a number, an array for an array, traced or not."""
        xp = namespace(step) if hasattr(step, "__array_namespace__") else np
        rising = xp.minimum(1.0, (step + 1) / (self.warmup + 1))
        if self.kind == "constant":
            fraction = rising
        elif self.kind == "inverse_sqrt":
            falling = xp.sqrt((self.warmup + 1) / xp.maximum(step + 1, self.warmup + 1))
            fraction = xp.minimum(rising, xp.maximum(self.floor, falling))
        elif self.kind not in SCHEDULES:
            fraction = xp.minimum(rising, xp.maximum(self.floor, registry.find("schedule", self.kind)(step)))
        else:
            assert self.total is not None
            progress = xp.clip((step - self.warmup) / (self.total - self.warmup), 0.0, 1.0)
            left = 1 - progress if self.kind == "linear" else 0.5 * (1 + xp.cos(np.pi * progress))
            fraction = xp.minimum(rising, self.floor + (1 - self.floor) * left)
            if self.after is not None:
                fraction = xp.where(step < self.total, fraction, self.after)
        lr = self.peak * fraction
        return float(lr) if xp is np and lr.ndim == 0 else lr
