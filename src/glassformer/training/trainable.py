"""The trained part of a model: all parameters, those that no pattern freezes, adapters, or its classifier alone.

LoRA teaches a large model by small matrices beside its own (Hu et al. 2021).

    w′ = w + s · a b      s = alpha / rank,  w (I, O) frozen,  a (I, rank) and b (rank, O) trained

An adapter is a function from (a, b) to the weight that the model uses, so the model and its gradients stay as they are:
its gradient for w′ is carried on to a and b.

    da = s · dw′ bᵀ       db = s · aᵀ dw′

In a map y = x w′ the gradient is  dw′ = xᵀ dy,  as large as w. It is not made where a and b alone are trained:

    da = s · xᵀ (dy bᵀ)       db = s · (x a)ᵀ dy

b starts at zero, and the model with it as it was. Where the blocks are stacked, all three have the layers in front.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Self

import numpy as np

from ..core.arrays import Array, Tree, cast
from ..core.errors import ConfigError, did_you_mean
from ..core.reporting import report
from ..core.settings import check_range, check_types, from_settings
from ..core.sources import SourceGuard
from ..core.tree import flatten, named_leaves, rebuilt, tree_map, unflatten
from ..data.examples import Dataset, stack
from ..layers import Embedding, Frozen, Linear, Spec
from ..models import Encoder, Model
from ..models.building import BLOCKS
from ..ops.linear import flat
from .optimizer import single

HEAD = "classifier"
"""The part of an encoder that tells classes apart."""
QUERY_AND_VALUE = ("*attention.query.w", "*attention.value.w")


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """The matrices that get an adapter, and its size.

    rank      columns of a and rows of b
    alpha     how strongly adapters act: their product is multiplied by alpha / rank
    targets   patterns over dotted names, such as "blocks.*.feed_forward.*.w"; * stands for any letters, dots included
    """

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = QUERY_AND_VALUE

    def __post_init__(self) -> None:
        check_types(self, " of LoRA")
        check_range(self, "rank", least=1, of=" of LoRA")
        check_range(self, "alpha", above=0, of=" of LoRA")
        if not self.targets:
            raise ConfigError("LoRA has no targets", hint='name some, such as ["*attention.query.w"]')

    @property
    def scale(self) -> float:
        """The factor on the product of an adapter."""
        return self.alpha / self.rank

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """Build the adapters' settings; refuse those that do not exist."""
        return from_settings("LoRA has no setting", settings, cls)

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, ready for JSON."""
        return {**asdict(self), "targets": list(self.targets)}

    def specs(self, params: Tree) -> Tree:
        """Return the shape and spread of every adapter, under the dotted name of its matrix: {…: {"a": …, "b": …}}.

        `params` may be a model's `specs()`, so that nothing need be there yet.
        """
        shapes = {name: tuple(leaf.shape) for name, leaf in named_leaves(params)}
        specs = {}
        for name in self._chosen(shapes):
            inputs, outputs = shapes[name]
            if self.rank > min(inputs, outputs):
                raise ConfigError(
                    f"the rank of LoRA is {self.rank}, but {name} is a matrix of {inputs} × {outputs}",
                    hint=f"use a rank of at most {min(inputs, outputs)}: the matrix itself has no more",
                )
            specs[f"{name}.a"] = Spec((inputs, self.rank), 1 / math.sqrt(inputs))
            specs[f"{name}.b"] = Spec((self.rank, outputs))
        return unflatten(specs)

    def init(self, params: Tree, seed: int | np.random.Generator = 0, dtype: Any = np.float32) -> Tree:
        """Draw adapters that change nothing yet: a at random, b zero; the same seed gives the same numbers."""
        rng = np.random.default_rng(seed)
        return tree_map(lambda spec: spec.draw(rng, dtype), self.specs(params))

    def check_alike(self, params: Tree) -> None:
        """Refuse targets that only some blocks have: a loop over stacked blocks treats all of them alike."""
        shapes = {name: tuple(leaf.shape) for name, leaf in named_leaves(params)}
        _check_alike("LoRA has the target", self._chosen(shapes), shapes)

    def merge(self, params: Tree, adapters: Tree) -> Tree:
        """Return the parameters with  w + s · a b  in the place of each target; all others are the same arrays."""
        weights = flatten(params)
        for name, (a, b) in pairs_of(adapters).items():
            w = weights[name]
            weights[name] = cast(w + self.scale * (a @ b), w.dtype)
        return rebuilt(params, weights)

    def backward(self, adapters: Tree, grads: Tree) -> Tree:
        """Return the gradients of the adapters for those of the merged parameters."""
        grads, adapted = flatten(grads), dict[str, Array]()
        for name, (a, b) in pairs_of(adapters).items():
            if f"{name}.a" in grads:  # made in the place of dw
                adapted |= {part: grads[part] for part in (f"{name}.a", f"{name}.b")}
                continue
            dw = grads[name]
            adapted[f"{name}.a"] = cast(self.scale * (dw @ b.swapaxes(-1, -2)), a.dtype)
            adapted[f"{name}.b"] = cast(self.scale * (a.swapaxes(-1, -2) @ dw), b.dtype)
        return unflatten(adapted)

    def _chosen(self, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Return the names that a target means, in the order of the parameters."""
        for pattern in self.targets:
            matches = [name for name in shapes if fnmatchcase(name, pattern)]
            if not matches:
                # Blocks are alike: one name with a star stands for the same matrix of each.
                matrices = {_of_any_block(name) for name, shape in shapes.items() if len(shape) == 2}
                raise ConfigError(
                    f"the target {pattern!r} of LoRA matches no parameter", hint=did_you_mean(pattern, matrices)
                )
            wrong = [name for name in matches if len(shapes[name]) != 2]
            if wrong:
                raise ConfigError(
                    f"the target {pattern!r} of LoRA matches {wrong[0]}, which has shape {shapes[wrong[0]]}",
                    hint="adapters belong to matrices: end the pattern in .w",
                )
        return [name for name in shapes if any(fnmatchcase(name, pattern) for pattern in self.targets)]


