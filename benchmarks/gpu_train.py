"""Training on one GPU: whether it is exact, how fast it is, and PyTorch beside it, in one call.

    python benchmarks/gpu_train.py                    everything
    python benchmarks/gpu_train.py --only gpt2        one part: check, gpt2 or shakespeare; check needs no PyTorch
    python benchmarks/gpu_train.py --tiny             the same on tiny models, to try it out, also on a CPU

check          loss and gradients of the three architectures against NumPy in float64; ten steps in float32;
               cuDNN's attention against ours
gpt2           tokens per second of GPT-2 (--size) as nanoGPT trains it (vocabulary 50,304, length 1,024, no biases,
               bfloat16 beside float32 weights, AdamW, clipping), in turns with PyTorch: torch.compile, flash
               attention, fused AdamW; and the share of the rate at which this GPU multiplies matrices
shakespeare    seconds until the loss over the whole validation part of tinyshakespeare's characters is at most 1.4697
               with 6 layers of width 384, length 256, batches of 64: nanoGPT's settings in PyTorch, our recipe here

Prints one JSON object per line. Compilation is outside all times and reported beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs room as well

import jax
import numpy as np

from _gpu import GPT, TINY, device, say, synchronize
from _gpu_check import check
from _gpu_shakespeare import shakespeare
from glassformer.config import config_from_dict
from glassformer.core.execution import Execution
from glassformer.core.tree import tree_map
from glassformer.data.examples import Windows
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.models import build
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import start
from peers.twin import torch_optimizer, torch_twin

GPT2 = {**GPT, "vocab": 50304, "context": 1024}
SIZES = {"124M": {"width": 768, "heads": 12, "layers": 12}, "350M": {"width": 1024, "heads": 16, "layers": 24}}


def gpt2(args: argparse.Namespace) -> None:
    """Time steps in turns with PyTorch."""
    sizes = {**TINY, "vocab": 512, "context": 64} if args.tiny else SIZES[args.size]
    config = config_from_dict({**GPT2, **sizes})
    peak = _matrix_rate(args)
    say(part="gpt2", what="matrix product, bfloat16", teraflops=peak / 1e12)
    for batch in args.batch:
        contenders: dict[str, Callable[[int], float]] = {}
        facts: dict[str, dict[str, Any]] = {}
        for name in args.contenders:
            make = _torch_steps if name == "torch" else _jax_steps
            contenders[name], facts[name] = make(config, batch, name, args)
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(args.rounds):
            for name, run in contenders.items():
                times[name].append(run(args.steps) / args.steps)
        base = times.get("torch")
        for name, seconds in times.items():
            each = statistics.median(seconds)
            rate = batch * config.context / each
            ratios = sorted(b / s for b, s in zip(base, seconds, strict=True)) if base else []
            say(
                part="gpt2",
                what=name,
                size="tiny" if args.tiny else args.size,
                batch=batch,
                ratio_to_torch=statistics.median(ratios) if ratios else None,
                ratio_low_high=[ratios[0], ratios[-1]] if ratios else None,
                tokens_per_second=rate,
                milliseconds=1e3 * each,
                share_of_matrix_rate=rate * _flops_per_token(config) / peak,
                **facts[name],
            )


def _flops_per_token(config: Any) -> float:
    """Return 6 N + 12 L D T: what the products of a step cost for every token, as nanoGPT counts it."""
    blocks = 12 * config.layers * config.width**2
    return 6 * (blocks + config.vocab * config.width) + 12 * config.layers * config.width * config.context


def _matrix_rate(args: argparse.Namespace) -> float:
    """Return the FLOP/s of a large bfloat16 product in PyTorch."""
    import torch

    size = 256 if args.tiny else 8192
    a, b = (torch.randn(size, size, device=device(), dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(8):
        synchronize()
        began = time.perf_counter()
        for _ in range(5):
            a @ b
        synchronize()
        seconds.append((time.perf_counter() - began) / 5)
    return 2 * size**3 / statistics.median(seconds[2:])


def _torch_steps(
    config: Any, batch: int, name: str, args: argparse.Namespace
) -> tuple[Callable[[int], float], dict[str, Any]]:
    import torch

    torch.set_float32_matmul_precision("high")
    twin = torch_twin(config).to(device())
    model = twin if args.tiny else torch.compile(twin)
    optimizer = torch_optimizer(twin, lr=1e-4, beta2=0.95, weight_decay=0.1)
    ids = torch.randint(config.vocab, (2, batch, config.context), device=device())

    def run(steps: int) -> float:
        synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            with torch.autocast(device(), torch.bfloat16):
                loss = model(ids[0], ids[1])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        synchronize()
        return time.perf_counter() - began

    warm = run(3)
    memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    return run, {"first_steps_seconds": warm, "memory_bytes": memory, "version": torch.__version__}


def _jax_steps(
    config: Any, batch: int, name: str, args: argparse.Namespace
) -> tuple[Callable[[int], float], dict[str, Any]]:
    import jax

    words = name.split("-")[1:]
    execution = Execution(precision="bfloat16", scan="scan" in words, remat="remat" in words)
    recipe = Recipe(steps=1000, batch=batch, lr=1e-4, beta2=0.95, weight_decay=0.1)
    training = JaxTrainer(build(config), recipe, execution)
    data = Windows(np.random.default_rng(0).integers(0, config.vocab, 4 * batch * config.context), config.context)
    state = training.put(start(training.model, recipe))
    ids = tree_map(jax.numpy.asarray, training.batch(data, 0))

    def run(steps: int) -> float:
        nonlocal state
        jax.block_until_ready(state.params)
        began = time.perf_counter()
        for _ in range(steps):
            state, _ = training.step(state, ids, 1e-4)
        jax.block_until_ready(state.params)
        return time.perf_counter() - began

    warm = run(3)
    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return run, {"first_steps_seconds": warm, "memory_bytes": memory, "version": jax.__version__}


PARTS = {"check": check, "gpt2": gpt2, "shakespeare": shakespeare}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--batch", nargs="+", type=int, default=[32, 64], help="batches of GPT-2")
    parser.add_argument("--size", choices=SIZES, default="124M", help="of GPT-2")
    parser.add_argument("--contenders", nargs="+", default=["torch", "jax"], help="torch, jax, jax-scan, jax-remat, …")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="steps of GPT-2 in each round")
    parser.add_argument("--model", type=json.loads, default={}, help="changes of our model of tinyshakespeare, as JSON")
    parser.add_argument("--recipe", type=json.loads, default={}, help="changes of our recipe, as JSON")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    alone = args.only == ["check"]  # which needs no PyTorch
    if not args.tiny and (jax.default_backend() if alone else device()) == "cpu":
        print("gpu_train.py needs a GPU; --tiny tries it out without one")
        return
    if args.tiny:
        args.batch, args.rounds, args.steps = [2], 2, 2
    for name in args.only:
        PARTS[name](args)


if __name__ == "__main__":
    main()
