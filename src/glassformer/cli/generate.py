"""`glassformer generate`: let a trained model write."""

import math
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ..errors import ConfigError, DataError
from ..generation import Generation, LanguageModel
from ..generation.language_model import MAX_NEW_TOKENS
from ..generation.sliding import kept
from ..generation.writer import LENGTH
from ..loading import load
from ..text import Tokenizer, printable
from .devices import EngineOption
from .output import JsonOption, console, print_json, table, talk
from .said import check_lens, show_lens

TOP_TOKENS = 5
MODEL_HELP = "A run folder, a folder or file of published weights, a pulled model, or hf:org/name."

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)]
PromptOption = Annotated[
    str,
    typer.Option(
        metavar="TEXT|-",
        help="What to continue or to answer; - reads stdin, without its last line end. Without one, a model starts "
        "from its start token, or from a line break where it has none.",
    ),
]
TemperatureOption = Annotated[
    float | None, typer.Option(help="Below 1 safer, above 1 wilder; 0 always takes the likeliest token (default: 0.8).")
]
TopKOption = Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens only.")]
TopPOption = Annotated[
    float | None, typer.Option(help="Draw from the fewest tokens that have this probability together.")
]
MinPOption = Annotated[float | None, typer.Option(help="Leave out tokens below this share of the likeliest.")]
RepetitionOption = Annotated[
    float | None, typer.Option(help="Above 1: avoid tokens of the prompt and the answer so far.")
]
FrequencyOption = Annotated[float | None, typer.Option(help="Avoid tokens by how often the answer holds them.")]
PresenceOption = Annotated[float | None, typer.Option(help="Avoid tokens that the answer holds.")]
BeamsOption = Annotated[
    int | None, typer.Option(help="Search for the likeliest answer with so many beams instead of drawing one.")
]
LengthPenaltyOption = Annotated[
    float | None, typer.Option(help="Of beam search: above 0 favors longer answers (default: 1).")
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="How weights are kept: float32, float16, int8, int4, or as-stored in a GGUF file. Fewer bits are faster "
        "(default: as-stored for GGUF, else float32). The engine jax: float32, bfloat16 or float16.",
    ),
]
SlideOption = Annotated[
    bool,
    typer.Option("--slide/--no-slide", help="Go on past the context with a window that moves, or stop where it ends."),
]
TruncateOption = Annotated[
    bool, typer.Option("--truncate", help="Of a prompt longer than the context, read its end instead of refusing it.")
]
LensOption = Annotated[
    bool, typer.Option("--lens", help="Show what each layer would have said in the place of every token.")
]
StopOption = Annotated[list[str] | None, typer.Option(metavar="TEXT", help="End before this text; may be repeated.")]


def generate(
    model: ModelArgument,
    prompt: PromptOption = "",
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer, in tokens.")] = MAX_NEW_TOKENS,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    min_p: MinPOption = None,
    repetition_penalty: RepetitionOption = None,
    frequency_penalty: FrequencyOption = None,
    presence_penalty: PresenceOption = None,
    beams: BeamsOption = None,
    length_penalty: LengthPenaltyOption = None,
    n: Annotated[int, typer.Option("--n", help="How many answers.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same answer (default: 0).")] = None,
    stop: StopOption = None,
    slide: SlideOption = True,
    truncate: TruncateOption = False,
    weights: WeightsOption = None,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="Show the log-probability of every token.")] = False,
    lens: LensOption = False,
    engine: EngineOption = None,
    json: JsonOption = False,
) -> None:
    """Continue a text or answer it, printing it as it comes, to an end token or so many tokens."""
    loaded = load(model, weights=weights)
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    penalties = {"repetition_penalty": repetition_penalty, "frequency_penalty": frequency_penalty}
    sampling |= {**penalties, "presence_penalty": presence_penalty}
    settings: dict[str, Any] = {name: value for name, value in sampling.items() if value is not None}
    check_seed(seed, beams)
    settings |= {"max_new_tokens": max_new_tokens, "seed": seed or 0, "stop": stop or []}
    settings |= {"slide": slide, "truncate": truncate}
    text = read_stdin() if prompt == "-" else prompt
    alone = not (json or logprobs or beams is not None or length_penalty is not None or n != 1)
    check_lens(lens, alone=alone)
    if alone:
        stream_with_notes(loaded, text, settings, lens=lens)
    else:
        settings |= {"n": n, "beams": beams, "length_penalty": length_penalty}
        answer_with_notes(loaded, text, settings, logprobs=logprobs, json=json)


