"""Command lines that nobody should type: real ones with words replaced, added, doubled and left out."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
import shutil
import sys
from pathlib import Path

from .mutate import spoiled_text
from .trial import LostError, demand, described

# `RUN`, `TEXT` and `CORPUS` stand for a classifier's run, a language model's and a file of text; NEW for a new name.
LINES = (
    "params gpt2", "params tiny-decoder --length 8 --dtype float16 --json", "params gpt2 --set width=96 --set heads=3",
    "plan gpt2 --mesh data=2,fsdp=2 --device-memory 8GB", "plan tiny-decoder --batch 4 --json", "settings text",
    "settings --json", "settings recipe", "tasks --json", "models", "runs", "runs . --json", "compare RUN TEXT",
    "compare RUN RUN --json", "tokenize TEXT abc", "tokenize TEXT abc --json", "predict RUN 00112220",
    "predict TEXT ab --top 3 --json", "eval RUN --json", "eval TEXT --checkpoint latest",
    "generate TEXT a --max-new-tokens 3 --temperature 0",
    "generate TEXT a --max-new-tokens 3 --top-k 3 --top-p 0.9 --min-p 0.1 --seed 1 --stop b",
    "generate TEXT a --max-new-tokens 3 --beams 2 --length-penalty 0.6", "chat TEXT --max-new-tokens 2",
    "train majority --set width=8 --set heads=2 --set layers=1 --steps 2 --out NEW", "train --resume RUN",
    "train lines --data CORPUS --set width=8 --set heads=2 --set layers=1 --steps 1 --out NEW",
    "tokens CORPUS --out NEW", "tokens CORPUS --out NEW --tokenizer bpe --tokenizer-size 300", "export TEXT NEW",
    "export TEXT NEW.gguf", "embed RUN a b", "train majority --engine numpy --seed 1 --steps 1 --json --out NEW",
    "--version", "--help", "train --help",
)  # fmt: skip
WORDS = (
    "", "-", "--", "-h", "--json", "0", "-1", "1", "3", "0.5", "-0.5", "nan", "inf", "-inf", "1e308", "-3000",
    "1e-320", "2147483648", "9223372036854775808", "1" * 400, "x", "é", "🦊", "\udc80", "a" * 300, "/dev/null",
    "/nonexistent/x", "..", ".", "RUN", "TEXT", "CORPUS", "NEW", "[]", "{}", "null", "[" * 5000, '{"a": 1}', "=", "a=",
    "=1", "width=0", "heads=3", "width=1e3", "layers=-1", "batch=100000000000", "width=100000000000",
    "vocab=2147483648", "lr=nan", "lr=-1", "context=0", "positions=x", "norm=none", "dropout=1", "seed=-1",
    "optimizer=sgd", "ema=2", "clip=-1", "digits=3", "data=2", "data=0", "fsdp=3,tensor=x", "data=99999999999", "8GB",
    "-8GB", "float99", "cpu", "numpy", "hf:x/y/z", "hf:", "gpt2", "majority", "latest", "best",
)  # fmt: skip
OPTIONS = (
    "--set", "--steps", "--seed", "--out", "--data", "--preset", "--from", "--lora", "--resume", "--engine", "--mesh",
    "--precision", "--scan", "--rules", "--coordinator", "--processes", "--process", "--json",
    "--temperature", "--top-k", "--top-p", "--min-p", "--beams", "--length-penalty", "--repetition-penalty",
    "--frequency-penalty", "--presence-penalty", "--stop", "--weights", "--max-new-tokens", "--truncate", "--no-slide",
    "--checkpoint", "--format", "--length", "--dtype", "--batch", "--tokenizer", "--tokenizer-size", "--top",
    "--tensorboard", "--task", "--system", "--unknown",
)  # fmt: skip
LONG = {"--max-new-tokens", "--steps", "--tokenizer-size", "--beams", "--length"}
"""Options that may ask for hours of honest work: their numbers stay small."""
CODES = (0, 1, 2, 130)


def command_line(rng: random.Random) -> list[str]:
    """Return a command line with one to three slips."""
    words = rng.choice(LINES).split()
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(words) + 1)
        match rng.randrange(6):
            case 0 if words:
                del words[place - 1]
            case 1:
                words[place:place] = [rng.choice(OPTIONS), rng.choice(WORDS)]
            case 2 if words:
                words[place - 1] = rng.choice(WORDS)
            case 3 if words:
                words.insert(place, words[place - 1])
            case 4 if words:
                words[place - 1] = spoiled_text(words[place - 1], rng, ("-", "=", ",", "é"))
            case _:
                words.insert(place, rng.choice(WORDS))
    return _bounded(words)


def _bounded(words: list[str]) -> list[str]:
    """Keep what asks for much work small; leave out what would fetch something or wait for other machines."""
    kept = [words[0]] if words else []
    for before, word in itertools.pairwise(words):
        much = before in LONG and word.lstrip("-").isdigit() and int(word[:6].lstrip("-") or 0) > 9
        kept.append("9" if much else word)
    # No shell can pass a zero byte on.
    kept = [word.replace("\0", "") for word in kept]
    return [word for word in kept if word not in ("demo", "bench", "check", "pull", "verify", "inspect")]


def attempt(shared: Path, own: Path, rng: random.Random) -> None:
    """Type one line; a command must end with a sentence and a code, never with a trace."""
    from glassformer.cli import main
    from glassformer.core import dispatch

    for name in ("runs", "data", "txt"):
        if (shared / name).exists():
            shutil.copytree(shared / name, own / name)
    places = {"RUN": "runs/majority", "TEXT": "runs/lines", "CORPUS": "txt/corpus.txt", "NEW": "new/one"}
    line = [places.get(word, word.replace("NEW", "new/one")) for word in command_line(rng)]
    said, before, here = io.StringIO(), sys.argv, os.getcwd()
    engine, stdin = dispatch._default, sys.stdin
    code: object = 0
    try:
        os.chdir(own)
        sys.argv, sys.stdin = ["glassformer", *line], io.TextIOWrapper(io.BytesIO(b"hello\n/exit\n"))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            main()
    except SystemExit as leave:
        code = leave.code or 0
    except Exception as error:
        raise LostError(f"{described(error)} after glassformer {' '.join(map(repr, line))[:300]}") from error
    finally:
        os.chdir(here)
        sys.argv, sys.stdin, dispatch._default = before, stdin, engine
    words = f"glassformer {' '.join(map(repr, line))[:300]}"
    demand(code in CODES, f"{words} ended with {code!r}")
    demand("Traceback" not in said.getvalue(), f"{words} printed a trace")
    demand(
        # Without a word, the help is the answer.
        code in (0, 130) or "error: " in said.getvalue() or not said.getvalue() or not line,
        f"{words} said {said.getvalue()[:99]}",
    )
