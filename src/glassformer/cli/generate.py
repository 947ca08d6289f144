"""`glassformer generate`: continue or answer a prompt."""

import math
from dataclasses import asdict
from typing import Any

import click

from ..errors import ConfigError
from ..generation import Generation
from ..generation.reader import kept
from ..generation.texts import MAX_NEW_TOKENS
from ..generation.writer import LENGTH
from ..loading import load
from ..text import Tokenizer, printable
from ..trained_model import TrainedModel
from .options import (
    engine_option,
    json_option,
    lens_option,
    model_argument,
    temperature_option,
    top_k_option,
    top_p_option,
    truncate_option,
    weights_option,
)
from .output import log, print_json, print_table
from .stdin import read_stdin
from .written_lens import check_lens, print_answer_lens

TOP_TOKENS = 5


@click.command()
@model_argument
@click.argument(
    "text", metavar="[PROMPT]", required=False, help="The prompt; - reads stdin, without its last line end."
)
@click.option(
    "--prompt",
    metavar="TEXT|-",
    help="The prompt, as an option. Without a prompt, a model starts from its start token, or else a line break.",
)
@click.option("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="The longest answer, in tokens.")
@temperature_option
@top_k_option
@top_p_option
@click.option("--min-p", type=float, help="Leave out tokens below this share of the likeliest one's probability.")
@click.option("--repetition-penalty", type=float, help="Above 1: avoid tokens of the prompt and of the answer so far.")
@click.option("--frequency-penalty", type=float, help="Avoid tokens by how often the answer contains them.")
@click.option("--presence-penalty", type=float, help="Avoid tokens that the answer contains.")
@click.option("--beams", type=int, help="Search for the likeliest answer with this many beams instead of sampling.")
@click.option("--length-penalty", type=float, help="Of beam search: above 0 favors longer answers (default: 1).")
@click.option("--n", type=int, default=1, help="How many answers.")
@click.option("--seed", type=click.IntRange(0), help="The same seed gives the same answer (default: 0).")
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
def generate(
    model: str,
    text: str | None,
    prompt: str | None,
    max_new_tokens: int,
    beams: int | None,
    length_penalty: float | None,
    n: int,
    seed: int | None,
    stop: tuple[str, ...],
    slide: bool | None,
    truncate: bool,
    weights: str | None,
    logprobs: bool,
    lens: bool,
    engine: str | None,
    json: bool,
    **sampling: float | None,
) -> None:
    """Continue or answer a prompt and print the text as it is generated.

    Generation ends at an end token or after --max-new-tokens.
    """
    read = _prompt(text, prompt)
    loaded = load(model, weights=weights)
    settings: dict[str, Any] = {name: value for name, value in sampling.items() if value is not None}
    if seed is not None and beams is not None:
        raise ConfigError("beam search draws nothing, so --seed has no meaning", hint="leave out --seed or --beams")
    settings |= {"max_new_tokens": max_new_tokens, "seed": seed or 0, "stop": list(stop)}
    settings |= {"slide": slide, "truncate": truncate}
    is_plain = not (json or logprobs or beams is not None or length_penalty is not None or n != 1)
    check_lens(lens, alone=is_plain)
    if is_plain:
        answer = stream(loaded, read, settings)
        note([answer], loaded, settings)
        if lens:
            print_answer_lens(loaded, read, answer, truncate=truncate)
        return
    settings |= {"n": n, "beams": beams, "length_penalty": length_penalty}
    answers = complete(loaded, read, settings, logprobs=logprobs)
    assert loaded.answer_tokenizer is not None
    print_answers(read, answers, loaded.answer_tokenizer, json=json)
    note(answers, loaded, settings)


def _prompt(argument: str | None, option: str | None) -> str:
    if argument is not None and option is not None:
        raise ConfigError("the prompt is given twice, as an argument and by --prompt", hint="give it once")
    text = argument if option is None else option
    return read_stdin() if text == "-" else text or ""


def stream(loaded: TrainedModel, text: str, settings: dict[str, Any]) -> Generation:
    """Print one answer as it is generated, and return it."""
    pieces = loaded.stream(text, **settings)
    try:
        for piece in pieces:
            print(printable(piece), end="", flush=True)
    finally:
        print(flush=True)
    assert pieces.generation is not None
    return pieces.generation


def note(answers: list[Generation], loaded: TrainedModel, settings: dict[str, Any]) -> None:
    """Log whether an answer went past the context, and which limit ended it."""
    context, limit = loaded.config.context, settings["max_new_tokens"]
    if any(one.slid for one in answers):
        log(
            f"note: this is longer than the context of {context:,} tokens: each time it was full, the model kept "
            f"the last {kept(context):,} of them; --no-slide stops there"
        )
    cut = [one for one in answers if one.finish == LENGTH]
    if any(len(one.ids) >= limit for one in cut):
        log(f"note: stopped after {limit:,} tokens (--max-new-tokens)")
    if any(len(one.ids) < limit for one in cut):
        log(f"note: stopped because the context of {context:,} tokens is full")


def complete(loaded: TrainedModel, text: str, settings: dict[str, Any], *, logprobs: bool) -> list[Generation]:
    """Return the answers that the settings ask for."""
    n = settings["n"]
    if n < 1:
        raise ConfigError(f"n is {n}", hint="ask for at least 1 answer")
    if logprobs:
        settings = {**settings, "log_probabilities": TOP_TOKENS if settings["beams"] is None else 0}
    answers = loaded.generate(text, **settings)
    return [answers] if n == 1 else answers


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
