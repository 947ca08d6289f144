"""The optimizers: SGD, Adam, AdamW, Lion and Muon, each as the few lines that move one array; and averages of steps.

In the formulas p is a parameter, g its gradient, t = 1, 2, … the step, and λ the weight decay, which applies to
matrices alone unless `decays` says otherwise.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import ops
from ..core import registry
from ..core.arrays import Array, Tree, cast, namespace, widen
from ..core.errors import ConfigError
from ..core.settings import check_known, check_range, from_settings
from ..core.tree import library, tree_map
from .optimizer import Memory, Optimizer, Predicate, is_matrix

PAST = "use a number of at least 0 and below 1: 0 forgets the past at once, 0.99 keeps about 100 steps of it"


@dataclass(frozen=True)
class SGD(Optimizer):
    """Go downhill, keeping some speed.

    g ← g + λ p      v ← momentum · v + g
    p ← p − lr · v,   or looking ahead (Nesterov)   p ← p − lr · (g + momentum · v)
    """

    default_lr: ClassVar[float] = 0.05

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decays: Predicate = is_matrix

    def __post_init__(self) -> None:
        check_range(self, "momentum", least=0, below=1, hint=PAST)
        check_range(self, "weight_decay", least=0)
        if self.nesterov and not self.momentum:
            raise ConfigError("nesterov needs momentum, which is 0", hint="set momentum, for example to 0.9")

    def slots(self, name: str, p: Array) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def move(self, name: str, p: Array, g: Array, memory: Memory, *scalars: Array) -> tuple[Array, Memory]:
        (lr,) = scalars
        if self.weight_decay and self.decays(name, p):
            g = g + self.weight_decay * p  # the gradient of λ/2 · Σ p², the classic weight decay
        if not self.momentum:
            return p - lr * g, {}
        v = self.momentum * memory["velocity"] + g
        way = g + self.momentum * v if self.nesterov else v
        return p - lr * way, {"velocity": v}


@dataclass(frozen=True)
class Adam(Optimizer):
    """Give every number its own step size, by how large its gradients have been (Kingma and Ba 2015).

        g ← g + λ p      m ← β₁ m + (1 − β₁) g      s ← β₂ s + (1 − β₂) g²
        p ← p − lr · m/(1 − β₁ᵗ) / (√(s/(1 − β₂ᵗ)) + eps)

    m and s start at zero; dividing by 1 − βᵗ undoes what that takes from the first averages.
    """

    default_lr: ClassVar[float] = 1e-3

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decays: Predicate = is_matrix

    def __post_init__(self) -> None:
        check_range(self, "beta1", "beta2", least=0, below=1, hint=PAST)
        check_range(self, "eps", "weight_decay", least=0)

    def slots(self, name: str, p: Array) -> tuple[str, ...]:
        return "mean", "square"

    def scalars(self, step: Array, lr: Any) -> tuple[Any, ...]:
        return lr, lr / started(self.beta1, step), started(self.beta2, step) ** 0.5

    def is_bounded(self, lr: float) -> bool:
        # A step is then at most about lr / √(1 − β₂), whatever the gradients.
        return lr < 1 and self.beta1 < self.beta2 and self.eps > 0 and lr * self.weight_decay < 1

    def move(self, name: str, p: Array, g: Array, memory: Memory, *scalars: Array) -> tuple[Array, Memory]:
        lr, rate, root = scalars
        settings = {"rate": rate, "root": root, "beta1": self.beta1, "beta2": self.beta2, "eps": self.eps}
        settings |= self.decay(lr) if self.is_decayed(name, p) else {}
        p, mean, square = ops.adam_update(p, g, memory["mean"], memory["square"], **settings)
        return p, {"mean": mean, "square": square}

    def is_decayed(self, name: str, p: Array) -> bool:
        """Return whether weight decay applies to a parameter."""
        return bool(self.weight_decay) and self.decays(name, p)

    def decay(self, lr: Any) -> dict[str, Any]:
        """Return how weight decay enters the update of an array that it applies to."""
        return {"penalty": self.weight_decay}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay stays out of the averages (Loshchilov and Hutter 2019).

    p ← p − lr · λ p, then as Adam without λ
    """

    weight_decay: float = 0.01

    def decay(self, lr: Any) -> dict[str, Any]:
        return {"shrink": 1 - lr * self.weight_decay}


