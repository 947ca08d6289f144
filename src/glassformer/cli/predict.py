"""`glassformer predict`: answers to inputs, with probabilities."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..arrays import check_length
from ..config import DecoderConfig, EncoderConfig, TransformerConfig
from ..dispatch import engine as engine_in_use
from ..errors import ConfigError, DataError, GlassformerError, WeightsError
from ..generation.answer import (
    MASKS,
    NEXT,
    Prediction,
    predict_answer,
    predict_class,
    predict_masks,
    predict_next,
    predict_text,
)
from ..loading import is_run, load, load_config, locate, read_model
from ..models import Batch
from ..runs.run import open_run
from ..text import PublishedTokenizer, printable
from ..trained_model import TrainedModel
from ..weights.saved import is_saved
from .options import engine_option, json_option, model_argument, truncate_option
from .output import print_json, print_table, visible
from .stdin import read_lines

TOP = 5
WIDTH = 40
WITHOUT_QUESTIONS = ("text", "lines")
"""Tasks whose models continue a text; the models of all others answer it."""

WHOLE = "this model answers an input as a whole, so it cannot be truncated"
ONE = "this model writes its answer token by token, so it has no alternatives"

Predictor = Callable[[str], Prediction]


@click.command()
@model_argument
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, help="What to answer; without any, each line of stdin.")
@click.option("--top", type=click.IntRange(1), help="How many possibilities to show for each (default: 5).")
@truncate_option
@engine_option
@json_option
def predict(
    model: str, inputs: tuple[str, ...], top: int | None, truncate: bool, engine: str | None, json: bool
) -> None:
    """Answer inputs with probabilities: a class, a translation, the next token or masked tokens.

    A classifier names the class, a model that learned questions or translations writes its answer, a language model
    names the likeliest next tokens, and an encoder such as BERT fills in masks. Each line of stdin gets one row: an
    empty line an empty one, an input that the model refuses the reason. Then the exit code is 1.
    """
    texts = list(inputs) or read_lines()
    if not inputs and not any(text.strip() for text in texts):
        raise DataError("there is nothing to answer", hint="pass inputs, or one on each line of stdin")
    ask = predictor(model, top=top, truncate=truncate)
    answers: list[tuple[str, Prediction | GlassformerError | None]] = []
    for text in texts:
        try:  # a blank line of stdin has no answer
            answers.append((text, ask(text) if inputs or text.strip() else None))
        except GlassformerError as error:
            answers.append((text, error))
    errors = [found for _, found in answers if isinstance(found, GlassformerError)]
    if len(errors) == len(answers):
        raise errors[0]
    if json:
        print_json({"model": model, "predictions": [_fields(text, found) for text, found in answers]})
    else:
        kind = next(found.kind for _, found in answers if isinstance(found, Prediction))
        print_table(("input", kind, ">p", "others"), [_row(text, found) for text, found in answers])
    if errors:
        raise click.exceptions.Exit(1)


def predictor(name: str, *, top: int | None, truncate: bool) -> Predictor:
    """Return a function that answers inputs as the model of that name does."""
    place = locate(name)
    learned = _learned(place)
    if learned is not None:
        return _of_task(learned, top=top, truncate=truncate)
    if not is_run(place) and isinstance(load_config(place), EncoderConfig):
        _refuse(truncate, "--truncate", WHOLE)
        return _of_encoder(read_model(name), name, top or TOP)
    return _of_writer(load(place), top=top, truncate=truncate)


def _learned(place: Path) -> TrainedModel | None:
    """Return a model that learned to answer questions; None for all others."""
    if is_run(place):
        name: str | None = open_run(place).task_name
    elif is_saved(place):
        name = (read_model(place).origin or {}).get("name")
    else:
        return None
    found = None if name in (None, *WITHOUT_QUESTIONS) else read_model(place)
    return None if found is None or found.task is None or found.task.metric == "none" else found


def _of_writer(loaded: TrainedModel, *, top: int | None, truncate: bool) -> Predictor:
    if isinstance(loaded.config, DecoderConfig):
        return partial(predict_next, loaded, top=top or TOP, truncate=truncate)
    _refuse(top, "--top", ONE)
    return partial(predict_text, loaded, truncate=truncate)


def _of_task(trained: TrainedModel, *, top: int | None, truncate: bool) -> Predictor:
    """Answer with the encoding and decoding of the model's task."""
    _refuse(truncate, "--truncate", WHOLE)
    model, params, task = trained.model, trained.params, trained.task
    assert task is not None
    if isinstance(model.config, EncoderConfig):
        _refuse_devices()
        settings: dict[str, Any] = {"label": lambda number: task.decode_answer([number]), "top": top or TOP}
        return lambda text: predict_class(model, params, _checked(task.encode_input(text), model.config), **settings)
    _refuse(top, "--top", ONE)
    return partial(predict_answer, trained)


