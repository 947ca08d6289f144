"""Settings of a model: frozen, checked once, and refused when they contradict each other.

TransformerConfig            what the three architectures share
├── EncoderConfig            reads a sequence at once; classifies it, or fills in its tokens
├── DecoderConfig            reads left to right and predicts the next token
└── EncoderDecoderConfig     reads a source with an encoder and writes a target with a decoder
"""

import functools
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any, ClassVar, Self

from .core import registry
from .core.arguments import short_traces
from .core.errors import ConfigError
from .core.execution import AMONG_MODEL_SETTINGS, separated
from .core.settings import check_known, check_range, check_settings, check_types, from_settings, setting_names

POSITION_NAMES = registry.BUILT_IN["positions"]


@dataclass(frozen=True)
class RotaryScaling:
    """The scaling by which Llama 3 stretches its rotations to read further than it was trained on.

    Wavelengths above original_context / low_factor turn `factor` times slower, those below
    original_context / high_factor are left alone, and those between are blended.
    """

    factor: float = 8.0
    low_factor: float = 1.0
    high_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self) -> None:
        check_types(self, " of rotary_scaling")
        check_range(self, *setting_names(type(self)), above=0, of=" of rotary_scaling")
        if not self.low_factor < self.high_factor:
            fact = f"rotary_scaling has low_factor {self.low_factor} and high_factor {self.high_factor}"
            raise ConfigError(fact, hint="low_factor must be below high_factor")


def _check_names(cls: type, settings: Mapping[str, Any]) -> None:
    for name in settings:
        if name in AMONG_MODEL_SETTINGS:
            raise ConfigError(
                f"{name} says how a model runs, not what it is",
                hint=f"build(config, Execution({AMONG_MODEL_SETTINGS[name]}=…)), or build(config, {name}=…)",
            )
    listed = f"`glassformer settings {getattr(cls, 'architecture', '') or 'model'}` lists them all"
    check_settings(f"{cls.__name__} has no setting", settings, cls, listed=listed)


