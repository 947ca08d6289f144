"""A request: prompts, and the settings by which they are continued."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..core.arrays import Array, check_ids, check_length
from ..core.errors import ConfigError, LengthError, ShapeError
from ..core.settings import check_count, from_settings
from .sampling import Sampling

CHUNK = 512
PLAIN = Sampling()
"""Draws by the model's own distribution."""

Ids = Sequence[int] | Array
Rows = list[Array]
"""The ids of several sequences."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """The prompts and the settings of `generate_steps` and `beam_search`.

    prompts             ids of different lengths; for an encoder-decoder what the answers start with, such as <bos>
    sources             ids that an encoder-decoder reads, one sequence for each prompt
    max_new_tokens      the most tokens of an answer
    sampling            how tokens are chosen (beam search takes the likeliest)
    n, seed             samples of each prompt; what sample i of a prompt says depends on the prompt, the seed and i
                        alone, so that it says the same in any batch
    stop_ids            tokens that end a sequence
    ends                called with a sequence and its new id, or with the ids of a beam: True ends it there, as a stop
                        id would
    log_probabilities   None: none; 0: those of the chosen tokens; k: those of the k likeliest as well
    known               None: any id may be written; else those below this: see `only_known`
    beams               how many beginnings a search keeps (None: tokens are drawn)
    length_penalty      above 0 favors longer sequences, below 0 shorter ones, as scores are negative (None: 1)
    early_stopping      True: a search stops as soon as `beams` sequences are complete; else it goes on while the best
                        beginning, if it ended now, would beat the worst of them
    cache, chunk        False: read everything again at every step; else read the prompts in chunks of this many tokens
    burst               tokens that a reader may write before it returns the first of them (None: as many as it
                        can), unless penalties or log-probabilities need the logits in between; 1: each as it comes
    slide               a decoder goes on past the context: see `reader`
    """

    prompts: Sequence[Ids]
    sources: Sequence[Ids] | None = None
    max_new_tokens: int
    sampling: Sampling = PLAIN
    n: int = 1
    seed: int = 0
    stop_ids: Collection[int] = ()
    ends: Callable[..., bool] | None = None
    log_probabilities: int | None = None
    known: int | None = None
    beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | None = None
    cache: bool = True
    chunk: int = CHUNK
    burst: int | None = None
    slide: bool = False

    def __post_init__(self) -> None:
        for name, least in (("max_new_tokens", 1), ("n", 1), ("chunk", 1), ("burst", 1), ("beams", 1), ("seed", 0),
                            ("log_probabilities", 0)):  # fmt: skip
            value = getattr(self, name)
            if value is not None or name in ("max_new_tokens", "n", "chunk", "seed"):
                check_count(name, value, least=least)
        if self.beams is None and (self.length_penalty is not None or self.early_stopping is not None):
            raise ConfigError("length_penalty and early_stopping belong to beam search", hint="set beams as well")
        if self.beams is not None:
            self._check_search(self.beams)

    def _check_search(self, beams: int) -> None:
        """Refuse settings that have no meaning in a search."""
        if self.sampling != PLAIN:
            raise ConfigError("beam search takes the likeliest answer and draws none", hint="leave sampling out")
        if self.n > beams:
            fact = f"n is {self.n}, but the search has {beams} beams"
            raise ConfigError(fact, hint="use an n from 1 to the number of beams")
        if self.log_probabilities:
            fact = "beam search keeps the log-probabilities of the chosen tokens only"
            raise ConfigError(fact, hint="ask for 0 others")

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        """Build it from settings by name; refuse unknown ones. Sampling that is None is the model's own."""
        settings = {**settings, "sampling": settings.get("sampling") or PLAIN}
        return from_settings("generation has no setting", settings, cls)

    def checked(self, config: TransformerConfig) -> Self:
        """Return the same with prompts and sources as arrays of ids; refuse what a model cannot read."""
        prompts, sources = self.prompts, self.sources
        if isinstance(config, EncoderConfig):
            raise ConfigError("an encoder does not write text", hint="use a decoder or an encoder-decoder")
        if isinstance(config, DecoderConfig) and sources is not None:
            raise ConfigError("a decoder has no source", hint="put all that it should read into the prompt")
        if isinstance(config, EncoderDecoderConfig) and sources is None:
            raise ConfigError("an encoder-decoder needs a source", hint="pass the ids that its encoder reads")
        if not prompts:
            raise LengthError("there are no prompts", hint="pass at least one")
        if sources is not None and len(sources) != len(prompts):
            raise ShapeError(
                f"there are {len(prompts)} prompts but {len(sources)} sources", hint="pass one source each"
            )
        read = [checked_ids(ids, config.vocab, config.context, "the prompt") for ids in prompts]
        if isinstance(config, EncoderDecoderConfig) and sources is not None:
            sources = [checked_ids(ids, config.source_size, config.context, "the source") for ids in sources]
        slides = self.slide and isinstance(config, DecoderConfig)
        return replace(self, prompts=read, sources=sources, stop_ids=frozenset(self.stop_ids), slide=slides)

    def for_each_prompt(self) -> list[Self]:
        """Return a request for each prompt alone."""
        sources = [None] * len(self.prompts) if self.sources is None else [[source] for source in self.sources]
        return [replace(self, prompts=[p], sources=s) for p, s in zip(self.prompts, sources, strict=True)]

    def room(self, prompt: Ids, context: int) -> int:
        """Return how many tokens may follow a prompt in one context."""
        # The last token fills the position after the context and is never read.
        return min(self.max_new_tokens, context + 1 - len(prompt))

    def limits(self, context: int) -> list[int]:
        """Return how many tokens may follow each prompt."""
        return [self.max_new_tokens if self.slide else self.room(prompt, context) for prompt in self.prompts]


def checked_ids(ids: Ids, vocab: int, context: int, what: str) -> Array:
    """Return one sequence of ids as an array; refuse what a model cannot read."""
    ids = np.asarray(ids, dtype=None if len(ids) else np.int64)
    if ids.ndim != 1:
        raise ShapeError(f"{what} has shape {ids.shape}", hint="pass one sequence of ids for each prompt")
    check_length(len(ids), context, what=what)
    check_ids(ids, vocab, what=f"the ids of {what}")
    return ids.astype(np.int64)