@dataclass(frozen=True, eq=False)
class Parametrization:
    """The parameters of the model as a function of what is trained, and its gradient.

        params = effective(trained)          d trained = pull_back(trained, d params)

    Everything is trained unless something is named:

    base     parameters that stay as they are: what is trained are adapters and parts beside them
    lora     the adapters
    parts    parts of the base that are trained as a whole, such as classifier
    source   what the base is called
    freeze   patterns of parameters that stay as they are among those that are trained
    """

    base: Tree = None
    lora: LoRA | None = None
    parts: tuple[str, ...] = ()
    source: str = ""
    freeze: tuple[str, ...] = ()

    def over(self, base: Tree) -> Self:
        """Return the same over other arrays, such as those that a traced program is given."""
        return replace(self, base=base)

    def moving(self, tree: Tree) -> Tree:
        """Return what no pattern freezes of what is trained, or of its gradients."""
        if not self.freeze:
            return tree
        return unflatten({name: leaf for name, leaf in flatten(tree).items() if not _is_frozen(name, self.freeze)})

    def effective(self, trained: Tree) -> Tree:
        """Return the parameters of the model."""
        if self.base is None:
            return trained
        params = self.base if self.lora is None else self.lora.merge(self.base, trained)
        return {**params, **{name: trained[name] for name in self.parts}} if self.parts else params

    def marked(self, model: Model, params: Tree, trained: Tree) -> Tree:
        """Return effective parameters for a backward pass that makes no gradient of a matrix that is not trained.

        Nothing is marked where someone's own block, or another backward pass of a layer, might need all gradients.
        """
        if self.base is None and not self.freeze:
            return params
        if model.config.block not in BLOCKS or not _BACKWARD.is_current():
            return params
        marked = _marked(params, flatten(self.moving(trained)), self.lora)
        tokens, head = (marked.get(part, {}) for part in ("embedding", "head"))
        if isinstance(tokens.get("tokens"), Frozen) and "head" in marked and "w" not in head:
            marked["head"] = Frozen(head)  # which multiplies by the table of the embedding
        return marked

    def pull_back(self, trained: Tree, grads: Tree) -> Tree:
        """Return the gradients of what is trained and not frozen, for those of the parameters."""
        if self.base is not None:
            adapted = {} if self.lora is None else self.lora.backward(trained, grads)
            grads = {**adapted, **{name: grads[name] for name in self.parts}}
        return self.moving(grads)

    def specs(self, specs: Tree) -> Tree:
        """Return the shapes of what is trained, for those of the model."""
        return specs if self.lora is None and not self.parts else self._split(specs, LoRA.specs)

    def first(self, seed: int) -> Tree:
        """Return what is trained before the first step: adapters that change nothing, and the parts of the base."""
        return self._split(self.base, lambda lora, rest: lora.init(rest, seed))

    def _split(self, tree: Tree, adapters: Callable[[LoRA, Tree], Tree]) -> Tree:
        whole = {name: tree[name] for name in self.parts}
        rest = {name: part for name, part in tree.items() if name not in whole}
        return {**({} if self.lora is None else adapters(self.lora, rest)), **whole}


