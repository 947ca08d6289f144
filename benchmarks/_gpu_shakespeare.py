"""The part shakespeare of gpu_train.py: seconds until the loss over the validation part is low enough."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from _data import tinyshakespeare
from _gpu import GPT, TINY, device, say, synchronize
from glassformer.config import config_from_dict
from glassformer.core.execution import Execution
from glassformer.data.examples import Windows, count_targets
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.models import build
from glassformer.ops import IGNORE
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import start
from peers.twin import torch_optimizer, torch_twin

GOAL = 1.4697
"""nanoGPT's README gives this for the best validation loss of its settings for one GPU."""

EVERY = 100
"""Steps between evaluations over the whole validation part, on both sides."""

CHARACTERS = {**GPT, "vocab": 65, "context": 256, "width": 384, "heads": 6, "layers": 6}
OURS = {"positions": "rotary", "norm": "rms", "norm_bias": True, "dropout": 0.3, "attention_dropout": 0.0}
RECIPE: dict[str, Any] = {
    "steps": 1400,
    "batch": 64,
    "lr": 3e-3,
    "warmup": 100,
    "weight_decay": 0.3,
    "beta2": 0.99,
    "ema": 0.99,
    "eval_every": EVERY,
}
"""Chosen among nine by the loss on the same validation part."""


def shakespeare(args: argparse.Namespace) -> None:
    """Train both until the goal, one after the other."""
    sizes = {**CHARACTERS, **({**TINY, "context": 32} if args.tiny else {})}
    text = tinyshakespeare().read_text(encoding="utf-8")
    known = {character: number for number, character in enumerate(sorted(set(text)))}
    ids = np.asarray([known[character] for character in text])
    cut = int(0.9 * len(ids))
    train, held = (Windows(part, sizes["context"]) for part in (ids[:cut], ids[cut:]))
    for who, curve in (("glassformer", _our_curve), ("torch", _torch_curve)):
        reached, best, steps = None, math.inf, 0
        for steps, seconds, loss in curve(sizes, train, held, args):
            best = min(best, loss)
            say(part="shakespeare", what=f"{who}, on the way", step=steps, seconds=seconds, loss=loss)
            if reached is None and loss <= GOAL:
                reached = seconds
                break
        say(part="shakespeare", what=who, seconds_to_goal=reached, goal=GOAL, best=best, steps=steps)


def _our_curve(
    sizes: dict[str, Any], train: Windows, held: Windows, args: argparse.Namespace
) -> Iterator[tuple[int, float, float]]:
    model = build(config_from_dict({**sizes, **OURS, **args.model}))
    recipe = Recipe(**{**RECIPE, **args.recipe, **({"steps": 4, "eval_every": 2} if args.tiny else {})})
    training = JaxTrainer(model, recipe, Execution(precision="bfloat16"))
    first, _ = next(training_steps(training, train, training.put(start(model, recipe))))
    training.evaluate(first.params, held)  # all is compiled now
    state = training.put(start(model, recipe))
    began = time.perf_counter()
    for _, record in training_steps(training, train, state, evaluate=lambda params: training.evaluate(params, held)):
        if record.evaluation is not None:
            yield record.step, time.perf_counter() - began, record.evaluation.loss


def _torch_curve(
    sizes: dict[str, Any], train: Windows, held: Windows, args: argparse.Namespace
) -> Iterator[tuple[int, float, float]]:
    import torch

    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high")
    steps, every = (4, 2) if args.tiny else (5000, EVERY)
    twin = torch_twin(config_from_dict({**sizes, "dropout": 0.2})).to(device())
    _initialize(twin)
    model = twin if args.tiny else torch.compile(twin)
    optimizer = torch_optimizer(twin, lr=1e-3, beta2=0.99, weight_decay=0.1)
    text = torch.tensor(train.tokens)
    length = sizes["context"]

    def batch() -> tuple[Any, Any]:
        starts = torch.randint(len(text) - length, (64,))
        parts = (torch.stack([text[i + shift : i + shift + length] for i in starts.tolist()]) for shift in (0, 1))
        x, y = (part.pin_memory() if device() == "cuda" else part for part in parts)
        return x.to(device(), non_blocking=True), y.to(device(), non_blocking=True)

    def step() -> None:
        with torch.autocast(device(), torch.bfloat16):
            loss = model(*batch())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    kept = {name: p.detach().clone() for name, p in twin.state_dict().items()}
    step()
    _held_loss(twin, held)
    twin.load_state_dict(kept)
    optimizer = torch_optimizer(twin, lr=1e-3, beta2=0.99, weight_decay=0.1)
    synchronize()
    began = time.perf_counter()
    for number in range(steps):
        rate = 1e-3 * (number + 1) / 101 if number < 100 else 1e-4 + 0.45e-3 * (1 + math.cos(math.pi * number / steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        step()
        if (number + 1) % every == 0:
            loss = _held_loss(twin, held)
            yield number + 1, time.perf_counter() - began, loss


def _initialize(twin: Any) -> None:
    """Draw weights as nanoGPT does: those that end in the residual stream start smaller."""
    import torch

    for name, p in twin.named_parameters():
        if p.ndim >= 2:
            ends = name.endswith(("output.weight", "down.weight"))
            torch.nn.init.normal_(p, std=0.02 / math.sqrt(2 * len(twin.blocks)) if ends else 0.02)


def _held_loss(twin: Any, held: Windows) -> float:
    """Return the mean loss over all windows of the validation part, dropout off."""
    import torch

    twin.eval()
    total, targets = 0.0, 0
    with torch.no_grad(), torch.autocast(device(), torch.bfloat16):
        for rows in held.batches(64):
            logits = twin.logits(torch.tensor(rows.tokens, device=device())).float()
            answers = torch.tensor(rows.targets, device=device())
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), answers.flatten(), ignore_index=IGNORE, reduction="sum"
            )
            total, targets = total + loss.item(), targets + count_targets(rows)
    twin.train()
    return total / targets
