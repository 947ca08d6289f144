"""Text in, text out: what a model writes after a prompt, all at once or piece by piece."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..config import EncoderConfig, EncoderDecoderConfig
from ..core.arrays import Array
from ..core.errors import ConfigError, GlassformerError, LengthError, TokenError, WeightsError
from ..core.settings import texts_of
from ..text.published import TOKENIZER
from ..text.stream import StopStrings, StreamDecoder
from ..weights.loaded_model import LoadedModel
from .request import Ids, Request, checked_ids
from .sampling import Sampling
from .writer import Sequences, Step, search

TEMPERATURE = 0.8
"""The default for drawing tokens: a little sharper than the model's own distribution."""
MAX_NEW_TOKENS = 256
Strings = str | Sequence[str]
Prompt = str | Array
"""A text, or the ids of its tokens."""
LINE_BREAK = "\n"
CONTEXT_OF_TEXT = 16  # ids of the prompt that decide how the first new token is written
REQUEST_SETTINGS = ("max_new_tokens", "seed", "log_probabilities", "slide", "length_penalty", "early_stopping")
"""The settings that `generate` passes on to `Request`."""


@dataclass(frozen=True)
class Generation:
    """An answer of a model.

    text                the answer, without an end token and up to the first stop string
    ids                 its tokens, an end token or the tokens of a stop string included
    finish              "stop" (an end token or a stop string) or "length" (max_new_tokens, or the context is full)
    log_probabilities   of each token under the model itself, whatever the sampling; None unless asked for
    top                 the likeliest tokens at each position with their log-probabilities; None unless asked for
    score               Σ log p / length ** length_penalty of beam search; None otherwise
    slid                whether it goes on past the context: the window moved, see `reader`
    """

    text: str
    ids: tuple[int, ...]
    finish: str
    log_probabilities: tuple[float, ...] | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] | None = None
    score: float | None = None
    slid: bool = False


class Stream(Iterator[str]):
    """The pieces of one answer as they come; `generation` is the whole of it once all have come, and None before."""

    def __init__(self, model: LoadedModel, request: Request, text: _Text) -> None:
        self.generation: Generation | None = None
        self.at_end: Callable[[Generation], object] = lambda generation: None
        self._done: list[Step] = []
        self._pieces = self._follow(_steps(model, request, [text]), text)

    def __next__(self) -> str:
        return next(self._pieces)

    @property
    def ids(self) -> list[int]:
        """The tokens so far."""
        return [int(step.ids[0]) for step in self._done]

    def _follow(self, steps: Iterator[Step], text: _Text) -> Iterator[str]:
        pieces = list[str]()
        for step in steps:
            self._done.append(step)
            if piece := text.take():
                pieces.append(piece)
                yield piece
        if piece := text.finish():
            pieces.append(piece)
            yield piece
        self.generation = collected(self._done, 0, "".join(pieces), text.room)
        self.at_end(self.generation)


def check_writes(model: LoadedModel) -> None:
    """Refuse a model that cannot write text."""
    if isinstance(model.config, EncoderConfig):
        raise ConfigError(
            f"{model.title} is an encoder, which reads and classifies but does not write text",
            hint="use `glassformer predict` or `glassformer embed` (in Python: classify or embed), or a decoder",
        )
    if model.tokenizer is None:
        raise WeightsError(f"{model.title} has no tokenizer to write text with", hint=f"get its {TOKENIZER} as well")
    if isinstance(model.config, EncoderDecoderConfig) and model.start_id is None:
        raise ConfigError("there is no start_id", hint="an encoder-decoder starts its answers with a token: name it")


def prompts_of(prompt: Any) -> tuple[list[Prompt], bool]:
    """Return prompts, each a text or ids, and whether it was one by itself."""
    if isinstance(prompt, str) or _is_ids(prompt):
        return [prompt if isinstance(prompt, str) else np.asarray(prompt)], True
    prompts = list(prompt) if isinstance(prompt, Iterable) else [prompt]
    return [np.asarray(prompt) if _is_ids(prompt) else texts_of([prompt])[0] for prompt in prompts], False


def one_prompt(prompt: Any) -> list[Prompt]:
    """Return a prompt in a list; refuse several."""
    prompts, is_one = prompts_of(prompt)
    return prompts if is_one else list(texts_of([prompt]))


def _is_ids(prompt: Any) -> bool:
    is_list = isinstance(prompt, list | tuple) and bool(prompt)
    return all(isinstance(number, int | np.integer) for number in prompt) if is_list else isinstance(prompt, np.ndarray)


