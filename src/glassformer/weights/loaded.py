"""A published model as it comes out of its files."""

from dataclasses import dataclass, field
from typing import Any

from ..arrays import Array, Tree
from ..config import TransformerConfig
from ..execution import PLAIN, Execution
from ..models import Model, build


@dataclass(frozen=True)
class Pooling:
    """How the vectors of a text's tokens become one vector of the text.

    kind        mean: the average of all tokens; first: the vector of the first token
    normalize   divide the vector by its length, so that a product of two is their cosine
    """

    kind: str = "mean"
    normalize: bool = True


@dataclass(frozen=True)
class Loaded:
    """A model of a known family: its settings, its weights, and what it needs to read and write text.

    params            nested dicts of arrays; they may be mapped from a file, and are then read-only; see `tensors`
    family            whose names the file used: gpt2, bert, distilbert, roberta, t5, llama, mistral or qwen2
    tokenizer         of what it reads and writes; None where the files hold none
    target_tokenizer  of what it writes, where that differs
    start_id          put before a prompt (decoder), or the first token of an answer (encoder-decoder)
    end_ids           tokens that end an answer
    chat_template     how a conversation becomes a prompt, or None
    pooling           how a sentence encoder makes one vector of a text, or None
    source            where it came from, to be shown
    extras            tensors, by their published names, that the model does not use but an export should keep
    labels            what the classes of a classifier are called; empty: by their numbers
    execution         how the model runs
    notes             what `saved` keeps beside the model: the task it learned, and how that went
    """

    config: TransformerConfig
    params: Tree
    family: str
    tokenizer: Any = None
    target_tokenizer: Any = None
    start_id: int | None = None
    end_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    pooling: Pooling | None = None
    source: str = ""
    extras: dict[str, Array] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    execution: Execution = PLAIN
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model that these weights belong to."""
        return build(self.config, self.execution)
