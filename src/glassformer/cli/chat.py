"""`glassformer chat`: talk to a model with a chat template."""

import contextlib
import sys
from collections.abc import Iterator

import click

from ..api.loading import load
from ..core.errors import ConfigError, GlassformerError, did_you_mean
from ..generation.conversation import Conversation
from ..generation.texts import MAX_NEW_TOKENS
from ..progress.display import waiting
from .commands import command
from .generate import print_lens, print_pieces
from .options import (
    MODEL,
    MODEL_HELP,
    engine_option,
    lens_option,
    no_stdin,
    not_utf8,
    sampling_options,
    seed_option,
    text_argument,
    trust_option,
    weights_option,
)
from .output import log

COMMANDS = {"/reset": "forget the conversation", "/help": "show the commands", "/exit": "leave (also Ctrl-D)"}


@command(
    "Write and predict",
    "glassformer chat smollm2",
    'glassformer chat smollm2 "What is the capital of France?" --temperature 0',
)
@click.argument("model", type=MODEL, help=f"A model with a chat template. {MODEL_HELP}")
@text_argument("A message to answer; without one, each line of stdin is a turn.", required=False)
@click.option("--system", help="The system message.")
@click.option("--max-new-tokens", type=int, default=MAX_NEW_TOKENS, help="The longest answer, in tokens.")
@sampling_options
@seed_option
@weights_option
@lens_option
@engine_option
@trust_option
def chat(
    model: str,
    text: str | None,
    system: str | None,
    max_new_tokens: int,
    seed: int | None,
    weights: str | None,
    lens: bool,
    engine: str | None,
    **given: float | None,
) -> None:
    """Talk to a model. Each line is a turn. /reset starts over, Ctrl-C stops an answer, /exit or Ctrl-D leaves."""
    sampling = {name: value for name, value in given.items() if value is not None}
    with waiting(f"reading {model}"):
        loaded = load(model, weights=weights)
    conversation = Conversation(loaded, system=system, max_new_tokens=max_new_tokens, seed=seed or 0, **sampling)
    if text is not None:
        answer(conversation, text, lens=lens)
        return
    if sys.stdin is None:
        raise no_stdin()
    interactive = sys.stdin.isatty()
    if interactive:
        log(", ".join(f"{name}: {what}" for name, what in COMMANDS.items()) + "; Ctrl-C stops an answer")
    failed = False
    for line in lines(interactive):
        if line == "/exit":
            break
        try:
            turn(conversation, line, lens=lens)
        except GlassformerError as error:
            # A message that the model cannot read ends a script; a mistyped command does not.
            if not (interactive or isinstance(error, ConfigError)):
                raise
            log(f"error: {error}")
            failed = True
    if failed and not interactive:
        raise click.exceptions.Exit(2)


def turn(conversation: Conversation, line: str, *, lens: bool = False) -> None:
    """Follow a command, or print the answer to a message."""
    if line == "/reset":
        conversation.reset()
        log("the conversation starts over")
    elif line == "/help":
        log("\n".join(f"{name:8}{what}" for name, what in COMMANDS.items()))
    elif line.startswith("/"):
        word = line.split()[0]
        raise ConfigError(f"there is no command {word}", hint=did_you_mean(word, COMMANDS))
    else:
        answer(conversation, line, lens=lens)


def answer(conversation: Conversation, message: str, *, lens: bool = False) -> None:
    """Print the answer to a message as it is generated; Ctrl-C stops it."""
    pieces = conversation.reply(message)
    try:
        print_pieces(pieces)
    except KeyboardInterrupt:
        pieces.close()
        print(flush=True)
        log("(stopped)")
    else:
        print(flush=True)
        if conversation.cut_short:
            log(f"(cut short: {_limit(conversation)})")
    if lens and conversation.read is not None:
        print_lens(conversation.model, conversation.read, conversation.written)


def _limit(conversation: Conversation) -> str:
    """Return which limit ended the last answer."""
    most = conversation.request.max_new_tokens
    if len(conversation.written) >= most:
        return f"{most:,} tokens are written, as --max-new-tokens allows"
    context = conversation.model.config.context
    return f"the context of {context:,} tokens is full; /reset starts over"


def lines(interactive: bool) -> Iterator[str]:
    """Yield the lines of the input, without empty ones, until it ends."""
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (arrow keys and a history; not on every system)
    elif hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    while True:
        try:
            line = input("> ") if interactive else sys.stdin.readline()
        except KeyboardInterrupt:
            log("\n(Ctrl-D or /exit leaves)")
            continue
        except EOFError:
            log("")
            return
        except UnicodeDecodeError as error:
            raise not_utf8(error) from None
        if not interactive and not line:
            return
        if line.strip():
            yield line.strip()
