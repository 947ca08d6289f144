"""A model as it is passed around: its config, its parameters, its tokenizer, and what else is known of it.

@trained_or_pair
def detect_heads(model: Model, params: Tree, *, length: int | None = None) -> …

detect_heads(gf.load("smollm2"))       detect_heads(model, params)
"""

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast, overload

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..core.arrays import Array, Tree
from ..core.errors import WeightsError
from ..core.execution import PLAIN, Execution
from ..core.quantized import unpacked
from ..data import Lexicon, Task
from ..data.tasks import build_task, check_registered
from ..models import Batch, Model, build, check_params
from ..models.model import Pooling
from ..text import PublishedTokenizer, Tokenizer
from ..text.tokenizer import Labels, token_labels

START, END = "<bos>", "<eos>"  # what our own tokenizers call the tokens before and after a text
P = ParamSpec("P")
Result = TypeVar("Result", covariant=True)


@dataclass(eq=False, repr=False)
class LoadedModel:
    """A model with its parameters, its tokenizer and its history; `TrainedModel` describes the fields.

    What reads weights returns it, and what writes, explains or trains a model takes it. It is not frozen, because users
    may give a `TrainedModel` other parameters.
    """

    config: TransformerConfig
    params: Tree
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None
    start_id: int | None = None
    end_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    pooling: Pooling | None = None
    family: str = ""
    labels: tuple[str, ...] = ()
    metrics: list[dict[str, Any]] = field(default_factory=list)
    source: str = ""
    extras: dict[str, Array] = field(default_factory=dict)
    adapter: Any = None
    execution: Execution = PLAIN
    origin: dict[str, Any] | None = None
    task_maker: Callable[[], Task] | None = None
    inputs: Batch | None = None
    built: Model | None = None
    loss: str = "cross_entropy"

    def __post_init__(self) -> None:
        model: Any = self.config
        if isinstance(model, Model):
            how = model.execution if self.execution == PLAIN else self.execution
            self.built, self.config, self.execution = model, model.config, how
        check_params(self.model, self.params)

    @classmethod
    def of_task(cls, model: Model, params: Tree, task: Task, **fields: Any) -> Self:
        """Return a model that learned a task, whose tokenizers say how its texts begin and end."""
        specials = task.answer_tokenizer.specials
        start = specials.get(START)
        if start is None and isinstance(model.config, EncoderDecoderConfig):
            start = int(task.train.batch(0, 1, 0).tokens[0, 0])
        known = {
            "tokenizer": task.tokenizer,
            "target_tokenizer": task.target_tokenizer,
            "start_id": start,
            "end_ids": (specials[END],) if END in specials else (),
            "labels": task.class_labels(model.config),
            "task_maker": lambda: task,
        }
        return cls(model, params, **{**known, **fields})  # type: ignore[arg-type]

    def __getstate__(self) -> dict[str, Any]:
        # `origin` builds a task that has a name again; others may hold functions, which cannot be pickled.
        task = None if self.origin or self.task_maker is None else self.task
        return {**vars(self), "task_maker": functools.partial(copy.copy, task) if task and task.is_picklable else None}

    def __copy__(self) -> Self:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copies = {name: copy.deepcopy(getattr(self, name), memo) for name in ("params", "metrics", "extras", "origin")}
        return replace(self, **copies)

    @property
    def model(self) -> Model:
        """The architecture: `model.model.forward(model.params, tokens)` gives logits and the record."""
        if self.built is None:
            return build(self.config, self.execution)
        if self.built.config == self.config and self.built.execution == self.execution:
            return self.built
        return replace(self.built, config=self.config, execution=self.execution)  # type: ignore[type-var]

    @property
    def title(self) -> str:
        """The name of it in messages."""
        return self.source or (self.origin or {}).get("name") or "this model"

    @property
    def answer_tokenizer(self) -> Tokenizer | None:
        """The tokenizer of what is written."""
        return self.tokenizer if self.target_tokenizer is None else self.target_tokenizer

    @property
    def source_end_id(self) -> int | None:
        """The token that the tokenizer of an encoder-decoder puts after every source."""
        if not isinstance(self.config, EncoderDecoderConfig) or not isinstance(self.tokenizer, PublishedTokenizer):
            return None
        ids = self.tokenizer.encode("", specials=True)
        return int(ids[-1]) if len(ids) else None

    @property
    def lexicon(self) -> Lexicon:
        """The tokenizers and special tokens of it, for tasks that take a vocabulary."""
        if self.tokenizer is None:
            raise WeightsError(f"{self.title} has no tokenizer to read text with", hint="get its tokenizer.json")
        end = self.end_ids[0] if self.end_ids else None
        return Lexicon(self.tokenizer, self.target_tokenizer, self.start_id, end, self.labels)

    @property
    def is_classifier(self) -> bool:
        """Whether it predicts one class for a text."""
        return isinstance(self.config, EncoderConfig) and self.config.head == "classes"

    @property
    def token_labels(self) -> Labels:
        """The names of its ids and classes; numbers where it has no tokenizer."""
        writes, reads = self.answer_tokenizer, self.tokenizer
        return Labels(
            tokens=str if writes is None else token_labels(writes),
            source=None if reads is None else token_labels(reads),
            classes=self.labels.__getitem__ if self.labels else str,
            tokenizer=writes,
        )

    @property
    def task(self) -> Task | None:
        """The task that it was trained on; the data is built when this is first asked."""
        if self.task_maker is None and self.origin is None:
            return None
        task = self._task_by_name() if self.task_maker is None else self.task_maker()
        self.task_maker = lambda: task
        return task

    def _task_by_name(self) -> Task:
        assert self.origin is not None
        check_registered(self.origin["name"], Path(self.source))
        options = dict(self.origin["options"])
        # It was learned with the vocabulary of a model that existed before, or with one that defaults fitted then.
        if self.origin.get("lexicon") or (self.origin["name"] == "classify" and self.labels and self.tokenizer):
            options["lexicon"] = self.lexicon
        return build_task(self.origin["name"], **options)


class TrainedOrPair(Protocol[P, Result]):
    """A function of a trained model, or of a model and its parameters, and of more."""

    @overload
    def __call__(self, model: LoadedModel, /, *args: P.args, **settings: P.kwargs) -> Result: ...
    @overload
    def __call__(self, model: Model, params: Tree, /, *args: P.args, **settings: P.kwargs) -> Result: ...


def trained_or_pair(function: Callable[Concatenate[Model, Tree, P], Result]) -> TrainedOrPair[P, Result]:
    """Return a function of (model, params, …) that takes a trained model in place of both, and its names of tokens."""
    has_labels = "labels" in inspect.signature(function).parameters

    def pair(args: tuple[Any, ...], settings: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the two parts of a trained model in its place."""
        if not args or not isinstance(args[0], LoadedModel):
            return args, settings
        named = {"labels": args[0].token_labels} if has_labels else {}
        return (args[0].model, unpacked(args[0].params), *args[1:]), {**named, **settings}

    @functools.wraps(function)
    def taking(*args: Any, **settings: Any) -> Result:
        args, settings = pair(args, settings)
        return function(*args, **settings)

    taking.pair = pair  # type: ignore[attr-defined]
    return cast("TrainedOrPair[P, Result]", taking)
