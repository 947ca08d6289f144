"""What must never take long, each held against its limit: refusals, plans, tokens of strange texts, a task.

    python benchmarks/limits.py            a table
    python benchmarks/limits.py --json     one JSON object per row

Each row is the best of three, because other processes only ever add time. The exit status is 1 if one is too slow.
How long imports and commands take is measured by benchmarks/startup.py.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from glassformer.core.errors import GlassformerError
from glassformer.core.execution import MeshShape
from glassformer.data import build_task
from glassformer.data.tasks.dates import writings
from glassformer.engines.mesh.plan import plan
from glassformer.models import preset
from glassformer.models.costs import costs
from glassformer.text.chat import render_chat
from glassformer.text.learned import BPETokenizer
from glassformer.text.symbols import ByteTokenizer, CharTokenizer
from glassformer.weights.tensors import read_header

MEGABYTE = 2**20
HELLO = {"role": "user", "content": "Hello"}
UNITS = ("a", " ", "\n", "ab", "1", "!?", "é", "😀")
ENDLESS = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% set line = 'x' * 100000 %}{% for i in range(1000) %}{{ line }}{% endfor %}",
    "{% set ns = namespace(x=3) %}{% for i in range(64) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
)

Row = tuple[str, float, Callable[[], object]]


def counted() -> Iterator[Row]:
    """GPT-3, of which nothing is allocated."""
    gpt3 = preset("gpt3", vocab=50304)
    yield "the costs of GPT-3", 1.0, partial(costs, gpt3)
    yield "a plan of GPT-3 on 4,096 devices", 1.0, partial(plan, gpt3, MeshShape(8, 64, 8), batch=1024)


def built() -> Iterator[Row]:
    """The task whose examples are written in more than thirty languages."""

    def dates() -> object:
        writings.cache_clear()
        return build_task("dates")

    yield "the task dates, built afresh", 3.0, dates


def tokenized() -> Iterator[Row]:
    """A megabyte of one word: what tokenizers take quadratic time for unless they are careful."""
    for unit in UNITS:
        text = unit * (MEGABYTE // len(unit.encode()))
        bpe = BPETokenizer.train([(unit * 100 + " ") * 20, "the quick brown fox"], size=300)
        for name, tokenizer in (("chars", CharTokenizer(unit)), ("bytes", ByteTokenizer()), ("bpe", bpe)):
            yield f"a megabyte of {unit!r} as {name}", 2.0, partial(tokenizer.encode, text)


def refused(folder: Path) -> Iterator[Row]:
    """Files and templates that someone else wrote."""
    huge = folder / "huge.safetensors"
    with huge.open("wb") as file:
        file.write(struct.pack("<Q", 1 << 33))
        file.truncate(1 << 34)  # a sparse file: it takes no room on the disk
    yield "a header of 8 GB, refused", 1.0, partial(read_header, huge)
    deep = folder / "deep.safetensors"
    header = b'{"a":' + b"[" * 100_000
    deep.write_bytes(struct.pack("<Q", len(header)) + header)
    yield "a header of 100,000 brackets, refused", 1.0, partial(read_header, deep)
    for number, template in enumerate(ENDLESS):
        yield f"endless template {number}, stopped", 20.0, partial(render_chat, template, [HELLO])


def best_of_three(action: Callable[[], object]) -> float:
    """Return the fewest seconds; to be refused is to be done."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        with suppress(GlassformerError):
            action()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> int:
    """Measure every row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    as_json = parser.parse_args().json
    late = 0
    with tempfile.TemporaryDirectory() as name:
        for rows in (counted(), built(), tokenized(), refused(Path(name))):
            for what, limit, action in rows:
                seconds = best_of_three(action)
                late += seconds > limit
                if as_json:
                    print(json.dumps({"what": what, "seconds": round(seconds, 4), "limit": limit}), flush=True)
                else:
                    verdict = "" if seconds <= limit else "  TOO SLOW"
                    print(f"{what:45} {seconds:8.3f} s  (at most {limit:g}){verdict}", flush=True)
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
