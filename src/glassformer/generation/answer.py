"""Answers to inputs of a task; predicted classes, tokens and masks with their probabilities."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..config import EncoderConfig, EncoderDecoderConfig
from ..core.arrays import Array, Tree, check_length
from ..core.errors import ConfigError, LengthError
from ..core.settings import texts_of
from ..data import Task
from ..data.examples import Examples, stack
from ..models import Batch, Model
from ..models.costs import length_batches, rows_at_once
from ..text import PublishedTokenizer
from ..weights.loaded_model import END, LoadedModel
from .request import Request
from .sampling import Sampling, likeliest, log_softmax, only_known
from .texts import collected, generate
from .writer import Sequences

TEMPERATURE = 0.7
"""Continued texts are drawn a little more carefully than by the model's own probabilities."""

CLASS, ANSWER, NEXT, MASKS = "class", "answer", "next token", "masks"
"""Kinds of predictions."""

Label = Callable[[int], str]


def ask(model: LoadedModel, text: str, *, length: int = 80, seed: int = 0) -> str:
    """Answer one typed input; a language model continues it by up to `length` tokens, drawn at random with a seed."""
    task = _task(model)
    [typed] = texts_of([text])
    batch = task.encode_input(typed)
    if isinstance(model.config, EncoderConfig):
        logits, _ = model.model.predict(model.params, batch)
        return task.decode_answer(np.argmax(np.asarray(logits), axis=-1))
    [(ids, _)] = _written(model, task, [batch], length, seed)
    return task.decode_answer(ids)


def samples(model: LoadedModel, count: int = 3, length: int = 80) -> list[tuple[str, str]]:
    """Return some of the prompts of a model's task, each with the answer to it."""
    return [(prompt, ask(model, prompt, length=length)) for prompt in _task(model).prompts[:count]]


def example(model: LoadedModel, task: Task, text: str) -> Batch:
    """Return one typed input as a batch of one, with the model's own answer behind it where it writes one."""
    batch = task.encode_input(text)
    if task.architecture == "encoder" or task.metric == "none":
        return batch
    [(ids, _)] = _written(model, task, [batch])
    return batch._replace(tokens=np.concatenate([batch.tokens, ids[None]], axis=-1)[:, : model.config.context])


def _task(model: LoadedModel) -> Task:
    if model.task is None:
        raise ConfigError(
            f"{model.title} has no task that says how to ask it", hint="use generate, classify or embed instead"
        )
    return model.task


def _written(
    model: LoadedModel,
    task: Task,
    batches: Sequence[Batch],
    length: int = 0,
    seed: int = 0,
    log_probabilities: int | None = None,
) -> list[tuple[Array, list[float]]]:
    """Return for each batch of one the answer's ids without its end token, and, if asked for, all log-probabilities.

    A question is answered greedily, as far as the context reaches; a text is continued by up to `length` tokens.
    """
    is_free, context = task.metric == "none", model.config.context
    has_source = isinstance(model.config, EncoderDecoderConfig)
    reads = [batch.tokens if batch.source is None else batch.source for batch in batches]
    for read in () if is_free else reads:
        check_length(read.shape[-1], context, what="the input")
    end = task.answer_tokenizer.specials.get(END)
    stop_ids = {*model.end_ids, *(() if end is None else (end,))}
    request = Request(
        prompts=[batch.tokens[0, -context:] for batch in batches],
        sources=[read[0] for read in reads] if has_source else None,
        # A decoder also writes the token after the context, which it never reads.
        max_new_tokens=length if is_free else context - has_source,
        sampling=Sampling(temperature=TEMPERATURE if is_free else 0.0),
        seed=seed,
        stop_ids=stop_ids,
        known=task.answer_tokenizer.size,
        log_probabilities=log_probabilities,
        slide=is_free,
    )
    steps = list(Sequences(model.model, model.params, request).write())
    written = []
    for row in range(len(batches)):
        answer = collected(steps, row)
        ids = answer.ids[:-1] if answer.ids[-1] in stop_ids else answer.ids
        written.append((np.array(ids, dtype=np.int64), list(answer.log_probabilities or ())))
    return written


