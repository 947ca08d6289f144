"""How long it takes to look into a published model: SmolLM2-135M, 32 tokens.

    python benchmarks/looking_inside.py              # each a few times, the fastest counts
    python benchmarks/looking_inside.py --ablation   # every head silenced, one at a time, as well
    python benchmarks/looking_inside.py --writing    # only: how fast it writes with a change, and without

The lens reads 61 points of the stream at 32 positions: a product with the head of 110 billion multiplications and
additions. `the product alone` is that product and nothing else, so what no program can go below.
"""

import argparse
import statistics
import time

import numpy as np

import glassformer as gf
from glassformer.interpret import ablate_heads, add, lens, unpacked, watch, zero

TOKENS = 32
TIMES = 5
PROMPT, NEW, PAIRS = "Once upon a time, in a village in the mountains,", 96, 11


def timed(name, compute, times=TIMES):
    """Print how long something takes at best, and return what it returned."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        found = compute()
        best = min(best, time.perf_counter() - began)
    print(f"{name:48} {best:7.2f} s", flush=True)
    return found


def writing(model):
    """Print the ratio of the speeds with and without one change, by pairs in turns, over the tokens written."""
    vector = np.random.default_rng(0).normal(size=model.config.width) / 10
    middle = model.config.layers // 2
    kinds = {
        "without a change": {},
        f"add to the stream after block {middle}": {"changes": [add(f"blocks.{middle}", vector)]},
        f"silence a head of block {middle}": {"changes": [zero(f"blocks.{middle}.attention.output.x", head=1)]},
    }
    speeds = {name: [] for name in kinds}
    for turn in range(PAIRS + 1):
        for name, changes in kinds.items():
            began = time.perf_counter()
            ids = model.generate(PROMPT, max_new_tokens=NEW, temperature=0, **changes).ids
            if turn:  # the first turn warms up
                speeds[name].append(len(ids) / (time.perf_counter() - began))
    plain, *_ = speeds.values()
    for name, own in speeds.items():
        shares = sorted(one / other for one, other in zip(own, plain, strict=True))
        speed, share = statistics.median(own), statistics.median(shares)
        print(f"{name:36} {speed:6.1f} tokens/s, {share:.3f} ({shares[0]:.3f} to {shares[-1]:.3f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablation", action="store_true", help="silence all heads, one at a time, as well")
    parser.add_argument("--writing", action="store_true", help="measure only how fast it writes with a change")
    asked = parser.parse_args()
    loaded = gf.load("smollm2")
    if asked.writing:
        gf.use_engine("cpu")
        writing(loaded)
        return
    model, config = loaded.model, loaded.config
    tokens = np.random.default_rng(0).integers(0, config.vocab, (1, TOKENS))
    batch = gf.Batch(tokens, np.roll(tokens, -1))
    params = timed("unpack the parameters, once", lambda: unpacked(loaded.params), 2)
    run = timed("watch", lambda: watch(model, params, batch))
    timed("changed in the first block", lambda: run.changed(zero("blocks.0.attention.output.x", head=1)))
    middle = f"blocks.{config.layers // 2}.attention.output.x"
    timed("changed in the middle", lambda: run.changed(zero(middle, head=1)))
    timed("lens, last position, with the likeliest tokens", lambda: lens(run, positions=-1).top(3))
    seen = timed(f"lens, all {TOKENS} positions", lambda: lens(run), 3)
    x = np.zeros((len(seen.points) * TOKENS, config.width), np.float32)
    table = params["embedding"]["tokens"]["table"]
    timed("  the product alone", lambda: x @ table.T, 3)
    del seen
    timed(f"lens, all {TOKENS} positions, with the likeliest", lambda: lens(run).top(3), 2)
    if asked.ablation:
        found = timed("all heads silenced, one at a time", lambda: ablate_heads(run), 1)
        print(f"{len(found.parts)} heads, {found.bytes / 1e6:,.0f} MB at once")


if __name__ == "__main__":
    main()