EVERYTHING = Parametrization()
Adapted = Parametrization
"""The name of one with a base."""


class AdaptedWeights(Frozen):
    """Parameters of a map whose matrix is  w′ = w + s · a b,  of which a and b alone are trained."""

    def __init__(self, params: Tree, a: Array, b: Array, scale: float) -> None:
        super().__init__(params)
        self.a, self.b, self.scale = a, b, scale

    def gradient(self, x: Array, dy: Array) -> Tree:
        """Return da and db, by products that are as narrow as they."""
        x, dy = flat(x), flat(dy)
        # dw′ = xᵀ dy,  da = s · dw′ bᵀ,  db = s · aᵀ dw′
        da, db = x.T @ (dy @ self.b.T), (x @ self.a).T @ dy
        return {"a": cast(self.scale * da, self.a.dtype), "b": cast(self.scale * db, self.b.dtype)}


_BACKWARD = SourceGuard("frozen weights", Linear.backward, Embedding.backward)


def _marked(part: Tree, trained: Mapping[str, Array], lora: LoRA | None, path: str = "") -> Tree:
    if isinstance(part, list):
        return [_marked(child, trained, lora, f"{path}{number}.") for number, child in enumerate(part)]
    if not isinstance(part, dict):
        return part
    parts = {name: _marked(child, trained, lora, f"{path}{name}.") for name, child in part.items()}
    for name in (f"{path}{matrix}" for matrix in ("w", "table") if matrix in part):
        if lora is None or f"{name}.a" not in trained:
            return parts if name in trained else Frozen(parts)
        if name.endswith("w"):
            return AdaptedWeights(parts, trained[f"{name}.a"], trained[f"{name}.b"], lora.scale)
    return parts


def leaves_only(freeze: tuple[str, ...], part: str, model: Model) -> bool:
    """Return whether patterns freeze all parameters but those of one part."""
    return all(_is_frozen(name, freeze) != name.startswith(f"{part}.") for name in flatten(model.specs()))


def check_freeze(freeze: tuple[str, ...], model: Model, *, scan: bool) -> None:
    """Refuse patterns that match nothing, that leave nothing to train, or that a loop over blocks cannot follow."""
    if not freeze:
        return
    names = list(flatten(model.specs()))
    for pattern in freeze:
        if not any(_is_frozen(name, (pattern,)) for name in names):
            paths = [_of_any_block(name).split(".") for name in names]
            parts = {".".join(path[:end]) for path in paths for end in range(1, len(path) + 1)}
            raise ConfigError(f"freeze has {pattern!r}, which matches no parameter", hint=did_you_mean(pattern, parts))
    frozen = [name for name in names if _is_frozen(name, freeze)]
    if len(frozen) == len(names):
        raise ConfigError("freeze leaves no parameter to train", hint="name fewer")
    if scan:
        _check_alike("freeze names", frozen, names)


