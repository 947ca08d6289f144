"""`glassformer tokenize`: how a model's tokenizer splits a text."""

import click

from ..errors import ConfigError
from ..loading import load_tokenizer
from ..text import PublishedTokenizer, pieces_of
from .options import json_option
from .output import log, plural, print_json, print_table, visible
from .stdin import read_stdin


@click.command()
@click.argument("model", help="A model of any kind, or a tokenizer.json.")
@click.argument("text", help="What to encode; - reads stdin, without its last line end.")
@click.option("--specials", is_flag=True, help="Add the special tokens that the model expects around a text.")
@click.option("--parse-special", is_flag=True, help="Read names of special tokens in the text as those tokens.")
@json_option
def tokenize(model: str, text: str, specials: bool, parse_special: bool, json: bool) -> None:
    """Show the pieces and ids into which a model's tokenizer splits a text."""
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
    cells = [(i, f"{piece}  (special)" if i in special_ids else visible(piece)) for piece, i in pieces]
    print_table((">id", "piece"), cells)
    log(f"{plural(len(pieces), 'token')}, {plural(len(typed), 'character')}")