@dataclass(frozen=True)
class Lion(Optimizer):
    """Step by the sign of an average: every number moves by lr, up or down (Chen et al. 2023).

    p ← p − lr · (sign(β₁ m + (1 − β₁) g) + λ p)      m ← β₂ m + (1 − β₂) g
    """

    default_lr: ClassVar[float] = 1e-4

    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    decays: Predicate = is_matrix

    def __post_init__(self) -> None:
        check_range(self, "beta1", "beta2", least=0, below=1, hint=PAST)
        check_range(self, "weight_decay", least=0)

    def slots(self, name: str, p: Array) -> tuple[str, ...]:
        return ("mean",)

    def move(self, name: str, p: Array, g: Array, memory: Memory, *scalars: Array) -> tuple[Array, Memory]:
        (lr,) = scalars
        mean = memory["mean"]
        settings = {"lr": lr, "beta1": self.beta1, "beta2": self.beta2, "shrink": _shrink(self, name, p, lr)}
        p, mean = ops.lion_update(p, g, mean, **settings)
        return p, {"mean": mean}

    def is_bounded(self, lr: float) -> bool:
        return lr < 1 and lr * self.weight_decay < 1  # every number moves by lr, and towards zero


def is_hidden_matrix(name: str, array: Array) -> bool:
    """Return whether Muon orthogonalizes a parameter: the weight `w` of a linear layer inside a numbered block.

    "blocks.0.attention.query.w" is one. Embeddings are called `table`, heads stand outside the blocks, norms and biases
    are no matrices.
    """
    *path, last = name.split(".")
    return array.ndim == 2 and last == "w" and any(part.isdigit() for part in path)


@dataclass(frozen=True)
class Muon(Optimizer):
    """Move hidden matrices by the nearest orthogonal matrix, so that all directions learn alike (Jordan et al. 2024).

        m ← μ m + (1 − μ) g      u = (1 − μ) g + μ m  (Nesterov)  or  m
        p ← p − lr · λ p − lr · √max(1, O/I) · orthogonal(u),   p (I, O)

    Parameters for which `hidden` says no move by AdamW with the learning rate lr · rest_lr, which is 0.003 where lr is
    0.02; `beta1`, `beta2` and `eps` are AdamW's. Published code keeps weights as (O, I) and writes rows/columns for the
    same O/I.
    """

    default_lr: ClassVar[float] = 0.02

    momentum: float = 0.95
    nesterov: bool = True
    iterations: int = 5
    weight_decay: float = 0.0
    rest_lr: float = 0.15
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-10
    decays: Predicate = is_matrix
    hidden: Predicate = is_hidden_matrix

    def __post_init__(self) -> None:
        check_range(self, "momentum", least=0, below=1, hint=PAST)
        check_range(self, "weight_decay", "rest_lr", "iterations", least=0)
        self._rest()

    def _rest(self) -> AdamW:
        return AdamW(self.beta1, self.beta2, self.eps, self.weight_decay, self.decays)

    def init(self, params: Tree) -> dict[str, Tree]:
        state = super().init(params)
        if "momentum" not in state:
            raise ConfigError(
                "Muon finds no hidden matrix among these parameters",
                hint="they are named like blocks.0.attention.query.w; pass hidden=… for other names, or use adamw",
            )
        return state

    def slots(self, name: str, p: Array) -> tuple[str, ...]:
        return ("momentum",) if self.hidden(name, p) else self._rest().slots(name, p)

    def scalars(self, step: Array, lr: Any) -> tuple[Any, ...]:
        return lr, *self._rest().scalars(step, lr * self.rest_lr)

    def is_bounded(self, lr: float) -> bool:
        # The iteration keeps singular values between 0 and 1.21, wherever in there they begin.
        return lr < 1 and lr * self.weight_decay < 1 and self._rest().is_bounded(lr * self.rest_lr)

    def move(self, name: str, p: Array, g: Array, memory: Memory, *scalars: Array) -> tuple[Array, Memory]:
        lr, *rest = scalars
        if not self.hidden(name, p):
            return self._rest().move(name, p, g, memory, *rest)
        m = self.momentum * memory["momentum"] + (1 - self.momentum) * g
        way = (1 - self.momentum) * g + self.momentum * m if self.nesterov else m
        inputs, outputs = p.shape
        scale = math.sqrt(max(1.0, outputs / inputs))
        way = orthogonalized(way, iterations=self.iterations)
        return p * _shrink(self, name, p, lr) - lr * scale * way, {"momentum": m}


NEWTON_SCHULZ = 3.4445, -4.7750, 2.0315
"""a, b and c of Muon's iteration: chosen for speed near zero, not for convergence (Jordan et al. 2024)."""


