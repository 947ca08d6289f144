"""`glassformer chat`: talk to a model that was made for it."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from ..errors import ConfigError, GlassformerError, did_you_mean
from ..generation.conversation import Conversation
from ..generation.language_model import MAX_NEW_TOKENS
from ..loading import load
from ..text import printable
from .devices import EngineOption
from .generate import (
    MODEL_HELP,
    LensOption,
    TemperatureOption,
    TopKOption,
    TopPOption,
    WeightsOption,
    no_stdin,
    not_utf8,
)
from .output import talk
from .said import show_said

COMMANDS = {"/reset": "forget the conversation", "/help": "show the commands", "/exit": "leave, as Ctrl-D does"}


def chat(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=f"One with a chat template. {MODEL_HELP}")],
    system: Annotated[str | None, typer.Option(help="What the model is told before the conversation.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer, in tokens.")] = MAX_NEW_TOKENS,
    temperature: TemperatureOption = None,
    top_k: TopKOption = None,
    top_p: TopPOption = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same answers.")] = 0,
    weights: WeightsOption = None,
    lens: LensOption = False,
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
            turn(conversation, line, lens=lens)
        except GlassformerError as error:
            # With nobody there to say it differently, the rest of the script makes no sense.
            if not interactive:
                raise
            talk(f"error: {error}")


def turn(conversation: Conversation, line: str, *, lens: bool = False) -> None:
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
        if lens and conversation.read is not None:
            show_said(conversation.writer, conversation.read, conversation.written)


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
