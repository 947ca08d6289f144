"""`glassformer generate`: continue or answer a prompt."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import click
import numpy as np

from ..api.loading import load
from ..api.trained_model import TrainedModel
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.format import shorten, visible
from ..generation import Generation
from ..generation.reader import kept
from ..generation.texts import MAX_NEW_TOKENS, encode_prompts
from ..generation.writer import LENGTH
from ..models import Batch
from ..progress.display import waiting
from ..text import Tokenizer, printable
from ..weights.loaded_model import LoadedModel
from .commands import command
from .options import (
    engine_option,
    gathered,
    json_option,
    lens_option,
    model_argument,
    sampling_options,
    seed_option,
    text_argument,
    truncate_option,
    weights_option,
)
from .output import log, print_json, print_table

TOP_TOKENS = 5
LENS_COLUMNS, LENS_WIDTH = 6, 12
"""Layers that --lens shows at most, the last one included, spread evenly over the depth; characters of a token."""


@dataclass(frozen=True)
class Display:
    """What is printed beside the text."""

    logprobs: bool
    lens: bool
    json: bool


@command(
    "Write and predict",
    'glassformer generate runs/text "The " --max-new-tokens 40',
    'echo "The capital of France is" | glassformer generate smollm2 - --max-new-tokens 8 --temperature 0',
)
@model_argument
@text_argument("The prompt; without one, a model starts from its start token, or else a line break.", required=False)
@click.option("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="The longest answer, in tokens.")
@sampling_options
@click.option("--min-p", type=float, help="Leave out tokens below this share of the likeliest one's probability.")
@click.option("--repetition-penalty", type=float, help="Above 1: avoid tokens of the prompt and of the answer so far.")
@click.option("--frequency-penalty", type=float, help="Avoid tokens by how often the answer contains them.")
@click.option("--presence-penalty", type=float, help="Avoid tokens that the answer contains.")
@click.option("--beams", type=int, help="Search for the likeliest answer with this many beams instead of sampling.")
@click.option("--length-penalty", type=float, help="Of beam search: above 0 favors longer answers (default: 1).")
@click.option("--n", type=int, default=1, help="How many answers.")
@seed_option
@click.option("--stop", metavar="TEXT", multiple=True, help="End before this text; may be repeated.")
@click.option(
    "--slide/--no-slide",
    default=None,
    help="Continue past the context with a sliding window, or stop where it ends (default: texts continue).",
)
@truncate_option
@weights_option
@click.option("--logprobs", is_flag=True, help="Show the log-probability of every token.")
@lens_option
@engine_option
@json_option
@gathered(display=Display)
def generate(
    model: str,
    text: str | None,
    beams: int | None,
    seed: int | None,
    weights: str | None,
    engine: str | None,
    display: Display,
    **given: Any,
) -> None:
    """Continue or answer a prompt and print the text as it is generated.

    Generation ends at an end token or after --max-new-tokens.
    """
    read = text or ""
    with waiting(f"reading {model}"):
        loaded = load(model, weights=weights)
    if seed is not None and beams is not None:
        raise ConfigError("beam search draws nothing, so --seed has no meaning", hint="leave out --seed or --beams")
    settings = {name: value for name, value in given.items() if value is not None} | {"seed": seed or 0}
    if display.json or display.logprobs or beams is not None or given["length_penalty"] is not None or given["n"] != 1:
        if display.lens:
            hint = "leave out --json, --n, --beams and --logprobs; or use `look`"
            raise ConfigError("--lens shows a table below one answer", hint=hint)
        top = TOP_TOKENS if beams is None else 0
        with waiting("writing"):
            found = loaded.generate(read, beams=beams, log_probabilities=top if display.logprobs else None, **settings)
        answers = [found] if given["n"] == 1 else found
        assert loaded.answer_tokenizer is not None
        print_answers(read, answers, loaded.answer_tokenizer, json=display.json)
    else:
        del settings["n"]
        answers = [stream(loaded, read, settings)]
    note(answers, loaded, given["max_new_tokens"])
    if display.lens:
        print_answer_lens(loaded, read, answers[0], truncate=given["truncate"])


def stream(loaded: TrainedModel, text: str, settings: dict[str, Any]) -> Generation:
    """Print one answer as it is generated, and return it."""
    pieces = loaded.stream(text, **settings)
    try:
        print_pieces(pieces)
    finally:
        print(flush=True)
    assert pieces.generation is not None
    return pieces.generation


def print_pieces(pieces: Iterator[str]) -> None:
    """Print a text as it comes; its first piece may take a while."""
    with waiting("reading the prompt"):
        first = next(pieces, "")
    for piece in chain([first], pieces):
        print(printable(piece), end="", flush=True)


def note(answers: list[Generation], loaded: TrainedModel, limit: int) -> None:
    """Log whether an answer went past the context, and which limit ended it."""
    context = loaded.config.context
    if any(one.slid for one in answers):
        what = f"each time it was full, the model kept the last {kept(context):,} of them; --no-slide stops there"
        log(f"note: this is longer than the context of {context:,} tokens: {what}")
    cut = [one for one in answers if one.finish == LENGTH]
    if any(len(one.ids) >= limit for one in cut):
        log(f"note: stopped after {limit:,} tokens (--max-new-tokens)")
    if any(len(one.ids) < limit for one in cut):
        log(f"note: stopped because the context of {context:,} tokens is full")


def print_answers(prompt: str, answers: list[Generation], tokenizer: Tokenizer, *, json: bool) -> None:
    """Print complete answers, with a table of tokens if log-probabilities were asked for."""
    if json:
        print_json({"prompt": prompt, "generations": [_fields(one, tokenizer) for one in answers]})
        return
    for number, one in enumerate(answers):
        if number:
            print("---")
        print(printable(one.text))
        if one.log_probabilities is not None:
            rows = [
                (str(token), repr(printable(tokenizer.decode([token]))), f"{log:.4f}", f"{math.exp(log):.2%}")
                for token, log in zip(one.ids, one.log_probabilities, strict=True)
            ]
            print_table((">id", "token", ">log p", ">p"), rows)


def _fields(one: Generation, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return an answer as JSON; what was not asked for is left out."""
    fields = {name: value for name, value in asdict(one).items() if value is not None and name != "top"}
    fields["text"] = printable(one.text)
    fields["tokens"] = [printable(tokenizer.decode([token])) for token in one.ids]
    if one.top is not None:
        fields["top"] = [
            [{"id": i, "token": printable(tokenizer.decode([i])), "log_probability": log} for i, log in place]
            for place in one.top
        ]
    return fields