def answer_with_notes(
    loaded: LanguageModel, text: str, settings: dict[str, Any], *, logprobs: bool, json: bool
) -> None:
    """Print complete answers, and what there is to say about them."""
    answers = answer(loaded, text, settings, logprobs=logprobs)
    show_json(text, answers, loaded.answer_tokenizer) if json else show(answers, loaded.answer_tokenizer)
    note(answers, loaded, settings)


def check_seed(seed: int | None, beams: int | None) -> None:
    """Refuse a seed where nothing is drawn."""
    if seed is not None and beams is not None:
        raise ConfigError("beam search draws nothing, so --seed has no meaning", hint="leave out --seed or --beams")


def stream_with_notes(loaded: LanguageModel, text: str, settings: dict[str, Any], *, lens: bool) -> None:
    """Print one answer as it comes, and what there is to say about it."""
    said = stream(loaded, text, settings)
    note([said], loaded, settings)
    if lens:
        show_lens(loaded, text, said, truncate=settings["truncate"])


def stream(loaded: LanguageModel, text: str, settings: dict[str, Any]) -> Generation:
    """Print one answer as it comes, and return it."""
    pieces = loaded.stream(text, **settings)
    try:
        for piece in pieces:
            print(printable(piece), end="", flush=True)
    finally:
        print(flush=True)
    assert pieces.generation is not None
    return pieces.generation


def note(answers: list[Generation], loaded: LanguageModel, settings: dict[str, Any]) -> None:
    """Say whether an answer went on past the context, and where one was cut off."""
    context, limit = loaded.model.config.context, settings["max_new_tokens"]
    if any(one.slid for one in answers):
        talk(
            f"note: this is longer than the context of {context:,} tokens: whenever it was full, the model read on "
            f"from the last {kept(context):,} of them; --no-slide stops there"
        )
    cut = [one for one in answers if one.finish == LENGTH]
    if any(len(one.ids) >= limit for one in cut):
        talk(f"note: stopped after {limit:,} tokens (--max-new-tokens)")
    if any(len(one.ids) < limit for one in cut):
        talk(f"note: stopped because the context of {context:,} tokens is full")


def answer(loaded: LanguageModel, text: str, settings: dict[str, Any], *, logprobs: bool) -> list[Generation]:
    """Return as many answers as the settings ask for."""
    n = settings["n"]
    if n < 1:
        raise ConfigError(f"n is {n}", hint="ask for at least 1 answer")
    if logprobs:
        settings = {**settings, "log_probabilities": TOP_TOKENS if settings["beams"] is None else 0}
    answers = loaded.generate(text, **settings)
    return [answers] if n == 1 else answers


def show(answers: list[Generation], tokenizer: Tokenizer) -> None:
    """Print complete answers, and their tokens where log-probabilities were asked for."""
    out = console()
    for number, one in enumerate(answers):
        if number:
            print("---")
        print(printable(one.text))
        if one.log_probabilities is not None:
            rows = [
                (str(token), repr(printable(tokenizer.decode([token]))), f"{log:.4f}", f"{math.exp(log):.2%}")
                for token, log in zip(one.ids, one.log_probabilities, strict=True)
            ]
            out.print(table(">id", "token", ">log p", ">p", rows=rows))


def read_stdin() -> str:
    """Return what stdin holds, without the last line end, which `echo` adds."""
    if sys.stdin is None:
        raise no_stdin()
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def no_stdin() -> DataError:
    """Return the error about a stdin that is closed."""
    return DataError("stdin is closed", hint="pass the text as an argument, or through a pipe")


def not_utf8(error: UnicodeDecodeError) -> DataError:
    """Return the error about stdin that cannot be read as text."""
    return DataError(
        f"stdin is not UTF-8 text: byte {error.start:,} is 0x{error.object[error.start]:02x}",
        hint="convert it first, for example with iconv -t UTF-8",
    )


def show_json(text: str, answers: list[Generation], tokenizer: Tokenizer) -> None:
    """Print complete answers as one JSON object."""
    print_json({"prompt": text, "generations": [_fields(one, tokenizer) for one in answers]})


def _fields(one: Generation, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return an answer as JSON shows it; what was not asked for is left out."""
    fields = {name: value for name, value in asdict(one).items() if value is not None and name != "top"}
    fields["text"] = printable(one.text)
    fields["tokens"] = [printable(tokenizer.decode([token])) for token in one.ids]
    if one.top is not None:
        fields["top"] = [
            [{"id": i, "token": printable(tokenizer.decode([i])), "log_probability": log} for i, log in place]
            for place in one.top
        ]
    return fields