def _is_frozen(name: str, freeze: tuple[str, ...]) -> bool:
    """Return whether a pattern matches a parameter or a part around it; stacked blocks are all like the first."""
    name, _ = single(name, None)
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for pattern in freeze)


def _check_alike(fact: str, chosen: Iterable[str], names: Iterable[str]) -> None:
    have, all_blocks = Counter(map(_of_any_block, chosen)), Counter(map(_of_any_block, names))
    for name, number in have.items():
        if number < all_blocks[name]:
            raise ConfigError(
                f"{fact} {name} in {number} of {all_blocks[name]} blocks, which cannot be one loop",
                hint="leave out --scan, or name that of all blocks: " + name,
            )


def _of_any_block(name: str) -> str:
    """Return a dotted name with a star for the number of the block."""
    return re.sub(r"\.\d+\.", ".*.", name)


def pairs_of(adapters: Tree) -> dict[str, tuple[Array, Array]]:
    """Return a and b by the dotted name of their matrix."""
    leaves = flatten(adapters)
    names = [name.removesuffix(".a") for name in leaves if name.endswith(".a")]
    return {name: (leaves[f"{name}.a"], leaves[f"{name}.b"]) for name in names}


# --- a frozen encoder -------------------------------------------------------------------------------------------------


ROWS = 32
"""Texts of about the same length that are read in one batch."""


@dataclass(frozen=True, eq=False)
class FrozenEncoder(Encoder):
    """An encoder without dropout whose classifier alone is trained; `params` need hold nothing else.

    base      the parameters of the whole model
    vectors   what the classifier reads, by the token ids of a text
    """

    base: Tree = None
    vectors: dict[bytes, Array] = field(default_factory=dict)

    def prepare(self, data: Iterable[Dataset | None]) -> None:
        """Compute the vectors of all texts, short ones first, so that little is padded."""
        texts: dict[bytes, Array] = {}
        for rows in (rows for part in data if part is not None for rows in part.batches(1024)):
            texts |= {ids.tobytes(): ids for ids in _texts(rows.tokens, rows.mask)}
        missing = sorted((ids for key, ids in texts.items() if key not in self.vectors), key=len)
        for start in range(0, len(missing), ROWS):
            report(start, len(missing), "texts")
            some = missing[start : start + ROWS]
            tokens, mask = stack(some)
            _, saved = super().forward(self.base, tokens, mask=None if mask.all() else mask)
            self.vectors.update(zip([ids.tobytes() for ids in some], saved["classifier"].x, strict=True))

    def forward(self, params: Tree, tokens: Array, *, mask: Array | None = None, **_: Any) -> tuple[Array, Tree]:
        """Return the logits (B, classes) of texts that were prepared, and what the classifier read."""
        x = np.stack([self.vectors[ids.tobytes()] for ids in _texts(tokens, mask)])
        logits, saved = self.classifier.forward(params["classifier"], x)
        return logits, {"classifier": saved}

    def backward(self, params: Tree, saved: Tree, dlogits: Array) -> Tree:
        """Return the gradients of the classifier."""
        _, grads = self.classifier.backward(params["classifier"], saved["classifier"], dlogits)
        return {"classifier": grads}


def _texts(tokens: Array, mask: Array | None) -> list[Array]:
    """Return the ids of each text, (T,), without padding."""
    tokens = np.asarray(tokens, dtype=np.int64)
    return list(tokens) if mask is None else [row[real] for row, real in zip(tokens, mask, strict=True)]
