"""`glassformer predict`: answers to inputs or to the rows of a file, with probabilities."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import click

from ..api.loading import is_run, load, load_config, locate, read_model
from ..config import DecoderConfig, EncoderConfig, TransformerConfig
from ..core.arrays import check_length
from ..core.dispatch import engine as engine_in_use
from ..core.errors import ConfigError, GlassformerError, LengthError, WeightsError
from ..core.format import visible
from ..core.reporting import report
from ..data.tasks.classify import cut_ids
from ..generation.answer import (
    CLASS,
    MASKS,
    NEXT,
    Prediction,
    predict_answers,
    predict_classes,
    predict_masks,
    predict_next,
    predict_texts,
)
from ..models import Batch
from ..models.costs import length_batches
from ..progress.display import waiting
from ..runs.judging import read_confidence
from ..runs.run import open_run
from ..text import PublishedTokenizer, printable
from ..weights.loaded_model import LoadedModel
from ..weights.saved import is_saved
from .commands import command
from .options import PATH, engine_option, gathered, json_option, model_argument, refuse
from .output import log, plural, print_json, print_table
from .rows import Rows, TextOptions, read_rows, text_options, writing_rows

TOP = 5
WIDTH = 40
DIGITS = 6
"""Of a probability in a file."""
CHUNK = 1024
"""Rows of a file that are sorted by length, answered and written at a time."""
WITHOUT_QUESTIONS = ("text", "lines", "classify")
"""Tasks whose models need nothing but a tokenizer; the models of all others answer as their task says."""

WHOLE = "this model answers an input as a whole, so it cannot be truncated"
ONE = "this model writes its answer token by token, so it has no alternatives"

Answer = Prediction | GlassformerError | None
"""An answer, why there is none, or nothing for a blank line."""


class Predictor(NamedTuple):
    """Answers several inputs at once; where the model refuses one, it refuses all. `labels` are its classes."""

    ask: Callable[[Sequence[str]], list[Prediction]]
    config: TransformerConfig
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """What is said of an answer: the `top` possibilities or all `probabilities`, and nothing below `at_least`."""

    probabilities: bool
    top: int | None
    at_least: float | None


@command("Write and predict", "glassformer predict runs/majority 11110222", 'glassformer predict runs/text "The "')
@model_argument
@text_options("INPUT", "What to answer", "each row of a CSV, TSV or JSONL file, or each line")
@click.option("--out", type=PATH, metavar="FILE", help="Where to write: rows with answers, as .csv, .tsv or .jsonl.")
@click.option("--probabilities", is_flag=True, help="Add a column with the probability of each class.")
@click.option("--top", type=click.IntRange(1), help="How many possibilities to show for each (default: 5).")
@click.option(
    "--at-least",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="Of a classifier: give no answer that is less probable, and say how often the others are right.",
)
@click.option(
    "--truncate",
    is_flag=True,
    help="Of a text longer than the context, read its end (a classifier of texts: its beginning).",
)
@engine_option
@json_option
@gathered(texts=TextOptions, shown=Shown)
def predict(
    model: str,
    texts: TextOptions,
    out: Path | None,
    shown: Shown,
    truncate: bool,
    engine: str | None,
    json: bool,
) -> None:
    """Answer inputs with probabilities: a class, a translation, the next token or masked tokens.

    A classifier names the class, a model that learned questions or translations writes its answer, a language model
    names the likeliest next tokens, and an encoder such as BERT fills in masks. Each line of stdin gets one row: an
    empty line an empty one, an input that the model refuses the reason. Then the exit code is 1.

    With --at-least 0.8, a classifier gives no answer where none has that probability. How often its others are right
    was measured at the end of its training, on the texts that it had not learned from.

    With --file, all columns are kept, and prediction, probability and error follow; --out never holds half a result.
    """
    if texts.file is not None:
        texts.check_file("inputs")
        refuse(json, "--json", "the rows of a file are written as CSV, TSV or JSONL")
        refuse(shown.probabilities and shown.top, "--top", "--probabilities shows all classes")
        rows = read_rows(texts.file, texts.text, out)
        with waiting(f"reading {model}"):
            top = sys.maxsize if shown.probabilities else shown.top
            predictor = _sure(_predictor(model, top=top, truncate=truncate), model, shown.at_least)
        refuse(shown.probabilities and not predictor.labels, "--probabilities", f"{model} tells no classes apart")
        _answer_file(predictor, rows, out, shown)
        return
    for option, given in {"--out": out, "--probabilities": shown.probabilities}.items():
        refuse(given, option, f"{option} belongs to --file")
    inputs = texts.lines("answer")
    with waiting(f"reading {model}"):
        predictor = _sure(_predictor(model, top=shown.top, truncate=truncate), model, shown.at_least)
    with waiting("answering"):
        answers = _answers(predictor, inputs, blank=texts.from_stdin)
    _print(model, list(zip(inputs, answers, strict=True)), json=json)


def _print(model: str, answers: list[tuple[str, Answer]], *, json: bool) -> None:
    """Print answers as a table or as JSON; refuse if there is none."""
    found = [one for _, one in answers]
    errors = [one for one in found if isinstance(one, GlassformerError)]
    if len(errors) == len(answers):
        raise errors[0]
    if json:
        print_json({"model": model, "predictions": [_fields(*one) for one in answers]})
    else:
        kind = next(one.kind for one in found if isinstance(one, Prediction))
        print_table(("input", kind, ">p", "others"), [_row(*one) for one in answers])
    if errors:
        raise click.exceptions.Exit(1)


def _answers(
    predictor: Predictor, texts: Sequence[str], *, blank: bool = False, done: int = 0, of: int | None = None
) -> list[Answer]:
    """Answer texts, those of about the same length together; if `blank`, an empty one has no answer.

    done   how many others are answered already, of how many in all
    """
    found: list[Answer] = [None] * len(texts)
    for rows in length_batches([len(text) for text in texts], predictor.config):
        report(done, of or len(texts), "texts")
        done += len(rows)
        asked = [row for row in rows if texts[row].strip() or not blank]
        for row, one in zip(asked, _each(predictor, [texts[row] for row in asked]), strict=True):
            found[row] = one
    return found


def _each(predictor: Predictor, texts: Sequence[str]) -> list[Answer]:
    """Answer texts together; where one is refused, halve them until it is alone."""
    try:
        return [*predictor.ask(texts)] if texts else []
    except GlassformerError as error:
        middle = len(texts) // 2
        return [*_each(predictor, texts[:middle]), *_each(predictor, texts[middle:])] if middle else [error]


def _answer_file(predictor: Predictor, rows: Rows, out: Path | None, shown: Shown) -> None:
    """Write the rows of a file with their answers, in their order, some at a time."""
    labels = predictor.labels if shown.probabilities else ()
    others = ["others"] if shown.top else []
    names = ["prediction", "probability", *others, *(f"p({label})" for label in labels), "error"]
    errors = too_long = 0
    with writing_rows(rows.table, names, out) as write, waiting(f"answering {rows.table.name}"):
        for start in range(0, len(rows.texts), CHUNK):
            texts = rows.texts[start : start + CHUNK]
            full = [text for text in texts if isinstance(text, str)]
            answers = iter(_answers(predictor, full, done=start, of=len(rows.texts)))
            found = [next(answers) if isinstance(text, str) else text for text in texts]
            errors += sum(isinstance(one, GlassformerError) for one in found)
            too_long += sum(isinstance(one, LengthError) for one in found)
            write([_cells(one, labels, bool(shown.top)) for one in found])
    if errors:
        long = "; --truncate answers those that are too long" if too_long else ""
        log(f"{errors:,} of {plural(len(rows.texts), 'row')} could not be answered: the column error says why{long}")
        raise click.exceptions.Exit(1)


def _cells(found: Answer, labels: Sequence[str], others: bool) -> list[Any]:
    """Return the columns of an answer."""
    if not isinstance(found, Prediction):
        return ["", None, *([""] if others else []), *(None for _ in labels), "" if found is None else found.fact]
    by_label = {one.text: round(one.probability, DIGITS) for one in found.choices[0]} if labels else {}
    more = [*([_others(found)] if others else []), *map(by_label.get, labels)]
    return [found.answer, round(found.probability, DIGITS), *more, ""]


def _predictor(name: str, *, top: int | None, truncate: bool) -> Predictor:
    """Return what answers inputs as the model of that name does."""
    place = locate(name)
    learned = _learned(place)
    if learned is not None:
        return _of_task(learned, top=top, truncate=truncate)
    if isinstance(load_config(place), EncoderConfig):
        return _of_encoder(read_model(name), name, top or TOP, truncate=truncate)
    return _of_writer(load(place), top=top, truncate=truncate)


def _sure(predictor: Predictor, name: str, at_least: float | None) -> Predictor:
    """Return what leaves the answer out where it is less probable; log how often the others were right."""
    refuse(at_least is not None and isnan(at_least), "--at-least", "nan is no probability")
    if at_least is None:
        return predictor
    refuse(not predictor.labels, "--at-least", f"{name} tells no classes apart")
    place = locate(name)
    known = read_confidence(place, at_least) if is_run(place) else None
    if known is None:
        log(f"how often answers of {at_least:.0%} and more are right was not measured: train the model anew to know it")
    elif not known.answered:
        log(f"of {known.texts:,} held-out texts, none had an answer of {at_least:.0%} and more")
    else:
        right = f"{known.right / known.answered:.1%} of the {known.answered:,} answers of {at_least:.0%} and more"
        log(f"on {known.texts:,} held-out texts, {right} were right")

    def ask(texts: Sequence[str]) -> list[Prediction]:
        return [one if one.probability >= at_least else replace(one, answer="") for one in predictor.ask(texts)]

    return predictor._replace(ask=ask)


def _learned(place: Path) -> LoadedModel | None:
    """Return a model that learned to answer questions; None for all others."""
    if is_run(place):
        name: str | None = open_run(place).task_name
    elif is_saved(place):
        name = (read_model(place).origin or {}).get("name")
    else:
        return None
    found = None if name in (None, *WITHOUT_QUESTIONS) else read_model(place)
    return None if found is None or found.task is None or found.task.metric == "none" else found


def _of_writer(loaded: LoadedModel, *, top: int | None, truncate: bool) -> Predictor:
    if isinstance(loaded.config, DecoderConfig):
        return Predictor(partial(predict_next, loaded, top=top or TOP, truncate=truncate), loaded.config)
    refuse(top, "--top", ONE)
    return Predictor(partial(predict_texts, loaded, truncate=truncate), loaded.config)


def _of_task(trained: LoadedModel, *, top: int | None, truncate: bool) -> Predictor:
    """Answer with the encoding and decoding of the model's task."""
    refuse(truncate, "--truncate", WHOLE)
    config, task = trained.config, trained.task
    assert task is not None
    if not isinstance(config, EncoderConfig):
        refuse(top, "--top", ONE)
        return Predictor(partial(predict_answers, trained), config)
    _refuse_devices()

    def ask(texts: Sequence[str]) -> list[Prediction]:
        inputs = [_checked(task.encode_input(text), config) for text in texts]
        return predict_classes(trained, inputs, label=lambda number: task.decode_answer([number]), top=top or TOP)

    return Predictor(ask, config, task.class_labels(config))


