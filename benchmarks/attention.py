"""Attention forward and backward: dense, tiled, windowed and strided, in turns with PyTorch and JAX, and its memory.

python benchmarks/attention.py            tables
python benchmarks/attention.py --json     one JSON object; --help lists the other options
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glassformer.ops.attention_strided import beyond, neighborhood
from peers.attention_steps import WINDOW, pattern_of
from peers.machine import best_engine, takes_part
from peers.memory import UNKNOWN, is_told
from peers.process import Process, Talk, call, compete
from peers.report import BYTES, SECONDS, Bar, Check, Figure, Report, compared
from peers.show import main, talk
from peers.timing import Race, Spread

TORCH, JAX = "PyTorch", "JAX jit"
PEERS = {"torch": "Torch", "jax": "Jax"}
"""Other libraries' attention: what each needs, and the contender that it makes."""
NAMES = {
    "tiled": "glassformer tiled",
    "dense": "glassformer dense",
    "whole": "glassformer dense, mask computed",
    "window": f"glassformer window {WINDOW}",
    "strided": "glassformer strided √T",
    "torch": TORCH,
    "jax": JAX,
}
HEADS, CHANNELS = 4, 64
LENGTH = 4096
LENGTHS = {
    "dense": (1024, 2048, 4096),
    "tiled": (1024, 2048, 4096),
    "window": (2048, 4096, 8192, 16384),
    "strided": (2048, 4096, 8192, 16384),
    **dict.fromkeys(PEERS, (1024, 2048, 4096)),
}
SPEED_BAR, DENSE_BAR, MEMORY_BAR = 0.9, 1.0, 0.1
EXPONENT_BARS = {"window": 1.15, "strided": 1.65}
SAME = 1e-4
"""Allowed difference of results in float32, by the largest."""


@dataclass(frozen=True)
class Cost:
    """What attention of one example takes by its formulas, forward and backward.

    pairs    of a query and a key it sees, in all heads
    flops    2 · C per pair and product: q kᵀ and p v; then dy vᵀ, pᵀ dy, dscores k, dscoresᵀ q, and q kᵀ again in tiles
    bytes    of y, dq, dk and dv, and of the weights or the logarithms of their sums
    """

    pairs: int
    flops_forward: int
    flops_backward: int
    bytes: int


def cost(way: str, length: int, *, heads: int = HEADS, channels: int = CHANNELS, itemsize: int = 4) -> Cost:
    """Count what one way of attending costs."""
    seen = length * length if way == "whole" else visible(way, length)
    pairs, product = heads * seen, 2 * channels
    keeps_weights = way in ("dense", "whole")
    kept = heads * length * (length if keeps_weights else 1)
    return Cost(
        pairs=pairs,
        flops_forward=2 * product * pairs,
        flops_backward=(4 if keeps_weights else 5) * product * pairs,
        bytes=itemsize * (4 * heads * length * channels + kept),
    )


def visible(way: str, length: int) -> int:
    """Count the pairs of a query and a key that it sees."""
    pattern = pattern_of(way, length)
    if pattern.stride is None:
        return _spanned(pattern, length)
    sizes = [len(range(start, length, pattern.stride)) for start in range(min(pattern.stride, length))]
    return _spanned(neighborhood(pattern), length) + sum(_spanned(beyond(pattern), size) for size in sizes)


def _spanned(pattern: Any, length: int) -> int:
    first, last = pattern.spans(range(length), length)
    return int((last - first).sum())


