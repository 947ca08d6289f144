"""How long it takes to look into a published model: SmolLM2-135M, 32 tokens.

    python benchmarks/looking_inside.py              # each a few times, the fastest counts
    python benchmarks/looking_inside.py --ablation   # every head silenced, one at a time, as well

The lens reads 61 points of the stream at 32 positions: a product with the head of 110 billion multiplications and
additions. `the product alone` is that product and nothing else, so what no program can go below.
"""

import argparse
import time

import numpy as np

import glassformer as gf
from glassformer.interpret import ablate_heads, lens, unpacked, watch, zero

TOKENS = 32
TIMES = 5


def timed(name, compute, times=TIMES):
    """Print how long something takes at best, and return what it returned."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        found = compute()
        best = min(best, time.perf_counter() - began)
    print(f"{name:48} {best:7.2f} s", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ablation", action="store_true", help="silence all heads, one at a time, as well")
    ablation = parser.parse_args().ablation
    loaded = gf.load("smollm2")
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
    if ablation:
        found = timed("all heads silenced, one at a time", lambda: ablate_heads(run), 1)
        print(f"{len(found.parts)} heads, {found.bytes / 1e6:,.0f} MB at once")


if __name__ == "__main__":
    main()
