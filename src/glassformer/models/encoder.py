"""The encoder: reads a sequence at once, then classifies it, fills in its tokens, or hands on its vectors.

Every token sees all others, before and after it, which suits understanding better than writing: no next token is left
to predict that has not been seen. It learns from labels, or by filling in tokens that were hidden from it (Devlin et
al. 2019). A class needs one vector for a sequence: the mean of all, the first, or that of a learned `cls` vector put
before the tokens, which says nothing itself and gathers from all the others.
"""

from dataclasses import dataclass
from functools import cached_property

from .. import ops
from ..config import EncoderConfig
from ..core.arrays import Array, Tree, check_length, check_mask, namespace
from ..core.errors import ConfigError
from ..core.execution import PLAIN, Execution
from ..layers import Linear, RecordShape, RMSNorm, Spec, Stack, TokenHead
from ..layers.layer import sum_of
from ..ops.arrange import PrependSaved
from .building import build_head, build_stack
from .model import Batch, Model, as_key, explain_missing_params, key_mask, same_order


@dataclass(frozen=True)
class Encoder(Model):
    """BERT and its relatives: embedding, blocks, and a head for classes or for tokens."""

    config: EncoderConfig
    execution: Execution = PLAIN

    @cached_property
    def stack(self) -> Stack:
        """The blocks."""
        return build_stack(self.config, self.execution, causal=False)

    @cached_property
    def classifier(self) -> Linear:
        """The pooled vector to one logit per class."""
        return Linear(self.config.width, self.config.classes or 0, std=self.config.init_std)

    @cached_property
    def pooled_norm(self) -> RMSNorm:
        """The pooled vector to one of the same direction."""
        return RMSNorm(self.config.width, self.config.norm_eps)

    @cached_property
    def pooled_linear(self) -> Linear:
        """The pooled vector to what `pooled_activation` bends."""
        return Linear(self.config.width, self.config.width, std=self.config.init_std)

    @cached_property
    def head(self) -> TokenHead:
        """Vectors to one logit per token of the vocabulary."""
        return build_head(self.config, transform=True)

    def specs(self) -> Tree:
        specs = {"embedding": self.embedding.specs(), **self.stack.specs()}
        if self.config.head == "classes":
            if self.config.pooling == "cls":
                specs["cls"] = Spec((self.config.width,), self.config.init_std or self.config.width**-0.5)
            if self.config.pooled_norm:
                specs["pooled_norm"] = self.pooled_norm.specs()
            if self.config.pooled_activation is not None:
                specs["pooled_linear"] = self.pooled_linear.specs()
            specs["classifier"] = self.classifier.specs()
        if self.config.head == "tokens":
            specs["head"] = self.head.specs()
        return specs

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The blocks."""
        return (self.stack,)

    def stream_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (..., T, D) of what the blocks read, with the learned vector where there is one."""
        return (*shape[:-1], shape[-1] + (self.config.pooling == "cls"), self.config.width)

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what all parts keep for ids of this shape (..., T)."""
        x = self.stream_shape(shape)
        shapes = {"embedding": self.embedding.record_shapes(shape), **self.stack.record_shapes(x)}
        if self.config.pooling == "cls":
            shapes["cls"] = RecordShape(x)  # before the embedded tokens, in another array
        output = None if self.stack.keeps_output else RecordShape(x)
        if self.config.head == "tokens":
            return {**shapes, "x": output, "head": self.head.record_shapes(x)}
        if self.config.head == "none":
            return shapes
        pooled = (*x[:-2], x[-1])
        if self.config.pooled_norm:
            shapes["pooled_norm"] = {"x": RecordShape(pooled), **self.pooled_norm.record_shapes(pooled)}
        if self.config.pooled_activation is not None:
            shapes |= {"pooled_linear": RecordShape(pooled), "pooled_activation": RecordShape(pooled)}
        # A mean is a new array; the first vector is seen in all of them, and so keeps them.
        if self.config.pooling == "mean":
            return {**shapes, "pool": RecordShape((*x[:-1], 1), "params"), "classifier": RecordShape(pooled)}
        return {**shapes, "pool": RecordShape((x[-2],), "bool"), "x": output}

    @explain_missing_params
    def forward(
        self,
        params: Tree,
        tokens: Array,
        *,
        mask: Array | None = None,
        segments: Array | None = None,
        key: Array | int | None = None,
    ) -> tuple[Array, Tree]:
        """Return what the head says of tokens (..., T): logits (..., classes) or (..., T, V), or vectors (..., T, D).

        mask       (..., T) True for real tokens, False for padding
        segments   (..., T) which of several texts each token belongs to
        key        a seed or a key turns dropout on
        """
        x, mask, saved = self._encode(params, tokens, mask, segments, as_key(key))
        if self.config.head == "classes":
            y, read = self.classify(params, x, mask)
            saved |= read
        elif self.config.head == "tokens":
            y, saved["head"] = self.head.forward(params.get("head", {}), x, params["embedding"]["tokens"]["table"])
        else:
            y = x
        return y, saved

    @explain_missing_params
    def backward(self, params: Tree, saved: Tree, dlogits: Array) -> Tree:
        """Return the gradients of all parameters for a gradient of what `forward` returned."""
        grads: dict[str, Tree] = {}
        dtable = None
        if self.config.head == "classes":
            dx, grads = self.classify_backward(params, saved, dlogits)
        elif self.config.head == "tokens":
            table = params["embedding"]["tokens"]["table"]
            (dx, dtable), grads["head"] = self.head.backward(params.get("head", {}), saved["head"], dlogits, table)
        else:
            dx = dlogits
        below, stack = self.stack.backward(params, saved, dx)
        dx = below.x
        # x = concat(cls, embedded): the first place belongs to cls, which stood before every sequence of the batch
        if self.config.pooling == "cls":
            grads["cls"], dx = ops.prepend_backward(dx, PrependSaved(params["cls"]))
        _, embedding = self.embedding.backward(params["embedding"], saved["embedding"], dx)
        tokens = embedding["tokens"]  # a tied table is used twice: its two gradients add up
        tokens["table"] = sum_of(tokens["table"], dtable)
        return same_order(params, {"embedding": embedding, **stack, **grads})

    def classify(self, params: Tree, x: Array, mask: Array | None) -> tuple[Array, dict[str, Tree]]:
        """Return one logit per class for the vectors (..., T, D) after the last block, and the record."""
        saved: dict[str, Tree] = {}
        if self.config.pooling == "mean":
            x, saved["pool"] = ops.mean_pool(x, mask=mask)
        else:
            x, saved["pool"] = ops.take_first(x)
        if self.config.pooled_norm:
            x, saved["pooled_norm"] = self.pooled_norm.forward(params["pooled_norm"], x)
        if self.config.pooled_activation is not None:
            x, saved["pooled_linear"] = self.pooled_linear.forward(params["pooled_linear"], x)
            x, saved["pooled_activation"] = ops.activation_pair(self.config.pooled_activation)[0](x)
        y, saved["classifier"] = self.classifier.forward(params["classifier"], x)
        return y, saved

    def classify_backward(self, params: Tree, saved: Tree, dlogits: Array) -> tuple[Array, dict[str, Tree]]:
        """Return the gradient of the vectors that `classify` read, and those of its parameters."""
        grads: dict[str, Tree] = {}
        dx, grads["classifier"] = self.classifier.backward(params["classifier"], saved["classifier"], dlogits)
        if self.config.pooled_activation is not None:
            dx = ops.activation_pair(self.config.pooled_activation)[1](dx, saved["pooled_activation"])
            dx, grads["pooled_linear"] = self.pooled_linear.backward(
                params["pooled_linear"], saved["pooled_linear"], dx
            )
        if self.config.pooled_norm:
            dx, grads["pooled_norm"] = self.pooled_norm.backward(params["pooled_norm"], saved["pooled_norm"], dx)
        # The pooled vector is the mean of all places, or the first alone: all others then get zeros.
        if self.config.pooling == "mean":
            return ops.mean_pool_backward(dx, saved["pool"]), grads
        return ops.take_first_backward(dx, saved["pool"]), grads

    def predict(self, params: Tree, batch: Batch, *, key: Array | None = None) -> tuple[Array, Tree]:
        """Return logits for a batch, and the record."""
        if self.config.head == "none":
            raise ConfigError(
                'this encoder has no head to predict with (head is "none")', hint="use forward for vectors"
            )
        return self.forward(params, batch.tokens, mask=batch.mask, segments=batch.segments, key=key)

    def _encode(
        self, params: Tree, tokens: Array, mask: Array | None, segments: Array | None, key: Array | None
    ) -> tuple[Array, Array | None, Tree]:
        """Return the vectors after the last block, the mask that goes with them, and the record."""
        embedding_key, stack_key = (None, None) if key is None else (ops.fold_key(key, 0), ops.fold_key(key, 1))
        settings = {"segments": segments, "positions": self._positions(tokens), "key": embedding_key}
        x, embedded = self.embedding.forward(params["embedding"], tokens, **settings)
        if mask is not None:
            check_mask(mask, tuple(tokens.shape), what="the padding mask")
        if self.config.pooling == "cls":
            x, _ = ops.prepend(params["cls"], x)
            if mask is not None:  # the learned vector is seen by all
                mask = ops.prepend_true(mask)
        x, saved = self.stack.forward(params, x, mask=key_mask(mask), key=stack_key)
        return x, mask, {"embedding": embedded, **saved}

    def _positions(self, tokens: Array) -> Array | None:
        """Return where tokens (..., T) stand, None for 0, 1, …: padding at 0, the others at 1, 2, … wherever it is."""
        namespace(tokens)  # refuse lists
        if self.config.padding_id is None or tokens.ndim < 1:
            return None
        check_length(tokens.shape[-1], self.config.context)
        return ops.unpadded_positions(tokens, padding=self.config.padding_id)