def orthogonalized(x: Array, *, iterations: int = 5, eps: float = 1e-7) -> Array:
    """Pull the singular values of the matrix x toward one and keep its directions: U S Vᵀ becomes about U Vᵀ.

        x ← x / max(‖x‖, eps)      then repeatedly      x ← a x + (b A + c A²) x,   A = x xᵀ

    A quintic Newton–Schulz iteration. After five rounds the singular values lie between about 0.7 and 1.2 (the
    tiniest below), which serves as well as one.
    """
    a, b, c = NEWTON_SCHULZ
    xp = namespace(x)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x  # A is then the smaller of the two products
    x = x / xp.maximum(xp.sqrt(xp.sum(x * x)), xp.asarray(eps, dtype=x.dtype))
    for _ in range(iterations):
        A = x @ x.T
        x = a * x + (b * A + c * (A @ A)) @ x
    return x.T if tall else x


def started(beta: float, step: Array) -> Array:
    """Return 1 − βᵗ, the weight that t gradients have in a running mean; `expm1` keeps its digits in float32."""
    return -namespace(step).expm1(step * math.log(beta)) if beta else namespace(step).ones(())


def _shrink(settings: Any, name: str, p: Array, lr: Array) -> Any:
    """Return the factor 1 − lr · λ of the decoupled weight decay, 1 where there is none."""
    return 1 - lr * settings.weight_decay if settings.weight_decay and settings.decays(name, p) else 1.0


METHODS = ("slots", "move", "init", "update", "is_bounded", "check_state")
"""Methods of an optimizer that a training calls."""
OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW, "lion": Lion, "muon": Muon}


def register_optimizer(name: str, cls: Any) -> None:
    """Register your own class of optimizers under a name that recipes can choose: optimizer="name"."""
    if not isinstance(cls, type) or not issubclass(cls, Optimizer):
        hint = "pass a class derived from gf.training.Optimizer, which writes slots and move"
        if isinstance(cls, Optimizer):
            hint = f"pass {type(cls).__name__} itself, and its settings beside it: weight_decay=0.1"
        raise ConfigError(f"{cls!r:.80} is no class of optimizers", hint=hint)
    registry.register("optimizer", name, cls)
    OPTIMIZERS[name] = cls


def make_optimizer(name: str, **settings: Any) -> Optimizer:
    """Build an optimizer by name: make_optimizer("adamw", weight_decay=0.1)."""
    check_known("there is no optimizer", name, OPTIMIZERS)
    family = OPTIMIZERS[name]
    unwritten = getattr(family, "__abstractmethods__", ())
    missing = [method for method in METHODS if not hasattr(family, method) or method in unwritten]
    if missing or not issubclass(family, Optimizer):
        fact = f"the optimizer {name} has no {' and no '.join(missing)}" if missing else f"{name} is no Optimizer"
        raise ConfigError(fact, hint="derive it from glassformer.training.Optimizer, and write slots and move")
    return from_settings(f"{name} has no setting", settings, family)


@dataclass(frozen=True)
class EMA:
    """Average the parameters of all steps, each step weighing `decay` times as much as the next.

        average ← average + (p − average) · (1 − decay) / (1 − decayᵗ)

    The weights of t steps sum to one, and the first average is p₁, whatever was given to `init`.
    The average is held in float32 for parameters of half precision. State: {"step": count, "average": tree}.
    """

    decay: float = 0.999

    def __post_init__(self) -> None:
        check_range(self, "decay", least=0, below=1, hint=PAST)

    def init(self, params: Tree) -> dict[str, Tree]:
        """Return the state before the first step."""
        # In memory of its own: the parameters may be overwritten.
        average = tree_map(lambda p: namespace(p).array(widen(p), copy=True), params)
        return {"step": library(params).zeros((), dtype=np.int32), "average": average}

    def update(self, state: dict[str, Tree], params: Tree) -> dict[str, Tree]:
        """Return the state that takes one more step's parameters into account."""
        step = namespace(state["step"]).asarray(state["step"] + 1, dtype=np.int32)
        weight = (1 - self.decay) / started(self.decay, step)
        average = tree_map(
            lambda mean, p: mean + namespace(mean).asarray(weight, dtype=mean.dtype) * (cast(p, mean.dtype) - mean),
            state["average"],
            params,
        )
        return {"step": step, "average": average}

    def read(self, state: dict[str, Tree], params: Tree) -> Tree:
        """Return the average in the types of `params`, ready for the model."""
        return tree_map(lambda mean, p: cast(mean, p.dtype), state["average"], params)
