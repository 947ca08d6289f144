"""The command `glassformer`: its help, and how it reports failures."""

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
from .commands import SECTIONS, declarations, epilog, load_command
from .memory import memory_hint, missing_memory, prepare_for_limit, was_at_limit

EXAMPLES = (
    "glassformer demo",
    "glassformer train majority",
    "glassformer inspect runs/majority 11110222",
)
PIPE_CLOSED = 141
# Parts of the messages of Python and JAX, which have no exception classes for these.
_NO_THREAD, _NO_DEVICE_MEMORY = "can't start new thread", "RESOURCE_EXHAUSTED"


class LazyGroup(click.Group):
    """A group that imports a command when it is called; its help reads what commands declare."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, section by section."""
        return list(declarations())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; where names are completed, only its name and meaning."""
        if ctx.resilient_parsing:
            return click.Command(cmd_name, short_help=declarations()[cmd_name].summary)
        return load_command(cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the name, the command and the remaining arguments; to complete, one that imports nothing."""
        if ctx.resilient_parsing:
            from .completion import skeleton

            return args[0], skeleton(args[0]) if args[0] in declarations() else None, args[1:]
        if not args[0].startswith("-"):
            check_known("there is no command", args[0], declarations())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each section, with what they declare."""
        for section in SECTIONS:
            with formatter.section(section):
                every = declarations().items()
                formatter.write_dl([(name, one.summary) for name, one in every if one.section == section])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a reader of its output who leaves ends it as SIGPIPE ends other programs."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            exit_with("", PIPE_CLOSED, error)


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
    epilog=epilog(EXAMPLES),
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100},
    params=[
        _printing("--version", lambda _: [f"glassformer {glassformer.__version__}"], "Print the version and exit."),
        _printing(
            "--install-completion",
            lambda shell: import_module(".completion", __package__).install(shell),
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
