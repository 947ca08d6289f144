"""`glassformer chat`: talk to a model that was made for it."""

import contextlib
import sys
from collections.abc import Generator, Iterator
from typing import Annotated, Any

import typer

from ..config import DecoderConfig
from ..errors import ConfigError, GlassformerError, LengthError, did_you_mean
from ..generation.language_model import CONTEXT_OF_TEXT, MAX_NEW_TOKENS, TEMPERATURE, LanguageModel
from ..generation.sampling import Sampling
from ..generation.writer import LENGTH, generate_steps
from ..loading import load
from ..text import PublishedTokenizer, StreamDecoder, printable
from ..text.chat import Message, encode_chat
from .devices import EngineOption
from .generate import MODEL_HELP, TemperatureOption, TopKOption, TopPOption, WeightsOption, no_stdin, not_utf8
from .output import talk

COMMANDS = {"/reset": "forget the conversation", "/help": "show the commands", "/exit": "leave, as Ctrl-D does"}


class Conversation:
    """What was said so far, and how the model answers.

    The model reads the whole conversation at every turn. A turn that fails leaves no trace in it.
    """

    def __init__(self, loaded: LanguageModel, *, system: str | None, max_new_tokens: int, seed: int, **sampling: Any):
        tokenizer = loaded.tokenizer
        template = loaded.chat_template or getattr(tokenizer, "chat_template", None)
        if template is None or not isinstance(tokenizer, PublishedTokenizer):
            raise ConfigError(
                "this model has no chat template: it was not made for conversations",
                hint="let it continue a text with `glassformer generate MODEL --prompt TEXT`",
            )
        if not isinstance(loaded.model.config, DecoderConfig):
            raise ConfigError(
                "only decoders chat", hint="ask one question with `glassformer generate MODEL --prompt TEXT`"
            )
        self.loaded, self.tokenizer, self.template = loaded, tokenizer, template
        self.max_new_tokens, self.seed = max_new_tokens, seed
        self.sampling = Sampling.of({"temperature": TEMPERATURE, **sampling})
        end = tokenizer.role_id("eos")
        self.end_ids = {*loaded.end_ids, *(() if end is None else (end,))}
        self.start: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self.start)
        self.turns = 0
        self.cut_short = False  # whether the last answer ended because there was no more room for it

    def reset(self) -> None:
        """Forget what was said; a system message stays."""
        self.messages = list(self.start)

    def reply(self, text: str) -> Generator[str, None, None]:
        """Yield the answer as it comes; the turn is remembered, an answer that is stopped half way included."""
        messages = [*self.messages, {"role": "user", "content": text}]
        ids = encode_chat(self.tokenizer, messages, template=self.template)
        context = self.loaded.model.config.context
        if len(ids) > context:
            raise LengthError(
                f"the conversation has {len(ids):,} tokens, but this model reads at most {context:,}",
                hint="start anew with /reset, or say it in fewer words",
            )
        pieces: list[str] = []
        try:
            for piece in self._pieces(ids):
                pieces.append(piece)
                yield piece
        except (KeyboardInterrupt, GeneratorExit):
            self._remember(messages, pieces)
            raise
        self._remember(messages, pieces)

    def _remember(self, messages: list[Message], pieces: list[str]) -> None:
        self.turns += 1
        self.messages = [*messages, {"role": "assistant", "content": "".join(pieces).strip()}]

    def _pieces(self, ids: Any) -> Iterator[str]:
        decoder = StreamDecoder(self.tokenizer, after=ids[-CONTEXT_OF_TEXT:])
        steps = generate_steps(
            self.loaded.model,
            self.loaded.params,
            [ids],
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling,
            seed=self.seed + self.turns,
            stop_ids=tuple(self.end_ids),
            known=self.tokenizer.size,
            burst=1,
        )
        for step in steps:
            self.cut_short = step.finish[0] == LENGTH
            token = int(step.ids[0])
            if token not in self.end_ids:
                yield decoder.push(token)
        yield decoder.finish()


def chat(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"One with a chat template. {MODEL_HELP}")],
    system: Annotated[str | None, typer.Option(help="What the model is told before the conversation.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer, in tokens.")] = MAX_NEW_TOKENS,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same answers.")] = 0,
    weights: WeightsOption = None,
    engine: EngineOption = None,
) -> None:
    """Talk to a model. Each line is a turn; /reset starts anew, Ctrl-C stops an answer, Ctrl-D or /exit leaves."""
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    sampling = {name: value for name, value in given.items() if value is not None}
    loaded = load(model, weights=weights)
    conversation = Conversation(loaded, system=system, max_new_tokens=max_new_tokens, seed=seed, **sampling)
    if sys.stdin is None:
        raise no_stdin()
    interactive = sys.stdin.isatty()
    if interactive:
        talk(", ".join(f"{name}: {what}" for name, what in COMMANDS.items()) + "; Ctrl-C stops an answer")
    for line in lines(interactive):
        if line == "/exit":
            return
        try:
            turn(conversation, line)
        except GlassformerError as error:
            # With nobody there to say it differently, the rest of the script makes no sense.
            if not interactive:
                raise
            talk(f"error: {error}")


def turn(conversation: Conversation, line: str) -> None:
    """Follow a command, or print the answer to what was said."""
    if line == "/reset":
        conversation.reset()
        talk("the conversation starts anew")
    elif line == "/help":
        talk("\n".join(f"{name:8}{what}" for name, what in COMMANDS.items()))
    elif line.startswith("/"):
        word = line.split()[0]
        raise ConfigError(f"there is no command {word}", hint=did_you_mean(word, COMMANDS))
    else:
        _answer(conversation, line)


def _answer(conversation: Conversation, line: str) -> None:
    answer = conversation.reply(line)
    try:
        for piece in answer:
            print(printable(piece), end="", flush=True)
    except KeyboardInterrupt:
        answer.close()
        print(flush=True)
        talk("(stopped)")
        return
    print(flush=True)
    if conversation.cut_short:
        talk("(cut short: --max-new-tokens is reached or the context is full; /reset starts anew)")


def lines(interactive: bool) -> Iterator[str]:
    """Yield what is typed, without empty lines, until Ctrl-D or the end of the input."""
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (arrow keys and a history; not on every system)
    elif hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")  # whatever the system's encoding is, as `generate`
    while True:
        try:
            line = input("> ") if interactive else sys.stdin.readline()
        except KeyboardInterrupt:
            talk("\n(Ctrl-D or /exit leaves)")
            continue
        except EOFError:
            talk("")
            return
        except UnicodeDecodeError as error:
            raise not_utf8(error) from None
        if not interactive and not line:
            return
        if line.strip():
            yield line.strip()