def exponent(lengths: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the power of the length by which a time grows: the slope of log seconds over log length."""
    return float(np.polyfit(np.log(lengths), np.log(seconds), 1)[0])


def bench_attention(*, peers: bool, seconds: float, talk: Talk = talk) -> Iterator[Report]:
    """Measure causal attention at one length, the memory it takes, and how all ways grow with the length."""
    yield speed(peers=peers, seconds=seconds, talk=talk)
    yield memory(peers=peers, talk=talk)
    yield growth(peers=peers, seconds=seconds, talk=talk)


def speed(*, peers: bool, seconds: float, talk: Talk, length: int = LENGTH) -> Report:
    """Let tiled and dense attention and those of all peers attend at one length, in turns."""
    ways = dict.fromkeys(("tiled", "dense", "whole", *PEERS), (length,))
    result, facts, notes = run(ways, peers=peers, seconds=seconds, talk=talk, what=f"attention/{length}")
    tiled, dense = NAMES["tiled"], result.fastest([NAMES["dense"], NAMES["whole"]])
    assert dense is not None
    best = result.fastest([TORCH, JAX])
    baseline = dense if best is None else best
    bars = [Bar(f"{tiled}: steps while {dense} takes one", result.times_faster(tiled, dense).median, DENSE_BAR)]
    if best is not None:
        bars.append(Bar(f"{tiled}: steps while {best} takes one", result.times_faster(tiled, best).median, SPEED_BAR))
    return Report(
        name=f"attention/{length}",
        title=f"causal attention, forward and backward: {words(length)}",
        unit=SECONDS,
        ratio=f"× as fast as {baseline}",
        figures=compared(result, baseline),
        bars=bars,
        checks=[same_results(facts)],
        notes=notes,
        facts={"rows": rows(ways, result, facts)},
    )


def memory(*, peers: bool, talk: Talk, length: int = LENGTH, runs: int = 3) -> Report:
    """Measure by how much a fresh process grows in one step."""
    title = f"memory of causal attention, forward and backward: {words(length)}"
    if not is_told():
        return Report("attention/memory", title, BYTES, "", [], notes=[UNKNOWN])
    notes: list[str] = []
    talk("measuring: attention/memory")
    ways = present(("tiled", "dense", "whole", *PEERS), peers=peers, notes=notes)
    found = {NAMES[way]: Spread.of([grown_bytes(way, length) for _ in range(runs)]) for way in ways}
    dense = found[NAMES["dense"]]
    share = found[NAMES["tiled"]].median / dense.median
    return Report(
        name="attention/memory",
        title=title,
        unit=BYTES,
        ratio=f"of what {NAMES['dense']} takes",
        figures=[Figure(name, grew, Spread.of([grew.median / dense.median])) for name, grew in found.items()],
        bars=[Bar(f"{NAMES['tiled']}: share of the memory of {NAMES['dense']}", share, MEMORY_BAR, at_most=True)],
        notes=notes,
        facts={"counted_bytes": {NAMES[way]: cost(way, length).bytes for way in ways if way not in PEERS}},
    )


def growth(*, peers: bool, seconds: float, talk: Talk, lengths: Mapping[str, Sequence[int]] | None = None) -> Report:
    """Let every way attend at several lengths, and fit the power by which its time grows."""
    ways = LENGTHS if lengths is None else lengths
    result, facts, notes = run(ways, peers=peers, seconds=seconds, talk=talk, what="attention/growth")
    table = rows(ways, result, facts)
    exponents = {way: exponents_of(table, way) for way in ways if NAMES[way] in result.rounds and len(ways[way]) > 1}
    bars = [
        Bar(f"{NAMES[way]}: power of the length, {part}", exponents[way][part], bar, at_most=True)
        for way, bar in EXPONENT_BARS.items()
        for part in ("forward", "backward")
        if way in exponents
    ]
    return Report(
        name="attention/growth",
        title=f"attention, forward and backward, at growing lengths: {HEADS} heads of {CHANNELS}, float32",
        unit=SECONDS,
        ratio="",
        figures=[Figure(f"{row['name']}, {row['length']:,}", Spread(**row["seconds"])) for row in table],
        bars=bars,
        notes=notes,
        facts={"rows": table, "exponents": exponents},
    )


def words(length: int) -> str:
    """Return the sizes for people."""
    return f"{length:,} positions, {HEADS} heads of {CHANNELS}, float32"


def run(
    ways: Mapping[str, Sequence[int]], *, peers: bool, seconds: float, talk: Talk, what: str
) -> tuple[Race, dict[str, Any], list[str]]:
    """Let contenders take turns; return the times, what they found out, and who could not run."""
    notes: list[str] = []
    processes = []
    for way in present(ways, peers=peers, notes=notes):
        build, settings = contender(way)
        processes.append(Process(NAMES[way], build, {**settings, "lengths": list(ways[way])}))
    result, ready = compete(processes, what=what, seconds=seconds, talk=talk, notes=notes)
    return result, {name: process.facts for name, process in ready.items()}, notes


def present(ways: Iterable[str], *, peers: bool, notes: list[str]) -> list[str]:
    """Return those ways that can run here; say in `notes` which cannot."""
    return [way for way in ways if way not in PEERS or takes_part(way, peers=peers, notes=notes)]


def contender(way: str) -> tuple[str, dict[str, Any]]:
    """Return what makes a contender, and its settings but for the lengths."""
    place, sizes = "peers.attention_steps", {"heads": HEADS, "channels": CHANNELS}
    if way in PEERS:
        return f"{place}:{PEERS[way]}", sizes
    return f"{place}:Ours", {**sizes, "way": way, "engine": best_engine()}


def grown_bytes(way: str, length: int) -> int:
    """Return by how much a fresh process grows in one step."""
    build, settings = contender(way)
    return call("peers.attention_steps:grown", {"build": build, "settings": settings, "length": length})


def same_results(facts: dict[str, Any]) -> Check:
    """Compare some numbers of the results and gradients of all contenders."""
    first, *others = (np.asarray(fact["sample"]) for fact in facts.values())
    largest = np.max(np.abs(first), axis=-1)
    error = max((float(np.max(np.max(np.abs(other - first), axis=-1) / largest)) for other in others), default=0.0)
    return Check("results and gradients of all contenders, by their largest", error, SAME)


def rows(ways: Mapping[str, Sequence[int]], result: Race, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each way and length: what it costs by the formulas, and the seconds it took."""
    table = []
    for way, lengths in ways.items():
        if NAMES[way] not in result.rounds:
            continue
        count = result.seconds(NAMES[way]).count  # what came before was warming up
        passes = {part: dict(facts[NAMES[way]][part]) for part in ("forward", "backward")}
        for length in lengths:
            timed = {part: passes[part][length][-count:] for part in passes}
            timed["seconds"] = [sum(pair) for pair in zip(timed["forward"], timed["backward"], strict=True)]
            spreads = {part: asdict(Spread.of(seconds)) for part, seconds in timed.items()}
            costs = cost("tiled" if way in PEERS else way, length)
            rate = (costs.flops_forward + costs.flops_backward) / spreads["seconds"]["median"]
            row = {"way": way, "name": NAMES[way], "length": length, **asdict(costs), **spreads}
            table.append({**row, "flops_per_second": rate})
    return table


def exponents_of(table: list[dict[str, Any]], way: str) -> dict[str, float]:
    """Fit the powers by which the forward pass, the backward pass and both grow with the length."""
    own = [row for row in table if row["way"] == way]
    lengths = [row["length"] for row in own]
    parts = ("forward", "backward", "seconds")
    return {part: exponent(lengths, [row[part]["median"] for row in own]) for part in parts}


if __name__ == "__main__":
    main(__doc__, lambda given: bench_attention(peers=given.peers, seconds=given.seconds))