def generate(
    model: LoadedModel,
    prompt: Any,
    *,
    n: int = 1,
    stop: Strings = (),
    beams: int | None = None,
    truncate: bool = False,
    **settings: Any,
) -> Any:
    """Answer a prompt with a `Generation`, or with a list of `n`; a list of prompts with a list of either.

    A prompt is a text, or the ids of its tokens, which are read as they are: with a start token, if there is to be one.

    max_new_tokens      the most tokens of an answer (256)
    n                   samples of each prompt, or the n best of beam search
    stop                strings that end the answer and are left out of it
    seed                the same seed gives the same answer to a prompt, alone or among others
    beams               search for the likeliest answer with this many beams instead of sampling; 1 is greedy.
                        length_penalty (1) and early_stopping (False) belong to it; see `Request`
    log_probabilities   None: none; 0: those of the chosen tokens; k: those of the k likeliest tokens as well
    slide               a decoder goes on past its context with a window that moves (see `reader`); False: it ends.
                        None: it goes on unless it answers questions and has no end token
    truncate            of a prompt that is longer than the context, read the end; False: refuse it

    All other settings are those of `Sampling`: temperature (0.8 unless given; 0 is greedy), top_k, top_p, …
    """
    prompts, is_one = prompts_of(prompt)
    asked = {name: settings.pop(name) for name in REQUEST_SETTINGS if name in settings}
    if beams is not None and settings:
        raise ConfigError(
            f"beam search takes the likeliest answer, but {', '.join(settings)} asks to draw one",
            hint="leave out either beams or the sampling settings",
        )
    sampling = settings if beams is None else None
    request = _request(model, prompts, sampling, truncate=truncate, n=n, beams=beams, **asked)
    stops = _as_strings(stop)
    if beams is None:
        answers = _draw(model, request, stops)
    else:
        answers = [_search(model, alone, stops) for alone in request.for_each_prompt()]
    results = [group[0] if n == 1 else group for group in answers]
    return results[0] if is_one else results


def stream(
    model: LoadedModel,
    prompt: Prompt,
    *,
    max_new_tokens: int = MAX_NEW_TOKENS,
    stop: Strings = (),
    seed: int = 0,
    slide: bool | None = None,
    truncate: bool = False,
    **sampling: Any,
) -> Stream:
    """Return an iterator over the pieces of one answer as they come: joined, they are the text of `generate`.

    No piece holds half a character or the beginning of a stop string.
    """
    settings: dict[str, Any] = {"max_new_tokens": max_new_tokens, "seed": seed, "slide": slide, "burst": 1}
    request = _request(model, one_prompt(prompt), sampling, truncate=truncate, **settings)
    return Stream(model, request, text_after(model, request.prompts[0], _as_strings(stop)))


def _request(
    model: LoadedModel,
    prompts: Sequence[Prompt],
    sampling: dict[str, Any] | None,
    *,
    truncate: bool,
    slide: bool | None = None,
    **settings: Any,
) -> Request:
    """Return the request for answers of a model; without settings of sampling, none are drawn."""
    reads, sources = encode_prompts(model, prompts, truncate=truncate)
    drawn = Sampling() if sampling is None else Sampling.of({"temperature": TEMPERATURE, **sampling})
    assert model.answer_tokenizer is not None
    of_model: dict[str, Any] = {"stop_ids": model.end_ids, "known": model.answer_tokenizer.size, "sampling": drawn}
    settings = {"max_new_tokens": MAX_NEW_TOKENS, "slide": _slides(model, slide), **of_model, **settings}
    return Request(prompts=reads, sources=sources, **settings)


def _slides(model: LoadedModel, asked: bool | None) -> bool:
    """Return whether the text goes on past the context; the answer to a question ends there at the latest."""
    if asked is not None or model.end_ids or model.origin is None or model.origin["name"] in ("text", "lines"):
        return asked is not False
    try:
        task = model.task
    except GlassformerError:  # its data is gone
        return True
    return task is None or task.metric == "none"


def encode_prompts(
    model: LoadedModel, prompts: Sequence[Prompt], *, truncate: bool = False
) -> tuple[list[Array], list[Array] | None]:
    """Return the tokens (T,) that each answer begins from and, for an encoder-decoder, the sources (S,)."""
    check_writes(model)
    assert model.tokenizer is not None
    start: Array = np.array([] if model.start_id is None else [model.start_id], dtype=np.int64)
    nothing = start[:0]
    vocab = model.config.source_size if isinstance(model.config, EncoderDecoderConfig) else model.config.vocab

    def read(prompt: Prompt, encode: Callable[[str], Array], first: Array, last: Array) -> Array:
        if not isinstance(prompt, str):  # as it is
            return checked_ids(_fitting(model, prompt, 0, truncate), vocab, model.config.context, "the prompt")
        ids = _fitting(model, encode(prompt), len(first) + len(last), truncate)
        return np.concatenate([first, ids, last])

    if isinstance(model.config, EncoderDecoderConfig):
        end = nothing if model.source_end_id is None else np.array([model.source_end_id])
        return [start for _ in prompts], [read(prompt, model.tokenizer.encode, nothing, end) for prompt in prompts]
    return [read(prompt, functools.partial(_beginning, model), start, nothing) for prompt in prompts], None


def _beginning(model: LoadedModel, text: str) -> Array:
    """Return the ids of a prompt; of a line break for an empty one where the model has no start token."""
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(text)
    if len(ids) or model.start_id is not None:
        return ids
    with contextlib.suppress(TokenError):
        ids = model.tokenizer.encode(LINE_BREAK)
    if not len(ids):
        raise LengthError(
            "the prompt is empty, and this model knows neither a start token nor a line break to begin with",
            hint="pass a prompt",
        )
    return ids