def print_answer_lens(loaded: TrainedModel, text: str, answer: Generation, *, truncate: bool) -> None:
    """Print the lens of an answer to a prompt."""
    if answer.slid:
        raise ConfigError("the answer is longer than the context, so no run holds it", hint="--no-slide stops before")
    [read], sources = encode_prompts(loaded, [text], truncate=truncate)
    print_lens(loaded, read, answer.ids, None if sources is None else sources[0])


def print_lens(loaded: LoadedModel, read: Array, written: Sequence[int], source: Array | None = None) -> None:
    """Print, for every generated token, what the layers would have predicted in its place, with probabilities."""
    if not written:
        return
    from ..interpret import lens as lens_of  # a command that prints none starts without them
    from ..interpret import watch
    from ..interpret.stream import points

    tokens = np.concatenate([read, np.asarray(written[:-1], dtype=read.dtype)])
    batch = Batch(tokens[None], source=None if source is None else source[None])
    run = watch(loaded, batch)
    blocks = [point for point in points(run) if point.name.endswith(point.label.removeprefix("block "))]
    chosen = sorted({round(n) for n in np.linspace(0, len(blocks) - 1, min(LENS_COLUMNS, len(blocks)))})
    first = len(read) - 1
    seen = lens_of(run, at=[blocks[n].name for n in chosen], positions=range(first, first + len(written)))
    ids, odds = seen.top(1)
    label = loaded.token_labels.tokens
    rows = []
    for n, token in enumerate(written):
        cells = [f"{_word(label(int(ids[c, 0, n, 0])))} {100 * odds[c, 0, n, 0]:.0f} %" for c in range(len(chosen))]
        rows.append((_word(label(token)), *cells))
    print_table(("wrote", *(f"after {blocks[n].label}" for n in chosen)), rows)


def _word(text: str) -> str:
    return shorten(visible(text), LENS_WIDTH)