def _of_encoder(loaded: LoadedModel, name: str, top: int, *, truncate: bool) -> Predictor:
    """Answer with an encoder without a task: a class, or the tokens behind masks."""
    config, tokenizer = loaded.config, loaded.tokenizer
    assert isinstance(config, EncoderConfig)
    if config.head == "none":
        hint = f"turn texts into vectors with `glassformer embed {name} TEXT…`"
        raise ConfigError(f"{name} is an encoder without a head: it has nothing to predict with", hint=hint)
    if tokenizer is None:
        raise WeightsError(f"{name} has no tokenizer to read text with", hint="get its tokenizer.json as well")
    if config.head != "classes":
        refuse(truncate, "--truncate", WHOLE)
    _refuse_devices()
    published = tokenizer if isinstance(tokenizer, PublishedTokenizer) else None
    around = {} if published is None else {"specials": True, "parse_special": config.head == "tokens"}
    mask = None if published is None else published.role_id("mask")
    if config.head == "tokens" and mask is None:
        raise WeightsError(f"the tokenizer of {name} names no token for masks", hint="get its tokenizer_config.json")

    def ask(texts: Sequence[str]) -> list[Prediction]:
        read = [tokenizer.encode(text, **around) for text in texts]
        if truncate:
            read = [cut_ids(ids, config.context, tokenizer) for ids in read]
        inputs = [_checked(Batch(ids[None]), config) for ids in read]
        if published is None or mask is None or config.head == "classes":
            label = loaded.labels.__getitem__ if loaded.labels else str
            return predict_classes(loaded, inputs, label=label, top=top)
        settings: dict[str, Any] = {"tokenizer": published, "top": top}
        return [predict_masks(loaded.model, loaded.params, one.tokens[0], **settings) for one in inputs]

    return Predictor(ask, config, loaded.labels or tuple(map(str, range(config.classes or 0))))