def _fitting(model: LoadedModel, ids: Array, others: int, truncate: bool) -> Array:
    """Return the ids, or the last of them that fit into the context beside `others` more."""
    context = model.config.context
    if len(ids) + others <= context:
        return ids
    if not truncate:
        what = "source" if isinstance(model.config, EncoderDecoderConfig) else "prompt"
        raise LengthError(
            f"the {what} has {len(ids) + others:,} tokens but this model reads at most {context:,}",
            hint=f"shorten it, or keep its last {context:,} tokens with --truncate (in Python: truncate=True)",
        )
    return ids[len(ids) + others - context :]


def text_after(model: LoadedModel, read: Ids, stops: Strings = ()) -> _Text:
    """Return the text that begins after these ids; a start token is no part of it."""
    has_source = isinstance(model.config, EncoderDecoderConfig)
    before = [] if has_source else read[model.start_id is not None :][-CONTEXT_OF_TEXT:]
    assert model.answer_tokenizer is not None
    decoder = StreamDecoder(model.answer_tokenizer, after=before)
    return _Text(decoder, StopStrings(stops), model.config.context + 1 - len(read))


def _steps(model: LoadedModel, request: Request, texts: list[_Text]) -> Iterator[Step]:
    """Write answers to prompts, and pass each token on to the text of its sequence."""
    request = replace(request, ends=lambda row, token: texts[row].push(token))
    return Sequences(model.model, model.params, request).write()


def _draw(model: LoadedModel, request: Request, stops: Strings) -> list[list[Generation]]:
    """Return n answers to each prompt."""
    n = request.n
    texts = [text_after(model, read, stops) for read in request.prompts for _ in range(n)]
    steps = list(_steps(model, request, texts))
    drawn = [collected(steps, row, text.finish(), text.room) for row, text in enumerate(texts)]
    return [drawn[first : first + n] for first in range(0, len(drawn), n)]


def _search(model: LoadedModel, request: Request, stops: Strings) -> list[Generation]:
    """Return the n best answers to the one prompt of a request."""
    [prompt] = request.prompts

    @functools.cache
    def text_of(ids: tuple[int, ...]) -> _Text:
        """Return the text of a beam, which goes on from that of the beam it continues."""
        text = text_of(ids[:-1]).copy() if ids else text_after(model, prompt, stops)
        for token in ids[-1:]:
            text.push(token)
        return text

    ends = (lambda ids: text_of(ids).stops.stopped) if stops else None
    answers = []
    for ids, logs, score, finish in search(model.model, model.params, replace(request, ends=ends))[: request.n]:
        text = text_after(model, prompt, stops)
        for token in ids:
            if token not in model.end_ids:
                text.push(token)
        chosen = None if request.log_probabilities is None else logs
        answers.append(Generation(text.finish(), ids, finish, chosen, score=score, slid=len(ids) > text.room))
    return answers


class _Text:
    """The text of one answer as its tokens come, up to a stop string; `room` is how many the context has room for."""

    def __init__(self, decoder: StreamDecoder, stops: StopStrings, room: int) -> None:
        self.decoder, self.stops, self.room = decoder, stops, room
        self.pieces: list[str] = []

    def push(self, token: int) -> bool:
        """Take in a token; return whether a stop string came."""
        self.pieces.append(self.stops.push(self.decoder.push(token)))
        return self.stops.stopped

    def copy(self) -> _Text:
        """Return a second text that goes on from here."""
        return _Text(self.decoder.copy(), copy.copy(self.stops), self.room)

    def take(self) -> str:
        """Return what came since this was last asked."""
        text, self.pieces = "".join(self.pieces), []
        return text

    def finish(self) -> str:
        """Return all that is left: no more tokens come."""
        self.pieces += [self.stops.push(self.decoder.finish()), self.stops.finish()]
        return self.take()


def collected(steps: list[Step], row: int, text: str = "", room: int = 0) -> Generation:
    """Gather what the steps hold about one sequence, of which the context has room for `room` tokens."""
    written = [step for step in steps if step.ids[row] >= 0]
    finish = written[-1].finish[row]
    assert finish is not None
    logs = [float(step.log_probabilities[row]) for step in written if step.log_probabilities is not None]
    top = [
        tuple(zip(step.top_ids[row].tolist(), step.top_log_probabilities[row].tolist(), strict=True))
        for step in written
        if step.top_ids is not None and step.top_log_probabilities is not None
    ]
    ids = tuple(int(step.ids[row]) for step in written)
    return Generation(text, ids, finish, tuple(logs) or None, tuple(top) or None, slid=len(ids) > room)


def _as_strings(stop: Any) -> tuple[str, ...]:
    strings = tuple(stop) if isinstance(stop, Iterable) and not isinstance(stop, str) else (stop,)
    if not all(isinstance(text, str) for text in strings):
        raise ConfigError(f"stop is {stop!r:.80}", hint="pass a text that ends the answer, or a list of texts")
    return strings
