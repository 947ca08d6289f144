"""How to train: every choice besides the model and the data."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from ..errors import ConfigError
from ..settings import check_known, from_settings
from .optimizer import Optimizer
from .optimizers import OPTIMIZERS, make_optimizer
from .schedules import Schedule

_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "str": (str,)}
_WORDS = {"int": "a whole number", "float": "a number", "str": "a name"}


OF_ONE_OPTIMIZER = ("momentum", "beta1", "beta2")
"""Settings that mean something to some optimizers only."""


def changed_recipe(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's settings with some changed; another optimizer leaves behind what was meant for the first."""
    kept = dict(given)
    if changes.get("optimizer", given.get("optimizer")) != given.get("optimizer"):
        kept = {name: value for name, value in given.items() if name not in OF_ONE_OPTIMIZER}
    return {**kept, **changes}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of a training run, checked once.

    steps, batch, accumulate    optimizer steps; examples per step; in how many microbatches a step is computed
    optimizer, lr, weight_decay sgd, adam, adamw, lion or muon; its peak learning rate; None: the optimizer's own
    momentum, beta1, beta2      of the optimizers that have them; None: their own
    schedule, warmup, floor     cosine, linear, inverse_sqrt or constant; steps to rise; last rate as share of the peak
    clip                        largest global norm of the gradients (0 or None: never clip)
    label_smoothing             share of the target that is spread over all tokens
    eval_every, save_every      steps between evaluations and between checkpoints (None: as eval_every)
    ema                         decay of a moving average of the parameters, which is then what counts (None: off)
    patience                    stop after so many evaluations without improvement (None: never)
    shards                      parts of a batch that are computed at the same time, one per core; a new run settles
                                on what is fastest on its machine and keeps to it (None: not settled, in one part)
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
    clip: float | None = 1.0
    label_smoothing: float = 0.0
    eval_every: int = 250
    save_every: int | None = None
    ema: float | None = None
    patience: int | None = None
    seed: int = 0
    shards: int | None = None

    def __post_init__(self) -> None:
        self._check_types()
        for name in ("steps", "batch", "accumulate", "eval_every", "save_every", "patience", "shards"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value!r}", hint=f"use a whole number of at least 1 for {name}")
        if self.seed < 0:
            raise ConfigError(f"the seed is {self.seed}", hint="use a seed of zero or more")
        if self.accumulate > self.batch:
            raise ConfigError(
                f"a batch of {self.batch} cannot be split into {self.accumulate} microbatches", hint="use fewer"
            )
        if self.clip is not None and not self.clip >= 0:
            raise ConfigError(f"clip is {self.clip}", hint="use a positive number, or 0 to never clip")
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"label_smoothing is {self.label_smoothing}", hint="use a share from 0 to below 1")
        if self.ema is not None and not 0 <= self.ema < 1:
            raise ConfigError(f"ema is {self.ema}", hint="use a decay from 0 to below 1, such as 0.999")
        self.build_optimizer()
        self.build_schedule()

    def _check_types(self) -> None:
        for field in fields(self):
            value, wanted = getattr(self, field.name), str(field.type).removesuffix(" | None")
            if value is None and str(field.type).endswith("| None"):
                continue
            if not isinstance(value, _TYPES[wanted]) or isinstance(value, bool):
                raise ConfigError(f"{field.name} is {value!r}", hint=f"{field.name} takes {_WORDS[wanted]}")

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build a recipe; refuse settings it does not know."""
        return from_settings("a recipe has no setting", settings, cls)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, ready for JSON."""
        return asdict(self)

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

    def build_schedule(self) -> Schedule:
        """Return the learning rate of every step."""
        warmup = min(self.warmup, self.steps - 1)
        return Schedule(self.schedule, self.lr, warmup, self.steps, self.floor)
