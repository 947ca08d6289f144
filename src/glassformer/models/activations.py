"""How much memory the record of a forward pass takes, counted array by array without making any."""

from dataclasses import dataclass

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..execution import PLAIN, Execution


def activation_bytes(
    config: TransformerConfig, batch: int, length: int, itemsize: int = 4, *, execution: Execution = PLAIN
) -> int:
    """Return the memory of everything that training on `batch` sequences of `length` records for the backward pass.

    Token ids and masks given from outside are left out; an encoder-decoder reads a source as long as its target.
    A model that computes in half precision has numbers of two bytes, but for statistics and tables, which keep
    `itemsize`. With remat, the record of one block is counted as well: it is there while that block runs again.
    """
    count = _Count(config, execution, batch, length, itemsize)
    if isinstance(config, EncoderDecoderConfig):
        memory = count.vector * config.has_final_norm  # without a norm it is the output of the last block
        encoder = count.embedding() + count.stack(config.encoder_depth) + memory
        decoder = count.embedding() + count.stack(config.layers, cross=True) + count.again(cross=True)
        return encoder + decoder + count.token_head()
    if not isinstance(config, EncoderConfig):
        return count.embedding() + count.stack(config.layers) + count.again() + count.token_head()
    begun = count.embedding()
    if config.pooling == "cls":
        count = _Count(config, execution, batch, length + 1, itemsize)
        begun += count.vector
    return begun + count.stack(config.layers) + count.again() + count.encoder_head(config)


@dataclass(frozen=True)
class _Count:
    """Sizes of the parts of a record, in bytes. An array is counted where it is first made."""

    config: TransformerConfig
    execution: Execution
    batch: int
    length: int
    wide: int
    """Bytes of a number in statistics and tables."""

    @property
    def itemsize(self) -> int:
        """Bytes of a number anywhere else."""
        return self.wide if self.execution.half is None else 2

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def vector(self) -> int:
        """One array (B, T, D)."""
        return self.tokens * self.config.width * self.itemsize

    @property
    def norm(self) -> int:
        """The statistics of one norm."""
        return {"layer": 2, "none": 0}.get(self.config.norm, 1) * self.tokens * self.wide

    @property
    def kept(self) -> int:
        """What dropout kept of one array (B, T, D), a byte each."""
        return self.tokens * self.config.width * (self.config.dropout > 0)

    def embedding(self) -> int:
        """The embedded tokens, and what normalized and dropped them."""
        normed = (self.tokens * self.config.width * self.wide + self.norm) * self.config.embedding_norm
        kept = self.tokens * self.config.width * (self.config.input_dropout > 0)
        return self.vector + normed + kept

    def stack(self, layers: int, *, cross: bool = False) -> int:
        """The blocks, or with remat only what comes out of each, the tables of positions, and the final norm."""
        each = self.vector if self.execution.remat else self.block(cross=cross)
        return layers * each + self.positions() + self.norm * self.config.has_final_norm

    def block(self, *, cross: bool = False) -> int:
        """All that one block records."""
        attentions = 2 if cross else 1
        if self.config.block == "attention_only":
            return attentions * (self.attention() + self.sublayer())
        every = attentions * (self.attention() + self.sublayer()) + self.feed_forward() + self.sublayer()
        # Sublayers side by side have one sum between them.
        return every - attentions * self.vector * (self.config.block == "parallel")

    def again(self, *, cross: bool = False) -> int:
        """What the backward pass records of a block when it has to run it again."""
        return self.block(cross=cross) if self.execution.remat else 0

    def sublayer(self) -> int:
        """The norm of a sublayer, its output or input, the sum with the residual, and what dropout kept."""
        return self.norm + 2 * self.vector + self.kept

    def attention(self) -> int:
        """Queries, keys, values, the mixture, and the weights with what dropout kept of them; of tiles, their sums."""
        c = self.config
        inner, shared = c.heads * c.channels, c.key_heads * c.channels
        projected = self.tokens * (2 * inner + 2 * shared) * self.itemsize
        if self.execution.tile is not None:
            return projected + self.tokens * c.heads * self.wide
        return projected + self.tokens * c.heads * self.length * (self.itemsize + (c.weight_dropout > 0))

    def feed_forward(self) -> int:
        """The hidden features before and after the activation, and the gate."""
        return (3 if self.config.gated else 2) * self.tokens * self.config.hidden * self.itemsize

    def positions(self) -> int:
        """Tables that all blocks share."""
        c = self.config
        bias = c.heads * self.length * self.length * self.wide
        if c.positions == "rotary":
            return self.length * c.channels * self.wide
        # A bias without parameters is kept where tiles, or blocks that run again, will need it.
        needed_again = self.execution.tile is not None or self.execution.remat
        if c.positions == "relative" or (c.positions == "alibi" and needed_again):
            return bias
        return 0

    def token_head(self) -> int:
        """What a head reads, if it is not the output of the last block."""
        return self.vector * (self.config.has_final_norm or self.config.head_scale)

    def encoder_head(self, config: EncoderConfig) -> int:
        """What an encoder's head reads and keeps."""
        if config.head == "tokens":
            return self.vector * (3 + config.has_final_norm) + self.norm
        # With remat, only a norm or the head keeps what came out of the last block.
        unread = self.vector * (self.execution.remat and not config.has_final_norm)
        if config.head == "none":
            return -unread
        if config.pooling == "mean":
            return self.tokens * self.wide + self.batch * config.width * self.itemsize - unread
        return self.vector * config.has_final_norm
