"""`glassformer tokenize`: what a text looks like to a model."""

from typing import Annotated

import typer
from rich.text import Text

from ..errors import ConfigError
from ..loading import load_tokenizer
from ..text import PublishedTokenizer, pieces_of
from .generate import read_stdin
from .output import JsonOption, console, print_json, table, visible

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A model of any kind, or a tokenizer.json.")]
TextArgument = Annotated[
    str, typer.Argument(metavar="TEXT", help="What to encode; - reads stdin, without its last line end.")
]


def tokenize(
    model: ModelArgument,
    text: TextArgument,
    specials: Annotated[
        bool, typer.Option("--specials", help="Put the special tokens around the text that the model expects.")
    ] = False,
    parse_special: Annotated[
        bool, typer.Option("--parse-special", help="Read names of special tokens in the text as those tokens.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the pieces that a model's tokenizer cuts a text into, and their ids."""
    tokenizer = load_tokenizer(model)
    typed = read_stdin() if text == "-" else text
    if isinstance(tokenizer, PublishedTokenizer):
        pieces = tokenizer.pieces(typed, specials=specials, parse_special=parse_special)
    elif specials or parse_special:
        raise ConfigError(
            f"the {tokenizer.kind} tokenizer of {model} never turns text into special tokens",
            hint="leave out --specials and --parse-special",
        )
    else:
        pieces = pieces_of(tokenizer, typed)
    special_ids = set(tokenizer.specials.values())
    if json:
        rows = [{"text": piece, "id": i, "special": i in special_ids} for piece, i in pieces]
        print_json({"tokenizer": tokenizer.kind, "size": tokenizer.size, "count": len(pieces), "pieces": rows})
        return
    out = console()
    shown = table(">id", "piece")
    for piece, i in pieces:
        # As Text, because "[bold]" in a plain string would be an order to Rich.
        shown.add_row(str(i), Text(f"{piece}  (special)" if i in special_ids else visible(piece)))
    out.print(shown)
    out.print(f"{len(pieces):,} tokens, {len(typed):,} characters")
