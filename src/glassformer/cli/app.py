"""The command `glassformer` and how its failures look."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import glassformer

from ..errors import ConfigError, GlassformerError
from .bench import bench
from .chat import chat
from .check import check
from .demo import demo
from .embed import embed
from .evaluate import evaluate, tasks
from .export import export
from .generate import generate
from .inspect import inspect
from .params import params
from .plan import plan
from .pull import models, pull
from .tokenize import tokenize
from .tokens import tokens
from .train import train
from .verify import verify

app = typer.Typer(
    name="glassformer",
    help="The Transformer in a glass case: every matrix of the forward and the backward pass in plain NumPy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(train)
app.command("eval")(evaluate)
app.command()(tasks)
app.command()(tokens)
app.command()(inspect)
app.command()(check)
app.command()(bench)
app.command()(params)
app.command()(plan)
app.command()(generate)
app.command()(chat)
app.command()(tokenize)
app.command()(embed)
app.command()(verify)
app.command()(export)
app.command()(pull)
app.command()(models)


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
    try:
        app()
    except GlassformerError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has left; Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
