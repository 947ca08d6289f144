"""Vectors of sentences: `embed` of MiniLM against transformers, which reads them sorted by length, in turns.

glassformer pull minilm
python benchmarks/embed.py             a table
python benchmarks/embed.py --json      one JSON object; --help lists the other options

300 sentences of 4 to 60 words, from a fixed seed; both cut them into tokens, read them, pool and normalize.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peers.machine import best_engine, takes_part
from peers.process import Process, Talk, compete
from peers.report import SECONDS, Bar, Check, Report, compared
from peers.show import main, talk

OURS = "glassformer"
BATCHES = (8, 32)
"""Sentences that transformers reads together: sentence-transformers takes 32; fewer are padded less."""
SPEED_BAR, LIMIT = 1.4, 1e-5


def bench(*, peers: bool, seconds: float, talk: Talk = talk) -> Iterator[Report]:
    """Let both embed the same sentences, in turns."""
    notes: list[str] = []
    processes = [Process(OURS, "peers.embedders:Ours", {"engine": best_engine()})]
    if takes_part("torch", "transformers", peers=peers, notes=notes):
        for batch in BATCHES:
            processes.append(Process(f"transformers, {batch}", "peers.embedders:HuggingFace", {"batch": batch}))
    result, ready = compete(processes, what="embed", seconds=seconds, talk=talk, notes=notes)
    baseline = result.fastest([name for name in ready if name != OURS]) or OURS
    vectors: Any = {name: np.array(process.facts["vectors"]) for name, process in ready.items()}
    error = max(float(np.abs(found - vectors[OURS]).max()) for found in vectors.values())
    speed = result.times_faster(OURS, baseline).median
    yield Report(
        name="embed",
        title="vectors of 300 sentences of 4 to 60 words, MiniLM",
        unit=SECONDS,
        ratio=f"× as fast as {baseline}",
        figures=compared(result, baseline),
        bars=[Bar(f"times while {baseline} needs one", speed, SPEED_BAR)] if baseline != OURS else [],
        checks=[Check("vectors of all contenders", error, LIMIT)],
        notes=notes,
    )


if __name__ == "__main__":
    main(__doc__, lambda given: bench(peers=given.peers, seconds=given.seconds))