def _checked(batch: Batch, config: TransformerConfig) -> Batch:
    """Refuse an input that is empty or longer than the model reads."""
    read = batch.tokens if batch.source is None else batch.source
    check_length(read.shape[-1], config.context, what="the input")
    return batch


def _refuse_devices() -> None:
    if engine_in_use() == "jax":
        raise ConfigError("encoders answer on the engines cpu and numpy only", hint="use --engine cpu or numpy")


def _row(text: str, found: Answer) -> tuple[str, ...]:
    """Return a row of the table: the first choice at each place is the answer, the others follow."""
    if not isinstance(found, Prediction):
        return _short(text), "", "", "" if found is None else f"error: {found.fact}"
    answer = visible(found.answer) if found.kind == NEXT else found.answer
    answer = "–" if found.kind == CLASS and not answer else answer
    return _short(text), printable(answer), f"{found.probability:.1%}", _others(found)


def _others(found: Prediction) -> str:
    spelled = visible if found.kind in (NEXT, MASKS) else str
    places = [[f"{printable(spelled(one.text))} {one.probability:.1%}" for one in place[1:]] for place in found.choices]
    return "; ".join(map(", ".join, places))


def _short(text: str) -> str:
    """Return a text on one line; of a long one, its end."""
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else "…" + line[1 - WIDTH :]


def _fields(text: str, found: Answer) -> dict[str, Any]:
    if not isinstance(found, Prediction):
        return {"input": printable(text), "error": None if found is None else found.fact}
    places = [[{**one._asdict(), "text": printable(one.text)} for one in place] for place in found.choices]
    said = None if found.kind == CLASS and not found.answer else printable(found.answer)
    answer = {"answer": said, "probability": found.probability}
    return {"input": printable(text), "kind": found.kind, **answer, "choices": places}
