"""Arguments and options that several commands share."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..core import reporting
from ..core.errors import ConfigError, DataError

MODEL_HELP = "A run folder, a folder or file of published weights, a pulled model, or hf:org/name."
PATH = click.Path(path_type=Path)


class Offers(click.ParamType):
    """A text, or a path, with what the Tab key offers for it.

    kinds   "runs", "models" and "settings", which are listed at the Tab; "file" and "dir", where nothing else fits
    names   returns names, or names with their meanings
    """

    name = "text"

    def __init__(self, *kinds: str, names: Callable[[], Iterable[str]] = tuple, made: type = str) -> None:
        self.kinds, self.names, self.made = kinds, names, made

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, or the path."""
        return self.made(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names, and the kinds for `completion` to list."""
        names = self.names()
        meanings = names if isinstance(names, dict) else dict.fromkeys(names)
        found = [CompletionItem(name, help=meaning) for name, meaning in meanings.items()]
        return [*found, *(CompletionItem("", type=kind) for kind in self.kinds)]


FOLDER = Offers("dir", made=Path)
RUN = Offers("runs", "file", made=Path)
MODEL = Offers("models", "file")
CHECKPOINT = Offers(names=lambda: ("best", "latest"))


def bundle(options: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return a decorator that adds several options."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def gathered(**kinds: type) -> Callable[[Any], Any]:
    """Return a decorator that hands several options on as one object: `name=Kind` holds those of the fields of Kind."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def call(**given: Any) -> Any:
            for name, kind in kinds.items():
                given[name] = kind(**{one.name: given.pop(one.name) for one in dataclasses.fields(kind)})
            return function(**given)

        return call

    return decorate


def text_argument(meaning: str, *, required: bool = True) -> Callable[[Any], Any]:
    """Return the argument TEXT; - stands for stdin."""
    return click.argument(
        "text", required=required, callback=_read_text, help=f"{meaning} - reads stdin, without its last line end."
    )


def _read_text(ctx: click.Context, _: Any, text: str | None) -> str | None:
    return read_stdin() if text == "-" and not ctx.resilient_parsing else text


def read_stdin() -> str:
    """Return the text on stdin without its last line end, which `echo` adds."""
    if sys.stdin is None:
        raise no_stdin()
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(error) from None
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")


def no_stdin() -> DataError:
    """Return the error for a stdin that is closed."""
    return DataError("stdin is closed", hint="pass the text as an argument, or through a pipe")


def not_utf8(error: UnicodeDecodeError) -> DataError:
    """Return the error for a stdin that is not text."""
    return DataError(
        f"stdin is not UTF-8 text: byte {error.start:,} is 0x{error.object[error.start]:02x}",
        hint="convert it first, for example with iconv -t UTF-8",
    )


json_option = click.option("--json", is_flag=True, help="Print one JSON object instead of tables.")
truncate_option = click.option(
    "--truncate", is_flag=True, help="Of a text longer than the context, read its end (default: it is refused)."
)
set_option = click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    type=Offers("settings"),
    multiple=True,
    help="Change a setting; may be repeated. `glassformer settings` lists them.",
)
engine_option = click.option(
    "--engine",
    metavar="NAME",
    type=Offers(names=lambda: ("cpu", "numpy", "jax")),
    callback=lambda ctx, _, name: name if name is None else _set_engine(name),
    help="Engine: cpu (compiled kernels, the default), numpy (every op as its source reads) or jax.",
)
weights_option = click.option(
    "--weights",
    metavar="TYPE",
    help="How weights are stored: float32, float16, int8, int4, or as-stored in a GGUF file. Fewer bits are faster "
    "(default: as-stored for GGUF, else float32). The engine jax: float32, bfloat16 or float16.",
)
sampling_options = bundle([
    click.option(
        "--temperature", type=float, help="Below 1 safer, above 1 wilder; 0 takes the likeliest token (default: 0.8)."
    ),
    click.option("--top-k", type=int, help="Sample from the k likeliest tokens only."),
    click.option("--top-p", type=float, help="Sample from the fewest tokens that together have this probability."),
])  # fmt: skip


def out_option(what: str) -> Callable[[Any], Any]:
    """Return the option --out of a command that writes into a folder."""
    return click.option("--out", type=FOLDER, metavar="DIR", help=f"Where to write: {what}.")


seed_option = click.option(
    "--seed",
    type=click.IntRange(0),
    help="Seed of what is drawn at random: the same one, the same result (default: 0).",
)
lens_option = click.option(
    "--lens", is_flag=True, help="Show what each layer would have predicted in the place of every token."
)


def _apply_trust(ctx: click.Context, parameter: Any, wanted: bool) -> None:
    reporting.ask = _ask
    ctx.with_resource(reporting.granted(wanted))


trust_option = click.option(
    "--trust",
    is_flag=True,
    expose_value=False,
    callback=_apply_trust,
    help="Trust the Python files that the run was trained with, now and later.",
)
"""Of commands that open runs, which may have been trained with Python files; without it, a terminal asks the user."""


def _with_adapter(ctx: click.Context, _: click.Parameter, model: str | None) -> str | None:
    if (folder := ctx.meta.get("adapter")) is None:
        return model
    from ..weights.stores import adapted_name  # loads NumPy

    if model is None:
        raise click.UsageError("--adapter needs the model that it belongs to.", ctx)
    return adapted_name(model, folder)


adapter_option = click.option(
    "--adapter",
    metavar="FOLDER",
    type=Offers("dir"),
    expose_value=False,
    is_eager=True,  # before the model, which gets it
    callback=lambda ctx, _, folder: ctx.meta.update(adapter=folder),
    help="LoRA adapters to merge into the model, as PEFT writes them.",
)
model_argument = bundle(
    [click.argument("model", type=MODEL, callback=_with_adapter, help=MODEL_HELP), adapter_option, trust_option]
)
source_option = bundle(
    [
        click.option(
            "--from",
            "source",
            metavar="MODEL",
            type=MODEL,
            callback=_with_adapter,
            help="Start from a trained model: a folder, a file, a pulled name, hf:…",
        ),
        adapter_option,
        trust_option,
    ]
)


def refuse(given: Any, option: str, fact: str) -> None:
    """Refuse an option that has no meaning here."""
    if given:
        raise ConfigError(fact, hint=f"leave out {option}")


def _set_engine(name: str) -> str:
    from ..core.dispatch import set_engine  # loads NumPy, which commands that only list do without

    set_engine(name)
    return name


def _ask(question: str) -> bool:
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from ..progress.display import paused

    with paused():
        return click.confirm(question, default=False, err=True)
