"""`glassformer tokens`: encode a corpus larger than memory into a file of token ids."""

from pathlib import Path

import click

from ..data.corpus import stream_text
from ..data.tokens import is_token_file, write_tokens
from ..errors import ConfigError
from ..settings import check_known
from ..text import ByteTokenizer, Tokenizer
from .options import PATH, json_option
from .output import log, print_json

FAMILIES = ("chars", "bytes", "bpe")
BPE_SIZE = 512


@click.command()
@click.argument("data", metavar="PATH", type=PATH, help="A text file, or a folder of them.")
@click.option("--out", type=PATH, metavar="FILE", required=True, help="Where to write the ids.")
@click.option("--tokenizer", default="chars", help="chars, bytes or bpe.")
@click.option(
    "--bpe-size",
    type=click.IntRange(257),
    help=f"Vocabulary of a byte-level BPE trained on the text (default: {BPE_SIZE}).",
)
@json_option
def tokens(data: Path, out: Path, tokenizer: str, bpe_size: int | None, json: bool) -> None:
    """Encode texts into a token file, which `train text --data FILE` maps into memory."""
    check_known("there is no tokenizer", tokenizer, FAMILIES)
    if bpe_size is not None and tokenizer != "bpe":
        raise ConfigError(f"--bpe-size has no meaning for {tokenizer}", hint="add --tokenizer bpe, or leave it out")
    if out.exists() or is_token_file(out):
        raise ConfigError(f"{out} exists already", hint="choose another --out, or remove it")
    written = write_tokens(data, out, _tokenizer(tokenizer, data, bpe_size or BPE_SIZE))
    if json:
        print_json({"file": str(out), "tokens": len(written.ids), "vocab": written.tokenizer.size})
    else:
        print(f"{out}: {len(written.ids):,} tokens, a vocabulary of {written.tokenizer.size:,}")
        log(f"train on it with  glassformer train text --data {out}")


def _tokenizer(family: str, data: Path, size: int) -> Tokenizer | None:
    """Return the tokenizer asked for; None builds one from the characters of the text."""
    if family == "chars":
        return None
    if family == "bytes":
        return ByteTokenizer()
    from ..text.bpe import BPETokenizer

    return BPETokenizer.train(stream_text(data), size=size)