def _refuse_unknown(cls: type) -> type:
    """Make a dataclass answer an unknown setting with the names it may have meant, and document all its settings."""
    cls.__doc__ = f"{cls.__doc__}\n\n    {(TransformerConfig.__doc__ or '').partition('. ')[2]}"
    init = cls.__init__  # type: ignore[misc]

    @short_traces
    @functools.wraps(init)
    def checked_init(self: Any, **settings: Any) -> None:
        _check_names(cls, settings)
        missing = {f.name for f in fields(self) if f.default is MISSING} - settings.keys()
        if missing:
            raise ConfigError(f"{cls.__name__} needs {', '.join(sorted(missing))}", hint="these have no default")
        init(self, **settings)

    cls.__init__ = checked_init  # type: ignore[misc]
    return cls


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The settings of all architectures. Those that are None follow from others; see the properties below.

    vocab                token ids that the model knows
    width                features per token
    heads                attention heads
    layers               blocks; of an encoder-decoder, those of the decoder
    context              the longest sequence that the model reads
    feed_forward         width inside the feed-forward layers (none: 4 · width)
    kv_heads             heads of keys and values, which heads of queries share (none: heads)
    head_width           channels per head (none: width / heads)
    activation           of the feed-forward layers: relu, gelu, gelu_tanh, silu, or one of your own by name
    gated                act(gate) · up in the feed-forward layers, as in SwiGLU, instead of act(up)
    norm                 layer: LayerNorm; rms: RMSNorm; none: no norms anywhere
    norm_eps             eps under the root of a norm
    norm_bias            whether a layer norm shifts as well as scales
    norm_position        pre: x + f(norm x); post: norm(x + f(x))
    final_norm           one more norm after the last block (none: if norm_position is pre)
    positions            how the model knows where a token stands: learned, sinusoidal, rotary, alibi, relative, none
    rotary_base          of rotary positions: the larger, the slower they turn
    rotary_pairing       of rotary positions: halves: feature i turns with i + half; interleaved: with its neighbor
    rotary_channels      of rotary positions: how many channels of a head turn, as in Pythia (none: all)
    rotary_scaling       of rotary positions: turn slower, as Llama 3 does to read further: {"factor": 8, …}
    relative_buckets     of relative positions: how many distances are told apart, as in T5
    relative_distance    of relative positions: distances from here on share a bucket
    attention_bias       biases of query, key and value
    output_bias          bias of attention's output (none: as attention_bias)
    feed_forward_bias    biases of the feed-forward layers
    scale_scores         divide the scores by √(channels per head)
    window               each token sees tokens less than this many positions away (none: all)
    stride               each token sees tokens less than this far away, and every stride-th beyond (none: all)
    block                residual: x + f(norm x); parallel, attention_only, feed_forward_only, no_residual, or your own
    tied_head            logits = h Eᵀ with the token embedding E, instead of a matrix of their own
    head_bias            a bias on the logits
    head_scale           divide what the head reads by √width (T5 with a tied head)
    embedding_scale      multiply embeddings by √width
    embedding_norm       normalize embeddings
    dropout              share of the sublayers' outputs that training sets to zero
    attention_dropout    the same for attention weights (none: as dropout)
    embedding_dropout    the same for embeddings (none: as dropout)
    init_std             spread of the initial weights (none: 1/√inputs)
    """

    architecture: ClassVar[str] = ""

    vocab: int
    width: int
    heads: int
    layers: int
    context: int
    feed_forward: int | None = None
    kv_heads: int | None = None
    head_width: int | None = None
    activation: str = "gelu"
    gated: bool = False
    norm: str = "layer"
    norm_eps: float = 1e-5
    norm_bias: bool = True
    norm_position: str = "pre"
    final_norm: bool | None = None
    positions: str = "learned"
    rotary_base: float = 10000.0
    rotary_pairing: str = "halves"
    rotary_channels: int | None = None
    rotary_scaling: RotaryScaling | None = None  # a mapping of its settings is taken too
    relative_buckets: int = 32
    relative_distance: int = 128
    attention_bias: bool = True
    output_bias: bool | None = None
    feed_forward_bias: bool = True
    scale_scores: bool = True
    window: int | None = None
    stride: int | None = None
    block: str = "residual"
    tied_head: bool = True
    head_bias: bool = False
    head_scale: bool = False
    embedding_scale: bool = False
    embedding_norm: bool = False
    dropout: float = 0.0
    attention_dropout: float | None = None
    embedding_dropout: float | None = None
    init_std: float | None = None

    def __post_init__(self) -> None:
        given: Any = self.rotary_scaling
        if isinstance(given, Mapping):
            scaling = from_settings("rotary_scaling has no setting", given, RotaryScaling)
            object.__setattr__(self, "rotary_scaling", scaling)
        check_types(self)
        self._check_sizes()
        for name, allowed in choices().items():
            if getattr(self, name, None) is not None:
                check_known(f"{name} is", getattr(self, name), allowed)
        self._check_combinations()

    @property
    def hidden(self) -> int:
        """Width inside the feed-forward layers."""
        return 4 * self.width if self.feed_forward is None else self.feed_forward

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def channels(self) -> int:
        """Channels per head."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the last block."""
        return self.norm != "none" and (self.norm_position == "pre" if self.final_norm is None else self.final_norm)

    @property
    def has_output_bias(self) -> bool:
        """Whether the output projection of attention has a bias."""
        return self.attention_bias if self.output_bias is None else self.output_bias

    @property
    def weight_dropout(self) -> float:
        """Dropout rate on attention weights."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout

    @property
    def input_dropout(self) -> float:
        """Dropout rate on embeddings."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    def replace(self, **settings: Any) -> Self:
        """Return the same config with some settings changed."""
        _check_names(type(self), settings)
        return replace(self, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, with the architecture, ready for JSON."""
        settings = asdict(self)
        changed = {f.name: settings[f.name] for f in fields(self) if settings[f.name] != f.default}
        return {"architecture": self.architecture, **changed}

    def _check_sizes(self) -> None:
        sizes = ["vocab", "width", "heads", "layers", "context", "feed_forward", "kv_heads", "head_width", "window"]
        sizes += ["stride", "rotary_channels", "relative_distance", "encoder_layers", "source_vocab"]
        check_range(self, *sizes, least=1)
        check_range(self, "dropout", "attention_dropout", "embedding_dropout", least=0, below=1)
        check_range(self, "norm_eps", "rotary_base", "init_std", above=0)
        check_range(self, "segments", least=0)
        if self.relative_buckets < 4 or self.relative_buckets % 4:
            raise ConfigError(f"relative_buckets is {self.relative_buckets}", hint="use a multiple of 4")

    def _check_combinations(self) -> None:
        if self.head_width is None and self.width % self.heads:
            raise ConfigError(
                f"width {self.width} is not divisible by {self.heads} heads",
                hint=f"use width {-(-self.width // self.heads) * self.heads}, or set head_width yourself",
            )
        if self.heads % self.key_heads:
            fact = f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly"
            raise ConfigError(fact, hint="kv_heads must divide heads (1 is multi-query attention)")
        turning = self.rotary_channels or self.channels
        if self.positions == "rotary" and (self.channels % 2 or turning % 2 or turning > self.channels):
            fact = f"rotary positions turn pairs, but heads have {self.channels} channels, of which {turning} turn"
            raise ConfigError(fact, hint="make it even")
        if self.positions == "relative" and self.relative_distance <= self.relative_buckets // 2:
            raise ConfigError(
                f"relative_distance is {self.relative_distance}, but half of {self.relative_buckets} buckets"
                " already hold one distance each",
                hint=f"use a relative_distance above {self.relative_buckets // 2}, or fewer buckets",
            )
        for name, unset in (("rotary_scaling", None), ("rotary_channels", None), ("rotary_pairing", "halves")):
            if getattr(self, name) != unset and self.positions != "rotary":
                raise ConfigError(f"{name} is set, but positions are {self.positions!r}", hint='use positions="rotary"')
        if self.head_scale and not self.tied_head:
            raise ConfigError("head_scale belongs to a tied head, but tied_head is False", hint="leave head_scale out")
        if self.norm == "rms" and self.norm_bias is not True:
            raise ConfigError("norm_bias is set, but an rms norm never has one", hint="leave norm_bias out")
        if self.norm == "none" and (self.final_norm or self.embedding_norm or not self.norm_bias):
            raise ConfigError('settings of norms are set, but norm is "none"', hint="leave them out, or choose a norm")
        if self.block == "feed_forward_only" and self.positions not in ("learned", "sinusoidal", "none"):
            fact = f'positions are {self.positions!r}, which act on attention, but block is "feed_forward_only"'
            raise ConfigError(fact, hint='use positions "learned", "sinusoidal" or "none"')


@_refuse_unknown
@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """An encoder: every token sees every other.

    head               classes: one prediction per sequence; tokens: one per token (as BERT's); none: vectors alone
    classes            how many classes
    pooling            mean: average of the tokens; cls: a learned vector put before them; first: the first token
    pooled_norm        an RMS norm on the pooled vector: where it has one, only its direction counts
    pooled_activation  a layer before the classes, with relu, gelu, gelu_tanh, silu or one of your own (none: no layer)
    segments           kinds of segment embeddings (2 for BERT)
    padding_id         learned positions count the tokens that are not this one, as RoBERTa's do (none: all)
    """

    architecture: ClassVar[str] = "encoder"

    head: str = "classes"
    classes: int | None = None
    pooling: str = "mean"
    pooled_norm: bool = False
    pooled_activation: str | None = None
    segments: int = 0
    padding_id: int | None = None

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.head == "classes" and (self.classes is None or self.classes < 2):
            raise ConfigError(
                f"a classifier has classes={self.classes}",
                hint='set classes to 2 or more, or head to "tokens" or "none"',
            )
        if self.head != "classes" and self.classes is not None:
            raise ConfigError(f"classes is set, but head is {self.head!r}", hint='use head="classes"')
        of_pooled = {
            'pooling is "cls"': self.pooling == "cls",
            "pooled_norm is set": self.pooled_norm,
            "pooled_activation is set": self.pooled_activation is not None,
        }
        for fact, is_set in of_pooled.items():
            if is_set and self.head != "classes":
                raise ConfigError(f"{fact}, but head is {self.head!r}", hint='use head="classes"')
        if self.head != "tokens" and (self.head_bias or self.head_scale):
            raise ConfigError(
                f"head_bias and head_scale belong to a head for tokens, but head is {self.head!r}",
                hint='leave them out, or use head="tokens"',
            )
        if self.padding_id is not None and (self.positions != "learned" or not 0 <= self.padding_id < self.vocab):
            fact = f"padding_id is {self.padding_id}, with {self.positions} positions and {self.vocab:,} tokens"
            raise ConfigError(fact, hint="name one of the tokens, with learned positions, or leave it out")


@_refuse_unknown
@dataclass(frozen=True, kw_only=True)
class DecoderConfig(TransformerConfig):
    """A decoder language model: every token sees those before it."""

    architecture: ClassVar[str] = "decoder"


@_refuse_unknown
@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(TransformerConfig):
    """An encoder and a decoder that looks at what it read.

    encoder_layers     blocks of the encoder (none: as many as the decoder)
    source_vocab       token ids of the source (none: as the target)
    shared_embedding   one table for source and target tokens
    """

    architecture: ClassVar[str] = "encoder-decoder"

    tied_head: bool = False
    encoder_layers: int | None = None
    source_vocab: int | None = None
    shared_embedding: bool = False

    @property
    def source_size(self) -> int:
        """Token ids of the source."""
        return self.vocab if self.source_vocab is None else self.source_vocab

    @property
    def encoder_depth(self) -> int:
        """Blocks of the encoder."""
        return self.layers if self.encoder_layers is None else self.encoder_layers

    def _check_combinations(self) -> None:
        super()._check_combinations()
        if self.block == "feed_forward_only":
            fact = 'block is "feed_forward_only": without attention, a decoder sees nothing of its source'
            raise ConfigError(fact, hint="choose another block, or a decoder alone")
        if self.shared_embedding and self.source_size != self.vocab:
            raise ConfigError(
                f"one table cannot serve {self.source_size} source ids and {self.vocab} target ids",
                hint="leave source_vocab out, or set shared_embedding to False",
            )


CONFIGS = {cls.architecture: cls for cls in (EncoderConfig, DecoderConfig, EncoderDecoderConfig)}


def config_from_dict(settings: Mapping[str, Any]) -> TransformerConfig:
    """Build the config that `to_dict` described; settings of an `Execution` among them say nothing about a model."""
    settings, _ = separated(settings)
    architecture = settings.pop("architecture", None)
    check_known("the architecture is", architecture, CONFIGS)
    return CONFIGS[architecture](**settings)


def choices() -> dict[str, tuple[str, ...]]:
    """Return the words that settings take, registered parts included."""
    parts = {family: registry.known(family) for family in registry.BUILT_IN if family != "op"}
    return {**_CHOICES, **parts, "pooled_activation": parts["activation"]}


_CHOICES = {
    "norm_position": ("pre", "post"),
    "rotary_pairing": ("halves", "interleaved"),
    "pooling": ("mean", "cls", "first"),
    "head": ("classes", "tokens", "none"),
}
