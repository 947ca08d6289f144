"""The decoder language model: reads left to right, predicts what comes next.

    p(text) = Π p(token t | all tokens before t)

The chain rule of probability makes a model of texts out of a model of the next token. The causal mask keeps all T
conditionals apart while one forward pass computes them at once: logits[t] knows tokens 0 … t and speaks of t + 1. To
write, one draws a token from the last row and reads it in turn.
"""

from dataclasses import dataclass
from functools import cached_property

from .. import ops
from ..config import DecoderConfig
from ..core.arrays import Array, Tree, check_mask
from ..core.execution import PLAIN, Execution
from ..layers import Cache, Stack
from ..layers.layer import sum_of
from .building import build_stack
from .model import Batch, WritingModel, as_key, explain_missing_params, key_mask, same_order


@dataclass(frozen=True)
class Decoder(WritingModel):
    """GPT, Llama and their relatives: embedding, causal blocks, head."""

    config: DecoderConfig
    execution: Execution = PLAIN

    @cached_property
    def stack(self) -> Stack:
        """The blocks."""
        return build_stack(self.config, self.execution, causal=True)

    @property
    def rereads(self) -> bool:
        """Whether positions follow from all tokens, which a cache does not keep."""
        return self.stack.positions is not None and self.stack.positions.follows_tokens

    def specs(self) -> Tree:
        return {"embedding": self.embedding.specs(), **self.stack.specs(), "head": self.head.specs()}

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The blocks."""
        return (self.stack,)

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what all parts keep for ids of this shape (..., T)."""
        x = self.stream_shape(shape)
        return {"embedding": self.embedding.record_shapes(shape), **self.stack.record_shapes(x), **self.head_shapes(x)}

    @explain_missing_params
    def forward(
        self,
        params: Tree,
        tokens: Array,
        *,
        mask: Array | None = None,
        positions: Array | None = None,
        key: Array | int | None = None,
    ) -> tuple[Array, Tree]:
        """Return logits (..., T, V) for tokens (..., T).

        mask        (..., T) True for real tokens, False for padding
        positions   (..., T) where each token stands, for sequences padded on the left; None: 0, 1, …, or as positions
                    of your own say
        key         a seed or a key turns dropout on
        """
        key = as_key(key)
        embedding_key, stack_key = (None, None) if key is None else (ops.fold_key(key, 0), ops.fold_key(key, 1))
        if positions is None and self.stack.positions is not None:
            positions = self.stack.positions.places(tokens)
        x, embedded = self.embedding.forward(params["embedding"], tokens, positions=positions, key=embedding_key)
        if mask is not None:
            check_mask(mask, tuple(tokens.shape), what="the padding mask")
        x, saved = self.stack.forward(params, x, mask=key_mask(mask), positions=positions, key=stack_key)
        logits, head = self.head.forward(params.get("head", {}), x, params["embedding"]["tokens"]["table"])
        return logits, {"embedding": embedded, **saved, "head": head}

    @explain_missing_params
    def backward(self, params: Tree, saved: Tree, dlogits: Array) -> Tree:
        """Return the gradients of all parameters for a gradient of the logits."""
        table = params["embedding"]["tokens"]["table"]
        # logits = head(stack(embedding(tokens))), undone from the outside in
        read, head = self.head.backward(params.get("head", {}), saved["head"], dlogits, table)
        below, stack = self.stack.backward(params, saved, read.x)
        _, embedding = self.embedding.backward(params["embedding"], saved["embedding"], below.x)
        tokens = embedding["tokens"]  # a tied table is used twice: its two gradients add up
        tokens["table"] = sum_of(tokens["table"], read.table)
        return same_order(params, {"embedding": embedding, **stack, "head": head})

    def new_cache(self) -> Cache:
        """Return a cache that has read nothing."""
        return self.stack.new_cache()

    def decoder_stack(self, params: Tree) -> tuple[Stack, Tree]:
        """Return the stack that reads and writes the tokens, and its parameters."""
        return self.stack, params

    def predict(self, params: Tree, batch: Batch, *, key: Array | None = None) -> tuple[Array, Tree]:
        """Return logits for a batch, and the record."""
        return self.forward(params, batch.tokens, mask=batch.mask, key=key)
