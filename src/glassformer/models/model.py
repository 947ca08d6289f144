"""Base of the three models: the batch that they read, and the loss and its gradients on top of them."""

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import ops
from ..core.arguments import FAILURES, REMEDIES, instead_of
from ..core.arrays import Array, Tree, check_length
from ..core.errors import ConfigError, ShapeError, some
from ..core.execution import Execution
from ..core.show import html_of
from ..core.tree import flatten
from ..layers import Cache, InputEmbedding, Layer, RecordShape, Stack, TokenHead
from ..layers.stack import ConsumableRecords
from .building import build_embedding, build_head

Method = TypeVar("Method", bound=Callable[..., Any])


class Batch(NamedTuple):
    """One batch of examples: what a model reads and what it should answer; unused parts are None.

    tokens        (..., T) ids that the encoder, or the decoder, reads
    targets       (..., T) the id that should follow each token (decoder, encoder-decoder, token head of an encoder),
                  or (...) the class of each sequence (encoder); IGNORE where nothing is asked
    mask          (..., T) True for real tokens, False for padding
    source        (..., S) ids that the encoder of an encoder-decoder reads
    source_mask   (..., S) True for real source tokens
    segments      (..., T) which of several texts a token belongs to (BERT)

    A slice, `batch[0:2]`, takes examples.
    """

    tokens: Array
    targets: Array | None = None
    mask: Array | None = None
    source: Array | None = None
    source_mask: Array | None = None
    segments: Array | None = None

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Batch(*(None if part is None else part[index] for part in self))
        return tuple.__getitem__(self, index)

    def __repr__(self) -> str:
        parts = {name: part for name, part in self._asdict().items() if part is not None}
        return f"Batch({', '.join(f'{name} {np.shape(part)}' for name, part in parts.items())})"

    def _repr_html_(self) -> str:
        parts = {name: part for name, part in self._asdict().items() if part is not None}
        return html_of("a batch", parts)


@dataclass(frozen=True)
class Pooling:
    """The way from the vectors of a text's tokens to one vector of the text.

    kind        mean: the average of all tokens; first: the vector of the first token
    normalize   divide the vector by its length, so that a product of two is their cosine
    """

    kind: str = "mean"
    normalize: bool = True


def check_params(model: "Model", params: Tree) -> None:
    """Refuse parameters of which some are missing."""
    if not isinstance(params, dict):
        raise ConfigError(f"params is {params!r:.80}", hint=REMEDIES["dict"])
    if missing := _missing(model, params):
        raise ShapeError(f"the parameters lack {some(missing)}", hint=REMEDIES["dict"])


def _missing(model: "Model", params: Tree) -> list[str]:
    """Return the names of parameters that are missing; none where the blocks are stacked."""
    if isinstance(params, dict) and isinstance(params.get("blocks"), dict):
        return []
    present = flatten(params)
    return [name for name in flatten(model.specs()) if name not in present]


def explain_missing_params(method: Method) -> Method:
    """Make a method of a model name the parameters that are missing, and refuse input with a short traceback."""

    @functools.wraps(method)
    def named(self: Model, *arguments: Any, **settings: Any) -> Any:
        try:
            return method(self, *arguments, **settings)
        except KeyError:
            missing = _missing(self, arguments[0] if arguments else settings["params"])
            if not missing:
                raise
            hint = "init() makes all parameters of a model, and specs() lists their names and shapes"
            raise ShapeError(f"the parameters lack {some(missing)}", hint=hint) from None
        except FAILURES as error:
            raise instead_of(error, method, (self, *arguments), settings)

    return named  # type: ignore[return-value]