class Choice(NamedTuple):
    """One of several possibilities: what it is called, its id, and how probable the model finds it."""

    text: str
    id: int
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The answer of a model to one input.

    kind          class, answer, next token or masks
    answer        the likeliest class, what was written, the likeliest next token, or the text with its masks filled in
    probability   of the whole answer; for several masks, the product of their probabilities
    choices       the likeliest possibilities, best first, for each position predicted; none for what was written
    """

    kind: str
    answer: str
    probability: float
    choices: tuple[tuple[Choice, ...], ...] = ()

    @property
    def label(self) -> str:
        """The name of the likeliest class."""
        return self.answer

    @property
    def index(self) -> int:
        """The number of the likeliest class."""
        return self.choices[0][0].id

    @property
    def probabilities(self) -> dict[str, float]:
        """Those of all classes, by name."""
        return {choice.text: choice.probability for choice in sorted(self.choices[0], key=lambda choice: choice.id)}


Classification = Prediction


def classify(model: LoadedModel, inputs: Any) -> Any:
    """Return a `Classification` of a text or a sequence of ids, or a list of them for several."""
    if not model.is_classifier:
        is_encoder = isinstance(model.config, EncoderConfig)
        what = "an encoder without a head for classes" if is_encoder else "no encoder"
        raise ConfigError(
            f"this is {what}, so it tells no classes apart",
            hint="use an encoder that was trained on classes, such as gf.train('majority')",
        )
    is_ordered = hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__") and not isinstance(inputs, Mapping)
    if not is_ordered or (len(inputs) == 0 and not isinstance(inputs, str)):
        fact = f"there is nothing to classify: this is a {type(inputs).__name__}"
        raise LengthError(fact, hint="pass a text, token ids, or a list of either")
    single = isinstance(inputs, str) or (np.ndim(inputs[0]) == 0 and not isinstance(inputs[0], str))
    batches = [Batch(input_ids(model, each)[None]) for each in ([inputs] if single else inputs)]
    predictions = predict_classes(model, batches, label=lambda i: model.labels[i] if model.labels else str(i))
    return predictions[0] if single else predictions


def class_logits(model: LoadedModel, inputs: Sequence[Batch]) -> Array:
    """Return the logits of the classes for batches of one, (N, classes); those of about the same length go together."""
    logits: Any = None
    is_plain = all(example.mask is None and example.segments is None for example in inputs)
    groups = length_batches([example.tokens.shape[-1] for example in inputs], model.config)
    for rows in groups if is_plain else ([row] for row in range(len(inputs))):
        batch = inputs[rows[0]]
        if len(rows) > 1:
            tokens, mask = stack([inputs[row].tokens[0] for row in rows])
            batch = Batch(tokens, mask=None if mask.all() else mask)
        some = np.asarray(model.model.predict(model.params, batch)[0])
        logits = np.zeros((len(inputs), some.shape[-1]), dtype=some.dtype) if logits is None else logits
        logits[rows] = some
    return logits


def class_probabilities(model: LoadedModel, data: Examples) -> Array:
    """Return how probable each class is for each example, (N, classes)."""
    size = rows_at_once(model.config, data.longest)
    logits = [np.asarray(model.model.predict(model.params, rows)[0]) for rows in data.batches(size)]
    return np.exp(log_softmax(np.concatenate(logits)))


def input_ids(model: LoadedModel, sequence: Any) -> Array:
    """Return the ids of one text or sequence of ids."""
    if isinstance(sequence, str):
        if model.tokenizer is None:
            raise ConfigError("this model has no tokenizer to read text with", hint="pass token ids")
        around = {"specials": True} if isinstance(model.tokenizer, PublishedTokenizer) else {}
        sequence = model.tokenizer.encode(sequence, **around)
    ids = np.asarray(sequence)
    if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
        raise LengthError(
            f"one input has shape {ids.shape} and type {ids.dtype}",
            hint=f"pass a text, or 1 to {model.config.context:,} token ids",
        )
    check_length(ids.size, model.config.context, what="the input")
    return ids


def predict_classes(
    model: LoadedModel, inputs: Sequence[Batch], *, label: Label, top: int | None = None
) -> list[Prediction]:
    """Return the class of each batch of one."""
    return [_prediction(CLASS, row[None], label, top) for row in class_logits(model, inputs)]


def predict_next(model: LoadedModel, texts: Sequence[str], *, top: int, truncate: bool = False) -> list[Prediction]:
    """Return the token that follows each text."""
    answers = generate(
        model, texts, max_new_tokens=1, temperature=0.0, log_probabilities=top, truncate=truncate, slide=False
    )
    assert model.answer_tokenizer is not None
    predictions = []
    for answer in answers:
        [likely] = answer.top
        choices = tuple(Choice(model.answer_tokenizer.decode([i]), i, math.exp(log)) for i, log in likely)
        predictions.append(Prediction(NEXT, choices[0].text, choices[0].probability, (choices,)))
    return predictions


def predict_texts(model: LoadedModel, texts: Sequence[str], *, truncate: bool = False) -> list[Prediction]:
    """Return what a model writes about each text, always the likeliest token next."""
    answers = generate(model, texts, temperature=0.0, log_probabilities=0, truncate=truncate, slide=False)
    return [Prediction(ANSWER, answer.text, math.exp(sum(answer.log_probabilities))) for answer in answers]


def predict_answers(model: LoadedModel, texts: Sequence[str]) -> list[Prediction]:
    """Return what a model writes to inputs of its task, always the likeliest token next."""
    task = _task(model)
    written = _written(model, task, [task.encode_input(text) for text in texts], log_probabilities=0)
    return [Prediction(ANSWER, task.decode_answer(ids), math.exp(sum(logs))) for ids, logs in written]


def predict_masks(model: Model, params: Tree, ids: Array, *, tokenizer: PublishedTokenizer, top: int) -> Prediction:
    """Return the tokens behind the masks among ids (T,), each predicted independently."""
    mask = tokenizer.role_id("mask")
    positions = np.flatnonzero(ids == mask)
    if mask is None or not len(positions):
        name = tokenizer.roles.get("mask", "[MASK]")
        raise ConfigError(f"the input holds no {name} to be filled in", hint=f"write {name} in place of a word")
    logits, _ = model.predict(params, Batch(ids[None]))
    logits = only_known(np.asarray(logits)[0, positions], tokenizer.size)
    prediction = _prediction(MASKS, logits, tokenizer.piece, top)
    filled = ids.copy()
    filled[positions] = [choices[0].id for choices in prediction.choices]
    return replace(prediction, answer=tokenizer.decode(filled, skip_specials=True))


def _prediction(kind: str, logits: Array, label: Label, top: int | None) -> Prediction:
    """Return the likeliest possibilities (None: all) by logits (positions, possibilities)."""
    logs = log_softmax(logits)
    choices = tuple(
        tuple(Choice(label(i), i, math.exp(log[i])) for i in likeliest(log, min(top or len(log), len(log))).tolist())
        for log in logs
    )
    first = [best for best, *_ in choices]
    return Prediction(
        kind, " ".join(choice.text for choice in first), math.prod(choice.probability for choice in first), choices
    )
