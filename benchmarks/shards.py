"""From which size on a batch in shards, one per core, is faster than matrix products of several threads.

python benchmarks/shards.py

`parallel.cores.WORTHWHILE` is set where the ratio passes one.
"""

import time
from functools import partial

import numpy as np

from glassformer import Batch, DecoderConfig, build
from glassformer.core.threads import cores
from glassformer.engines.cpu.trainer import loss_and_grads
from glassformer.models.costs import flops_per_token
from peers.timing import race

SIZES = [(32, 8, 32), (32, 8, 128), (64, 32, 16), (64, 64, 16), (128, 64, 12), (256, 128, 8)]  # width, T, B
SECONDS = 8


class Steps:
    """Losses and gradients of one batch, over and over, in so many shards."""

    def __init__(self, name, run):
        self.name, self.once = name, run

    def run(self, steps):
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self.once()
            seconds.append(time.perf_counter() - began)
        return seconds


def main():
    print(f"{'width':>5} {'T':>4} {'B':>4} {'FLOPs/shard':>12} {'threads':>10} {'shards':>10} {'shards are':>12}")
    for width, length, batch in SIZES:
        config = DecoderConfig(vocab=65, width=width, heads=4, layers=2, context=length)
        model = build(config)
        params = model.init(0)
        rng = np.random.default_rng(0)
        rows = Batch(*(rng.integers(0, 65, (batch, length)) for _ in range(2)))
        step = partial(loss_and_grads, model, params, rows)
        contenders = [Steps("threads", partial(step, shards=1)), Steps("shards", partial(step, shards=cores()))]
        result = race(contenders, seconds=SECONDS)
        flops = 3 * flops_per_token(config, length) * length * batch / cores()
        times = [f"{1e3 * result.median(name):7.2f} ms" for name in ("threads", "shards")]
        ratio = result.times_faster("shards", "threads").median
        print(f"{width:5} {length:4} {batch:4} {flops:12.1e} {times[0]:>10} {times[1]:>10} {ratio:8.2f} x faster")


if __name__ == "__main__":
    main()