class Model(Layer):
    """Base of the models: the loss and its exact gradients on top of forward and backward.

        params = model.init(seed)
        logits, saved = model.forward(params, tokens)
        loss, grads = model.loss_and_grads(params, Batch(tokens, targets))

    `saved` is the record of the forward pass: `saved["blocks"][0]["attention"].weights`, and every other intermediate,
    by the dotted names that `glassformer.core.tree.flatten(saved)` lists.
    """

    config: Any
    execution: Execution

    @cached_property
    def embedding(self) -> InputEmbedding:
        """Ids to vectors; of an encoder-decoder, those of the target."""
        return build_embedding(self.config, self.execution)

    @property
    @abstractmethod
    def stacks(self) -> tuple[Stack, ...]:
        """The stacks of blocks, in the order in which they run."""

    def stream_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (..., T, D) of what the blocks read for ids of this shape (..., T)."""
        return (*shape, self.config.width)

    @abstractmethod
    def predict(self, params: Tree, batch: Batch, *, key: Array | None = None) -> tuple[Array, Tree]:
        """Return logits for a batch, and the record."""

    @abstractmethod
    def backward(self, params: Tree, saved: Tree, dlogits: Array) -> Tree:
        """Return the gradients of all parameters for a gradient of the logits."""

    def loss(
        self,
        params: Tree,
        batch: Batch,
        *,
        key: Array | None = None,
        smoothing: float = 0.0,
        class_weights: Array | None = None,
    ) -> Array:
        """Return the mean cross-entropy of a batch; a `key` turns dropout on."""
        logits, _ = self.predict(params, batch, key=key)
        loss, _ = ops.cross_entropy(logits, _targets(batch), smoothing=smoothing, class_weights=class_weights)
        return loss

    def loss_and_grads(
        self,
        params: Tree,
        batch: Batch,
        *,
        key: Array | None = None,
        smoothing: float = 0.0,
        class_weights: Array | None = None,
        dloss: Array | float = 1.0,
        pair: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    ) -> tuple[Array, Tree]:
        """Return the mean cross-entropy of a batch and its gradient for every parameter, by the same names.

        The gradients are `dloss` times as large: half precision needs them away from zero. A `pair` of functions is
        another loss and its backward: see `register_loss`.
        """
        logits, saved = self.predict(params, batch, key=key)
        targets, weights = _targets(batch), class_weights
        if pair is None:
            loss, loss_saved = ops.cross_entropy(logits, targets, smoothing=smoothing, class_weights=weights)
            dlogits = ops.cross_entropy_backward(dloss, loss_saved, smoothing=smoothing)
        else:
            loss, loss_saved = pair[0](logits, targets)
            dlogits = pair[1](dloss, loss_saved)
        del logits, loss_saved
        saved = _consumable(saved)  # by this name alone, so that what was read is free
        return loss, self.backward(params, saved, dlogits)


class WritingModel(Model):
    """A model that writes: it reads on from where it stopped, remembering keys and values in a cache."""

    @property
    def rereads(self) -> bool:
        """Whether the whole text is read for every token that is written, since a cache would not do."""
        return False

    @cached_property
    def head(self) -> TokenHead:
        """Vectors to logits."""
        return build_head(self.config)

    @abstractmethod
    def decoder_stack(self, params: Tree) -> tuple[Stack, Tree]:
        """Return the stack that reads and writes the tokens, and its parameters."""

    def head_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what the head keeps for x of this shape, and of x where the stack does not keep it."""
        kept = self.head.keeps_input and not self.stacks[-1].keeps_output
        return {"head": self.head.record_shapes(shape), "x": RecordShape(shape) if kept else None}

    @explain_missing_params
    def read(
        self,
        params: Tree,
        tokens: Array,
        cache: Cache,
        *,
        mask: Array | None = None,
        positions: Array | None = None,
        last: bool = False,
    ) -> Array:
        """Return the logits of further tokens (..., T), as `forward` gives them after all that the cache has read.

        mask        (..., T) True for those of the new tokens that are real
        positions   (..., T) where each stands, for sequences padded on the left
        last        logits of the last token only, (..., 1, V)
        """
        new = tokens.shape[-1]
        stack, stack_params = self.decoder_stack(params)
        if stack.positions is not None and stack.positions.follows_tokens:
            fact = f"positions {self.config.positions!r} follow from all tokens, and a cache does not keep these"
            raise ConfigError(fact, hint="read the text from its beginning: cache=False, or model.forward")
        if positions is None:  # else the embedding checks them: padding takes room in the cache, not in the context
            check_length(cache.length + new, self.config.context)
            positions = cache.rows(new)
        x, _ = self.embedding.forward(params["embedding"], tokens, positions=positions)
        x = stack.read(stack_params, x, cache, mask=mask, positions=positions)
        x = ops.take_last(x) if last else x
        return self.head.forward(params.get("head", {}), x, params["embedding"]["tokens"]["table"])[0]


def _consumable(saved: Tree) -> Tree:
    """Return a record that one backward pass may consume."""
    if isinstance(saved, dict):
        return {
            name: ConsumableRecords(part) if isinstance(part, list) else _consumable(part)
            for name, part in saved.items()
        }
    return saved


def _targets(batch: Batch) -> Array:
    if batch.targets is None:
        raise ConfigError("the batch has no targets", hint="a loss needs Batch(tokens, targets)")
    return batch.targets


def same_order(params: Tree, grads: Tree) -> Tree:
    """Return the gradients in the order in which the parameters stand."""
    if isinstance(params, dict):
        ordered = grads if list(grads) == list(params) else {name: grads[name] for name in params}
        for name, part in params.items():
            if type(part) is dict and len(part) == 1:
                # Nothing is out of order in a part with one array: most have a matrix alone, and steps can be short.
                (only,) = part.values()
                if type(only) is np.ndarray:
                    continue
            if type(part) in (dict, list):
                ordered[name] = same_order(part, ordered[name])
        return ordered
    if isinstance(params, list):
        return [same_order(*parts) for parts in zip(params, grads, strict=True)]
    return grads


def as_key(key: Array | int | None) -> Array | None:
    """Turn a seed into a dropout key; keys and None pass."""
    return ops.new_key(int(key)) if isinstance(key, int | np.integer) else key


def key_mask(mask: Array | None) -> Array | None:
    """Return a padding mask (..., S) as one that hides keys from all queries: (..., 1, S)."""
    return None if mask is None else mask[..., None, :]
