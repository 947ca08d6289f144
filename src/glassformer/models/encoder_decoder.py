"""The encoder-decoder: reads a source, then writes a target while looking back at it.

    memory = encoder(source)      logits = head(decoder(tokens, memory))

The source is given, so its tokens may all see each other; the target is predicted, so its tokens see only what came
before. Cross-attention joins the two: in every block of the decoder each place of the target asks the same memory.
"""

from dataclasses import dataclass
from functools import cached_property

from .. import ops
from ..config import EncoderDecoderConfig
from ..core.arrays import Array, Tree, check_mask
from ..core.errors import ConfigError
from ..core.execution import PLAIN, Execution
from ..layers import Cache, InputEmbedding, RecordShape, Stack
from ..layers.layer import sum_of
from .building import build_embedding, build_stack
from .model import Batch, WritingModel, as_key, explain_missing_params, key_mask, same_order


@dataclass(frozen=True)
class EncoderDecoder(WritingModel):
    """The original Transformer, T5 and their relatives."""

    config: EncoderDecoderConfig
    execution: Execution = PLAIN

    @cached_property
    def source_embedding(self) -> InputEmbedding:
        """Source ids to vectors."""
        return build_embedding(self.config, self.execution, vocab=self.config.source_size)

    @cached_property
    def encoder(self) -> Stack:
        """The blocks that read the source."""
        return build_stack(self.config, self.execution, causal=False, depth=self.config.encoder_depth)

    @cached_property
    def decoder(self) -> Stack:
        """The blocks that write the target."""
        return build_stack(self.config, self.execution, causal=True, cross=True)

    def specs(self) -> Tree:
        source = self.source_embedding.specs()
        if self.config.shared_embedding:
            del source["tokens"]
        return {
            "source_embedding": source,
            "embedding": self.embedding.specs(),
            "encoder": self.encoder.specs(),
            "decoder": self.decoder.specs(),
            "head": self.head.specs(),
        }

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """The blocks that read, and those that write."""
        return self.encoder, self.decoder

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what all parts keep for sources and targets of this shape (..., T)."""
        x = self.stream_shape(shape)
        return {
            "source_embedding": self.source_embedding.record_shapes(shape),
            "encoder": self.encoder.record_shapes(x),
            "memory": None if self.encoder.keeps_output else RecordShape(x),
            "embedding": self.embedding.record_shapes(shape),
            "decoder": self.decoder.record_shapes(x),
            **self.head_shapes(x),
        }

    @explain_missing_params
    def forward(
        self,
        params: Tree,
        source: Array,
        tokens: Array,
        *,
        source_mask: Array | None = None,
        mask: Array | None = None,
        key: Array | int | None = None,
    ) -> tuple[Array, Tree]:
        """Return logits (..., T, V) for source ids (..., S) and the target tokens so far (..., T).

        The masks are True for real tokens and False for padding; a seed or a key turns dropout on.
        """
        key = as_key(key)
        keys = [None if key is None else ops.fold_key(key, number) for number in range(4)]
        memory, source_embedded, encoder = self.encode(params, source, mask=source_mask, keys=(keys[0], keys[1]))
        x, embedded = self.embedding.forward(params["embedding"], tokens, key=keys[2])
        if mask is not None:
            check_mask(mask, tuple(tokens.shape), what="the padding mask")
        x, decoder = self.decoder.forward(
            params["decoder"], x, memory, mask=key_mask(mask), memory_mask=key_mask(source_mask), key=keys[3]
        )
        logits, head = self.head.forward(params.get("head", {}), x, params["embedding"]["tokens"]["table"])
        source_saved = {"source_embedding": source_embedded, "encoder": encoder}
        return logits, {**source_saved, "embedding": embedded, "decoder": decoder, "head": head}

    def encode(
        self,
        params: Tree,
        source: Array,
        *,
        mask: Array | None = None,
        keys: tuple[Array | None, Array | None] = (None, None),
    ) -> tuple[Array, Tree, Tree]:
        """Return what the encoder makes of the source (..., S, D), and its records."""
        x, embedded = self.source_embedding.forward(self._source_params(params), source, key=keys[0])
        if mask is not None:
            check_mask(mask, tuple(source.shape), what="the source mask")
        x, saved = self.encoder.forward(params["encoder"], x, mask=key_mask(mask), key=keys[1])
        return x, embedded, saved

    @explain_missing_params
    def backward(self, params: Tree, saved: Tree, dlogits: Array) -> Tree:
        """Return the gradients of all parameters for a gradient of the logits."""
        table = params["embedding"]["tokens"]["table"]
        grads: dict[str, Tree] = {}
        # logits = head(decoder(embedding(tokens), memory))
        read, grads["head"] = self.head.backward(params.get("head", {}), saved["head"], dlogits, table)
        below, grads["decoder"] = self.decoder.backward(params["decoder"], saved["decoder"], read.x)
        _, grads["embedding"] = self.embedding.backward(params["embedding"], saved["embedding"], below.x)
        # memory = encoder(source), read by every block of the decoder: below.memory is the sum of what they sent back
        above, grads["encoder"] = self.encoder.backward(params["encoder"], saved["encoder"], below.memory)
        _, source = self.source_embedding.backward(self._source_params(params), saved["source_embedding"], above.x)
        # One table may serve the target, the head and the source: as many gradients, added up.
        tokens = grads["embedding"]["tokens"]
        tokens["table"] = sum_of(tokens["table"], read.table)
        if self.config.shared_embedding:
            tokens["table"] = sum_of(tokens["table"], source.pop("tokens")["table"])
        grads["source_embedding"] = source
        return same_order(params, grads)

    def new_cache(self, params: Tree, source: Array, *, source_mask: Array | None = None) -> Cache:
        """Encode the source (..., S), once; return a cache that has read nothing of the target."""
        memory, _, _ = self.encode(params, source, mask=source_mask)
        cache = self.decoder.new_cache()
        self.decoder.remember(params["decoder"], memory, cache, mask=source_mask)
        return cache

    def decoder_stack(self, params: Tree) -> tuple[Stack, Tree]:
        """Return the stack that reads and writes the tokens, and its parameters."""
        return self.decoder, params["decoder"]

    def predict(self, params: Tree, batch: Batch, *, key: Array | None = None) -> tuple[Array, Tree]:
        """Return logits for a batch, and the record."""
        if batch.source is None:
            raise ConfigError(
                "the batch has no source", hint="an encoder-decoder reads Batch(tokens, targets, source=…)"
            )
        return self.forward(params, batch.source, batch.tokens, source_mask=batch.source_mask, mask=batch.mask, key=key)

    def _source_params(self, params: Tree) -> Tree:
        """Return the parameters of the source embedding, with the shared table where there is one."""
        if not self.config.shared_embedding:
            return params.get("source_embedding", {})
        return params.get("source_embedding", {}) | {"tokens": params["embedding"]["tokens"]}
