"""A training step of published layouts: SmolLM2 by adapters, BERT and T5, in turns with PyTorch, PEFT and JAX.

python benchmarks/published_step.py                           tables
python benchmarks/published_step.py --only lora --no-peers    one layout, this library alone
python benchmarks/published_step.py --json                    one JSON object; --help lists the other options

All contenders read the same folder of random weights, train on the same batches, and must find the same losses.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peers.machine import best_engine, takes_part
from peers.process import Process, Talk, call, compete
from peers.report import SECONDS, Bar, Check, Report, compared
from peers.show import main, talk
from peers.timing import Race

OURS, WHOLE = "glassformer", "glassformer, all weights"
EAGER, COMPILED, JAX = "PyTorch eager", "PyTorch compiled", "JAX jit"
PEFT, PEFT_COMPILED = "PyTorch PEFT", "PyTorch PEFT compiled"
PEERS = (EAGER, COMPILED, JAX, PEFT, PEFT_COMPILED)
LOSS_LIMITS = {"lora": 1e-4, "bert": 1e-4, "t5": 5e-4}
"""Allowed difference of the first losses, relative, in float32: in it, T5's gradients are 1% from those in float64."""

SETTINGS: dict[str, dict[str, Any]] = {
    "lora": {"preset": "smollm2-135m", "length": 128, "batch": 4},
    "bert": {"preset": "bert-base", "length": 128, "batch": 8},
    "t5": {"preset": "t5-small", "length": 128, "batch": 8},
}
WORDS = {
    "lora": "adapters of rank 8 on query and value, SmolLM2-135M, 128 tokens × 4",
    "bert": "BERT-base with its head of tokens, 128 tokens × 8",
    "t5": "T5-small, 128 tokens of source and of target × 8",
}
SPEED_BARS = {"lora": 1.1, "bert": 1.15, "t5": 1.15}
SHARE_BAR = 0.72
"""Of a step that trains all weights: one by adapters makes no gradients of these, a third of the products."""


def bench(*, peers: bool, seconds: float, layouts: Sequence[str] = (), talk: Talk = talk) -> Iterator[Report]:
    """Measure every layout, or those named."""
    for name in layouts or SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model")
            call("peers.published:write_model", {"folder": path, "preset": SETTINGS[name]["preset"]})
            yield step_time(name, path, peers=peers, seconds=seconds, talk=talk)


def step_time(name: str, path: str, *, peers: bool, seconds: float, talk: Talk) -> Report:
    """Let all contenders train the same model on the same batches, in turns."""
    notes: list[str] = []
    processes = contenders(name, path, peers=peers, notes=notes)
    result, ready = compete(processes, what=f"published/{name}", seconds=seconds, talk=talk, notes=notes)
    facts = {process.name: process.facts for process in ready.values()}
    baseline = result.fastest(PEERS) or OURS
    return Report(
        name=f"published/{name}",
        title=f"one training step: {WORDS[name]}",
        unit=SECONDS,
        ratio=f"× as fast as {baseline}",
        figures=compared(result, baseline),
        bars=bars(name, result, baseline),
        checks=[same_losses(facts, LOSS_LIMITS[name])],
        notes=notes,
        facts={**SETTINGS[name], "baseline": baseline},
    )


def contenders(name: str, path: str, *, peers: bool, notes: list[str]) -> list[Process]:
    """Return those that can run here; say in `notes` which cannot."""
    place = "peers.published"
    settings = {"path": path, **{key: SETTINGS[name][key] for key in ("length", "batch")}, "lora": name == "lora"}
    ours = {**settings, "engine": best_engine()}
    result = [Process(OURS, f"{place}:Ours", ours)]
    if name == "lora":
        result.append(Process(WHOLE, f"{place}:Ours", {**ours, "lora": False}))
    needed = ("torch", "transformers", *(("peft",) if name == "lora" else ()))
    if takes_part(*needed, peers=peers, notes=notes):
        names = (PEFT, PEFT_COMPILED) if name == "lora" else (EAGER, COMPILED)
        for peer, compiled in zip(names, (False, True), strict=True):
            result.append(Process(peer, f"{place}:Torch", {**settings, "compiled": compiled}))
    if takes_part("jax", peers=peers, notes=notes):
        result.append(Process(JAX, f"{place}:Jax", settings))
    return result


def bars(name: str, result: Race, baseline: str) -> list[Bar]:
    """Hold our step against the best peer's, and one by adapters against one that trains all weights."""
    found = []
    if baseline != OURS:
        speed = result.times_faster(OURS, baseline).median
        found.append(Bar(f"steps while {baseline} takes one", speed, SPEED_BARS[name]))
    if WHOLE in result.rounds:
        share = result.times_faster(WHOLE, OURS).median
        found.append(Bar("time by that of all weights", share, SHARE_BAR, at_most=True))
    return found


def same_losses(facts: dict[str, dict[str, Any]], limit: float) -> Check:
    """Compare the losses of the first steps; those of training all weights are others from the second on."""
    losses = [fact["losses"] for name, fact in facts.items() if name != WHOLE]
    error = max(max(column) / min(column) - 1 for column in zip(*losses, strict=False))
    return Check("first losses of all contenders, relative", error, limit)


if __name__ == "__main__":
    main(
        __doc__,
        lambda given: bench(peers=given.peers, seconds=given.seconds, layouts=given.only),
        parts=[*SETTINGS],
    )
