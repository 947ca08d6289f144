"""`glassformer tokens`, which encodes a corpus into a file of ids, and `tokenize`, which shows the pieces of a text."""

from pathlib import Path

import click

from ..api.loading import load_tokenizer
from ..core.errors import ConfigError
from ..core.format import visible
from ..core.settings import check_known
from ..data.corpus import is_token_file, stream_text, text_files, write_tokens
from ..progress.display import waiting
from ..text import ByteTokenizer, PublishedTokenizer, pieces_of
from ..text.tokenizer import FAMILIES, LARGE, LARGE_SIZE, LEARNED, SIZE
from .commands import command
from .options import MODEL, PATH, json_option, text_argument, trust_option
from .output import log, plural, print_json, print_table


@command(
    "Train",
    "glassformer tokens notes.txt --out notes.tokens",
    "glassformer tokens notes.txt --out pieces.tokens --tokenizer bpe --tokenizer-size 400",
)
@click.argument("data", metavar="PATH", type=PATH, help="A text file, or a folder of them.")
@click.option("--out", type=PATH, metavar="FILE", required=True, help="Where to write: a new file for the ids.")
@click.option(
    "--tokenizer",
    metavar="NAME",
    default="auto",
    help="Tokenizer: auto, chars, bytes, bpe or wordpiece (auto: chars, and bpe from two million bytes on).",
)
@click.option(
    "--tokenizer-size",
    type=click.IntRange(1),
    help="Tokens that bpe or wordpiece learns (default: 512, and 4,096 from two million bytes on).",
)
@json_option
def tokens(data: Path, out: Path, tokenizer: str, tokenizer_size: int | None, json: bool) -> None:
    """Encode texts into a token file, which `train text --data FILE` maps into memory."""
    check_known("there is no tokenizer", tokenizer, FAMILIES)
    large = sum(file.stat().st_size for file in text_files(data)) >= LARGE
    family = tokenizer if tokenizer != "auto" else "bpe" if large else "chars"
    if tokenizer_size is not None and family not in LEARNED:
        raise ConfigError(f"--tokenizer-size has no meaning for {family}", hint="add --tokenizer bpe, or leave it out")
    if out.exists() or is_token_file(out):
        raise ConfigError(f"{out} exists already", hint="choose another --out, or remove it")
    size = tokenizer_size or (LARGE_SIZE if large else SIZE)
    with waiting(f"encoding {data}", compiles=False):
        known = LEARNED[family].train(stream_text(data), size=size) if family in LEARNED else None
        written = write_tokens(data, out, ByteTokenizer() if family == "bytes" else known)
    if json:
        print_json({"file": str(out), "tokens": len(written.ids), "vocab": written.tokenizer.size})
    else:
        print(f"{out}: {len(written.ids):,} tokens, a vocabulary of {written.tokenizer.size:,}")
        log(f"train on it with  glassformer train text --data {out}")


@command("Look inside", 'glassformer tokenize runs/text "The loop"', 'glassformer tokenize smollm2 "The loop"')
@click.argument("model", type=MODEL, help="A model of any kind, or a tokenizer.json.")
@text_argument("What to encode.")
@click.option("--specials", is_flag=True, help="Add the special tokens that the model expects around a text.")
@click.option("--parse-special", is_flag=True, help="Read names of special tokens in the text as those tokens.")
@json_option
@trust_option
def tokenize(model: str, text: str, specials: bool, parse_special: bool, json: bool) -> None:
    """Show the pieces and ids into which a model's tokenizer splits a text."""
    with waiting(f"reading {model}", compiles=False):
        tokenizer = load_tokenizer(model)
    if isinstance(tokenizer, PublishedTokenizer):
        pieces = tokenizer.pieces(text, specials=specials, parse_special=parse_special)
    elif specials or parse_special:
        fact = f"the {tokenizer.kind} tokenizer of {model} never turns text into special tokens"
        raise ConfigError(fact, hint="leave out --specials and --parse-special")
    else:
        pieces = pieces_of(tokenizer, text)
    special_ids = set(tokenizer.specials.values())
    if json:
        rows = [{"text": piece, "id": i, "special": i in special_ids} for piece, i in pieces]
        print_json({"tokenizer": tokenizer.kind, "size": tokenizer.size, "count": len(pieces), "pieces": rows})
        return
    cells = [(i, f"{piece}  (special)" if i in special_ids else visible(piece)) for piece, i in pieces]
    print_table((">id", "piece"), cells)
    log(f"{plural(len(pieces), 'token')}, {plural(len(text), 'character')}")
