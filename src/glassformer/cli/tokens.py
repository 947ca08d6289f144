"""`glassformer tokens`: a corpus larger than memory as a file of token ids."""

from pathlib import Path
from typing import Annotated

import typer

from ..data.corpus import stream_text
from ..data.tokens import is_token_file, write_tokens
from ..errors import ConfigError
from ..settings import check_known
from ..text import ByteTokenizer, Tokenizer
from .output import JsonOption, console, print_json

FAMILIES = ("chars", "bytes", "bpe")
BPE_SIZE = 512


def tokens(
    data: Annotated[Path, typer.Argument(metavar="PATH", help="A text file, or a folder of them.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the ids.")],
    tokenizer: Annotated[str, typer.Option(help="chars, bytes or bpe.")] = "chars",
    bpe_size: Annotated[
        int | None, typer.Option(min=257, help="Tokens of a byte-level BPE trained on the text (default: 512).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Encode texts into a file that `train text --data FILE` maps into memory, however large it is."""
    check_known("there is no tokenizer", tokenizer, FAMILIES)
    if bpe_size is not None and tokenizer != "bpe":
        raise ConfigError(f"--bpe-size has no meaning for {tokenizer}", hint="add --tokenizer bpe, or leave it out")
    if out.exists() or is_token_file(out):
        raise ConfigError(f"{out} exists already", hint="choose another --out, or remove it")
    written = write_tokens(data, out, _tokenizer(tokenizer, data, bpe_size or BPE_SIZE))
    if json:
        print_json({"file": str(out), "tokens": len(written.ids), "vocab": written.tokenizer.size})
    else:
        size = f"{len(written.ids):,} tokens, a vocabulary of {written.tokenizer.size:,}"
        console().print(f"{out}: {size}\ntrain on it with  glassformer train text --data {out}", markup=False)


def _tokenizer(family: str, data: Path, size: int) -> Tokenizer | None:
    """Return the tokenizer asked for; None lets the characters of the text decide."""
    if family == "chars":
        return None
    if family == "bytes":
        return ByteTokenizer()
    from ..text.bpe import BPETokenizer

    return BPETokenizer.train(stream_text(data), size=size)