def _of_encoder(loaded: TrainedModel, name: str, top: int) -> Predictor:
    """Answer with an encoder without a task: a class, or the tokens behind masks."""
    config, tokenizer = loaded.config, loaded.tokenizer
    assert isinstance(config, EncoderConfig)
    if config.head == "none":
        hint = f"turn texts into vectors with `glassformer embed {name} TEXT…`"
        raise ConfigError(f"{name} is an encoder without a head: it has nothing to predict with", hint=hint)
    if tokenizer is None:
        raise WeightsError(f"{name} has no tokenizer to read text with", hint="get its tokenizer.json as well")
    _refuse_devices()
    published = tokenizer if isinstance(tokenizer, PublishedTokenizer) else None
    around = {"specials": True, "parse_special": True} if published is not None else {}
    mask = None if published is None else published.role_id("mask")
    if config.head == "tokens" and mask is None:
        raise WeightsError(f"the tokenizer of {name} names no token for masks", hint="get its tokenizer_config.json")

    def ask(text: str) -> Prediction:
        ids = tokenizer.encode(text, **around)
        batch = _checked(Batch(ids[None]), config)
        if published is None or mask is None or config.head == "classes":
            label = loaded.labels.__getitem__ if loaded.labels else str
            return predict_class(loaded.model, loaded.params, batch, label=label, top=top)
        return predict_masks(loaded.model, loaded.params, ids, tokenizer=published, top=top)

    return ask


def _checked(batch: Batch, config: TransformerConfig) -> Batch:
    """Refuse an input that is empty or longer than the model reads."""
    read = batch.tokens if batch.source is None else batch.source
    check_length(read.shape[-1], config.context, what="the input")
    return batch


def _refuse_devices() -> None:
    if engine_in_use() == "jax":
        raise ConfigError("encoders answer on the engines cpu and numpy only", hint="use --engine cpu or numpy")


def _refuse(given: Any, option: str, fact: str) -> None:
    if given:
        raise ConfigError(fact, hint=f"leave out {option}")


def _row(text: str, found: Prediction | GlassformerError | None) -> tuple[str, ...]:
    """Return a row of the table: the first choice at each place is the answer, the others follow."""
    if not isinstance(found, Prediction):
        return _short(text), "", "", "" if found is None else f"error: {found.fact}"
    spelled = visible if found.kind in (NEXT, MASKS) else str
    others = [
        ", ".join(f"{printable(spelled(one.text))} {one.probability:.1%}" for one in place[1:])
        for place in found.choices
    ]
    answer = visible(found.answer) if found.kind == NEXT else found.answer
    return _short(text), printable(answer), f"{found.probability:.1%}", "; ".join(others)


def _short(text: str) -> str:
    """Return a text on one line; of a long one, its end."""
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else "…" + line[1 - WIDTH :]


def _fields(text: str, found: Prediction | GlassformerError | None) -> dict[str, Any]:
    if not isinstance(found, Prediction):
        return {"input": printable(text), "error": None if found is None else found.fact}
    places = [[{**one._asdict(), "text": printable(one.text)} for one in place] for place in found.choices]
    answer = {"answer": printable(found.answer), "probability": found.probability}
    return {"input": printable(text), "kind": found.kind, **answer, "choices": places}
