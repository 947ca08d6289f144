"""The part check of gpu_train.py: does the GPU compute what NumPy computes?"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import glassformer as gf
from _gpu import GPT, TINY, say
from glassformer.config import config_from_dict
from glassformer.core.execution import Execution
from glassformer.core.tree import flatten, tree_map
from glassformer.data.examples import Windows
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.models import Batch, build
from glassformer.training.loop import training_steps
from glassformer.training.recipe import Recipe
from glassformer.training.trainer import Trainer, start

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "decoder": {"positions": "rotary", "norm": "rms", "gated": True, "activation": "silu", "kv_heads": 2},
    "encoder": {"head": "classes", "classes": 3, "pooling": "cls"},
    "encoder-decoder": {"positions": "relative"},
}


def check(args: argparse.Namespace) -> None:
    """Compare what the GPU computes with NumPy; end with 1 if anything differs by more than its limit."""
    import jax

    worse = []

    def compare(what: str, error: float, limit: float) -> None:
        say(part="check", what=what, error=error, limit=limit)
        if not error <= limit:
            worse.append(what)

    for architecture, settings in ARCHITECTURES.items():
        with jax.enable_x64(True):
            error = _gradient_error(architecture, settings, np.float64)
        compare(f"{architecture}: loss and gradients, float64", error, 1e-10)
        with jax.default_matmul_precision("highest"):
            error = _gradient_error(architecture, settings, np.float32)
        compare(f"{architecture}: loss and gradients, float32", error, 1e-5)
    compare("losses of ten steps, float32", _step_error(Execution()), 1e-5)
    compare("losses of ten steps, scanned", _step_error(Execution(scan=True)), 1e-5)
    if jax.default_backend() == "gpu":
        compare("cuDNN's attention and its gradients, bfloat16", _attention_error(), 2e-2)
        compare("our kernels of norms, GELU and loss, bfloat16", _kernel_error(), 2e-2)
    if worse:
        raise SystemExit(f"not within the limit: {'; '.join(worse)}")


def _gradient_error(architecture: str, settings: dict[str, Any], kind: Any) -> float:
    """Return the largest difference to NumPy's float64, relative to each parameter's largest gradient.

    Where all gradients of a parameter nearly cancel, a hundredth of the largest of all counts in their place.
    """
    import jax

    sizes = {"vocab": 64, "width": 32, "heads": 4, "layers": 2, "context": 16}
    model = build(config_from_dict({"architecture": architecture, **sizes, **settings}))
    rng = np.random.default_rng(0)
    params = tree_map(lambda p: np.asarray(p, np.float64), model.init(0))
    tokens = rng.integers(0, 64, (4, 16))
    targets = rng.integers(0, 3, 4) if architecture == "encoder" else rng.integers(0, 64, (4, 16))
    source = rng.integers(0, 64, (4, 12)) if architecture == "encoder-decoder" else None
    batch = Batch(tokens, targets, source=source)
    with gf.use_engine("numpy"):
        loss, grads = model.loss_and_grads(params, batch)
    moved = jax.tree.map(jax.numpy.asarray, tree_map(lambda p: p.astype(kind), params))
    found, found_grads = jax.jit(model.loss_and_grads)(moved, tree_map(jax.numpy.asarray, batch))
    wanted = flatten(grads)
    floor = 0.01 * max(np.abs(want).max() for want in wanted.values())
    errors = [abs(float(found) - float(loss)) / abs(float(loss))]
    for name, have in flatten(found_grads).items():
        want = wanted[name]
        errors.append(float(np.abs(np.asarray(have) - want).max() / max(np.abs(want).max(), floor)))
    return max(errors)


def _step_error(execution: Execution) -> float:
    """Return by how much the losses of ten steps differ from those in NumPy."""
    model = build(config_from_dict({**GPT, "vocab": 64, "context": 32, **TINY, "dropout": 0.1}))
    recipe = Recipe(steps=10, batch=8, warmup=2)
    data = Windows(np.random.default_rng(0).integers(0, 64, 1000), 32)
    want = [record.loss for _, record in training_steps(Trainer(model, recipe), data, start(model, recipe))]
    training = JaxTrainer(model, recipe, execution)
    have = [record.loss for _, record in training_steps(training, data, training.put(start(model, recipe)))]
    return max(abs(a - b) for a, b in zip(have, want, strict=True))


def _attention_error() -> float:
    """Return by how much cuDNN's attention differs from ours in float32, relative to the largest number."""
    import jax

    from glassformer import ops
    from glassformer.engines.jax.attention import CudnnWeights

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((2, heads, 256, 64)).astype(np.float32) for heads in (4, 2, 2, 4)]
    half = [jax.numpy.asarray(x, jax.numpy.bfloat16) for x in arrays]
    pairs = (ops.attention, ops.attention_backward), (ops.attention_tiled, ops.attention_tiled_backward)

    def results(attend: Any, attend_back: Any, pattern: Any, q: Any, k: Any, v: Any, dy: Any) -> tuple[Any, list[Any]]:
        y, saved = attend(q, k, v, pattern=pattern)
        return saved, [y, *attend_back(dy, saved, pattern=pattern)[:3]]

    worst = 0.0
    for pattern in (ops.Pattern(), ops.Pattern(causal=True), ops.Pattern(causal=True, window=64)):
        with gf.use_engine("numpy"):
            record, want = results(*pairs[0], pattern, *arrays)
        for pair in pairs:
            saved, have = results(*pair, pattern, *half)
            if pair is pairs[0]:
                assert isinstance(saved.weights, CudnnWeights), "cuDNN's pair was not called"
                have, want = [*have, saved.weights.compute()], [*want, record.weights]
            for a, b in zip(have, want, strict=False):
                worst = max(worst, float(np.abs(np.asarray(a, np.float32) - b).max() / np.abs(b).max()))
    return worst


def _kernel_error() -> float:
    """Return by how much kernels for half precision differ from the ops in float32, relative to the largest number."""
    import jax

    from glassformer import ops

    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((2048, 768)).astype(np.float32) for _ in range(2))
    gamma, beta = (rng.standard_normal(768).astype(np.float32) for _ in range(2))
    logits, targets = rng.standard_normal((256, 50304)).astype(np.float32), rng.integers(0, 50304, 256)
    targets[3] = ops.IGNORE

    def results(x: Any, dy: Any, logits: Any, gamma: Any, beta: Any, targets: Any) -> list[Any]:
        y, saved = ops.layer_norm(x, gamma, beta)
        z, rms_saved = ops.rms_norm(x, gamma)
        u, gelu_saved = ops.gelu_tanh(x)
        loss, loss_saved = ops.cross_entropy(logits, targets)
        return [
            *(y, *ops.layer_norm_backward(dy, saved), z, *ops.rms_norm_backward(dy, rms_saved)),
            *(u, ops.gelu_tanh_backward(dy, gelu_saved), loss, ops.cross_entropy_backward(1.0, loss_saved)),
        ]

    half = [jax.numpy.asarray(array, jax.numpy.bfloat16) for array in (x, dy, logits)]
    have = jax.jit(results)(*half, *(jax.numpy.asarray(array) for array in (gamma, beta, targets)))
    rounded = [np.asarray(array, np.float32) for array in half]
    with gf.use_engine("numpy"):
        want = results(*rounded, gamma, beta, targets)
    return max(
        float(np.abs(np.asarray(a, np.float32) - b).max() / np.abs(b).max()) for a, b in zip(have, want, strict=True)
    )
