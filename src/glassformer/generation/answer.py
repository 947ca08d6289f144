"""Let a model answer: the likeliest class, or one token after the other; and what its task makes of it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, Tree, check_length
from ..config import EncoderConfig, EncoderDecoderConfig
from ..data import Task
from ..errors import ConfigError
from ..models import Batch, Model
from ..settings import texts_of
from ..trained_model import END, TrainedModel
from .sampling import Sampling, distribution, only_known
from .writer import generate_steps

TEMPERATURE = 0.7
"""Continued texts are drawn a little more carefully than by the model's own probabilities."""


def ask(model: TrainedModel, text: str, *, length: int = 80, seed: int = 0) -> str:
    """Answer one typed input; a language model continues it by up to `length` tokens, drawn at random with a seed."""
    task = _task(model)
    [typed] = texts_of([text])
    return task.decode_answer(_answer(model, task, task.encode_input(typed), length, seed))


def samples(model: TrainedModel, count: int = 3, length: int = 80) -> list[tuple[str, str]]:
    """Return some of the prompts of a model's task, each with the answer to it."""
    return [(prompt, ask(model, prompt, length=length)) for prompt in _task(model).prompts[:count]]


def example(model: TrainedModel, task: Task, text: str) -> Batch:
    """Return one typed input as a batch of one, with the model's own answer behind it where it writes one."""
    batch = task.encode_input(text)
    if task.architecture == "encoder" or task.metric == "none":
        return batch
    ids = _answer(model, task, batch, 0)
    return batch._replace(tokens=np.concatenate([batch.tokens, ids[None]], axis=-1)[:, : model.config.context])


def _task(model: TrainedModel) -> Task:
    if model.task is None:
        raise ConfigError(
            f"{model.title} has no task that says how to ask it", hint="use generate, classify or embed instead"
        )
    return model.task


def _answer(model: TrainedModel, task: Task, batch: Batch, length: int, seed: int = 0) -> Array:
    """Return the class of an encoder, or the ids of an answer without its end token."""
    if isinstance(model.config, EncoderConfig):
        return answer(model.model, model.params, batch, count=0)
    is_free = task.metric == "none"
    if not is_free:
        check_length(batch.tokens.shape[-1], model.config.context, what="the input")
    end = task.answer_tokenizer.specials.get(END)
    stop_ids = {*model.end_ids, *(() if end is None else (end,))}
    steps = generate_steps(
        model.model,
        model.params,
        [batch.tokens[0, -model.config.context :]],
        sources=None if batch.source is None else [batch.source[0]],
        max_new_tokens=length if is_free else answer_length(model.model, batch),
        sampling=Sampling(temperature=TEMPERATURE if is_free else 0.0),
        seed=seed,
        stop_ids=tuple(stop_ids),
        known=task.answer_tokenizer.size,
        slide=is_free,
    )
    ids = [int(step.ids[0]) for step in steps]
    return np.array(ids[:-1] if ids and ids[-1] in stop_ids else ids, dtype=np.int64)


def answer(
    model: Model,
    params: Tree,
    batch: Batch,
    *,
    count: int,
    known: int | None = None,
    rng: np.random.Generator | None = None,
    **sampling: Any,
) -> Array:
    """Return the answer to a batch of one: the class of an encoder, or `count` ids that follow the tokens.

    Every step reads all tokens again, as the mathematics has it; `generate_steps` is the fast way. Ids are below
    `known`, where it is given. The rest is as for `continue_ids`.
    """
    if isinstance(model.config, EncoderConfig):
        logits, _ = model.predict(params, batch)
        return np.argmax(np.asarray(logits), axis=-1)

    def predict(tokens: Array) -> Array:
        logits, _ = model.predict(params, batch._replace(tokens=tokens))
        return logits if known is None else only_known(logits, known)

    return continue_ids(predict, batch.tokens, count=count, context=model.config.context, rng=rng, **sampling)[0]


def continue_ids(
    predict: Callable[[Array], Array],
    tokens: Array,
    *,
    count: int,
    context: int,
    rng: np.random.Generator | None = None,
    **sampling: Any,
) -> Array:
    """Append `count` ids to each row of tokens (B, T), reading at most the last `context`; return the new ids.

    predict    from tokens (B, T) to logits (B, T, V)
    rng        draws the ids; None: the likeliest ones
    sampling   settings of `Sampling` for what is drawn: temperature (0: the likeliest), top_k, top_p, min_p
    """
    how = Sampling.of(sampling)
    start = tokens.shape[-1]
    for _ in range(count):
        logits = np.asarray(predict(tokens[:, -context:]))[:, -1]
        if rng is not None:
            # Adding Gumbel noise to the logarithms and taking the largest draws with exactly these probabilities.
            with np.errstate(divide="ignore"):
                logits = np.log(distribution(logits, None, how)) + rng.gumbel(size=logits.shape)
        tokens = np.concatenate([tokens, np.argmax(logits, axis=-1)[:, None]], axis=-1)
    return tokens[:, start:]


def answer_length(model: Model, batch: Batch) -> int:
    """Return how many ids fit after the tokens."""
    room = model.config.context - batch.tokens.shape[-1]
    return room + (0 if isinstance(model.config, EncoderDecoderConfig) else 1)
