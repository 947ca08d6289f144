"""Learning-rate schedules: a warm-up, then one of four ways down."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import namespace
from ..errors import ConfigError
from ..settings import check_known

SCHEDULES = ("constant", "cosine", "linear", "inverse_sqrt")


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step, counted from zero.

        rising   = (step + 1) / (warmup + 1)                              until it is one, at step = warmup
        progress = (step − warmup) / (total − warmup)                     from 0 to 1 at step = total, then 1
        constant       lr = peak · rising
        linear         lr = peak · min(rising, floor + (1 − floor) · (1 − progress))
        cosine         lr = peak · min(rising, floor + (1 − floor) · (1 + cos(π · progress)) / 2)
        inverse_sqrt   lr = peak · min(rising, max(floor, √((warmup + 1) / (step + 1))))

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
        check_known("there is no schedule", self.kind, SCHEDULES)
        if not 0 <= self.peak < float("inf"):
            raise ConfigError(f"the peak learning rate is {self.peak}", hint="use zero or a positive number")
        if self.warmup < 0:
            raise ConfigError(f"warmup is {self.warmup} steps", hint="use zero or more")
        if not 0 <= self.floor <= 1:
            raise ConfigError(f"floor is {self.floor}", hint="it is a fraction of the peak, from 0 to 1")
        if self.kind in ("cosine", "linear"):
            self._check_total()

    def _check_total(self) -> None:
        if self.total is None:
            raise ConfigError(f"a {self.kind} schedule needs the total number of steps", hint="pass total=…")
        if self.total <= self.warmup:
            raise ConfigError(
                f"warmup takes {self.warmup:,} of {self.total:,} steps and leaves none",
                hint="make warmup shorter than total",
            )

    def __call__(self, step: Any) -> Any:
        """Return the learning rate of `step`: a float for a number, an array for an array, traced or not."""
        xp = namespace(step) if hasattr(step, "__array_namespace__") else np
        rising = xp.minimum(1.0, (step + 1) / (self.warmup + 1))
        if self.kind == "constant":
            fraction = rising
        elif self.kind == "inverse_sqrt":
            falling = xp.sqrt((self.warmup + 1) / xp.maximum(step + 1, self.warmup + 1))
            fraction = xp.minimum(rising, xp.maximum(self.floor, falling))
        else:
            assert self.total is not None
            progress = xp.clip((step - self.warmup) / (self.total - self.warmup), 0.0, 1.0)
            left = 1 - progress if self.kind == "linear" else 0.5 * (1 + xp.cos(np.pi * progress))
            fraction = xp.minimum(rising, self.floor + (1 - self.floor) * left)
            if self.after is not None:
                fraction = xp.where(step < self.total, fraction, self.after)
        lr = self.peak * fraction
        return float(lr) if xp is np and lr.ndim == 0 else lr
