"""The checks that catch most mistakes. Each takes less than a second and needs no trained model.

A check returns a `Finding`: whether all is well, and the number that says so. Most compare two ways to the
same numbers: what a mistake breaks in one of them, it does not break in the other.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..config import DecoderConfig, EncoderConfig, EncoderDecoderConfig
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.tree import map_named
from ..data.examples import Windows
from ..generation.sampling import Sampling, distribution
from ..generation.writer import beam_search
from ..layers import Attention
from ..models import Batch, build
from ..proofs import layer_cases, model_cases, op_cases, prove_case
from ..training.optimizers import Adam, AdamW
from ..training.recipe import Recipe
from ..training.trainer import Trainer

CLOSE = 1e-9
SIZES: dict[str, Any] = {"vocab": 9, "context": 8, "width": 8, "heads": 2, "layers": 2}


class Finding(NamedTuple):
    """The result of a check."""

    ok: bool
    evidence: str


def gradients(row: str) -> Finding:
    """Compare the gradients of a row of `glassformer check` with numeric derivatives."""
    for make in (op_cases, layer_cases, model_cases):
        named = [case for case in make() if case.name.partition(",")[0] == row]
        for case in named:
            check = prove_case(case)
            if not check.ok:
                return Finding(False, f"{case.name}: the gradient is off by {check.error:.1e}")
        if named:
            return Finding(True, f"{len(named)} gradients agree to {check.limit:.0e}")
    raise ConfigError(f"`glassformer check` has no row {row!r}", hint="take a name that it prints")


def causality() -> Finding:
    """Change the last token: no logit before it may move."""
    model, params = _model(DecoderConfig(**SIZES))
    tokens = np.array([1, 4, 2, 7, 3])
    moved = _difference(_logits(model, params, tokens)[:-1], _logits(model, params, [*tokens[:-1], 8])[:-1])
    return Finding(moved < CLOSE, f"another last token moves earlier logits by {moved:.1e}")


def padding() -> Finding:
    """Pad a sequence: nothing about its own tokens may change."""
    own, padded = np.array([1, 4, 2]), np.array([5, 5, 1, 4, 2])
    mask, positions = np.array([False, False, True, True, True]), np.array([0, 0, 0, 1, 2])
    found = []
    for scheme in ("learned", "rotary"):
        model, params = _model(DecoderConfig(**SIZES, positions=scheme))
        alone = _logits(model, params, own)
        found.append(_difference(alone, _logits(model, params, padded, mask=mask, positions=positions)[2:]))
    model, params = _model(EncoderConfig(**SIZES, classes=3))
    right = np.array([True, True, True, False, False])
    found.append(_difference(_logits(model, params, own), _logits(model, params, [1, 4, 2, 5, 5], mask=right)))
    model, params = _model(EncoderDecoderConfig(**SIZES))
    alone = _logits(model, params, own, source=own)
    found.append(_difference(alone, _logits(model, params, own, source=np.array([1, 4, 2, 5, 5]), source_mask=right)))
    return Finding(max(found) < CLOSE, f"padding moves the logits by {max(found):.1e}")


def cache_agrees() -> Finding:
    """Read a text token by token with a cache: the logits must be those of reading it at once."""
    found = []
    for scheme in ("learned", "rotary"):
        model, params = _model(DecoderConfig(**SIZES, positions=scheme))
        tokens, kept = np.array([[1, 4, 2, 7, 3]]), model.new_cache()
        by_token = [model.read(params, tokens[:, at : at + 1], kept)[0, -1] for at in range(5)]
        found.append(_difference(np.stack(by_token), _logits(model, params, tokens[0])))
    return Finding(max(found) < CLOSE, f"cached and uncached logits differ by {max(found):.1e}")


def heads_one_by_one() -> Finding:
    """Compute every head alone, in plain NumPy: the attention layer must say the same."""
    found = []
    for kv_heads in (4, 2):
        layer = Attention(width=8, heads=4, kv_heads=kv_heads)
        params, x = _random(layer.init(0)), np.random.default_rng(1).normal(size=(2, 5, 8))
        y, _ = layer.forward(params, x)
        q, k, v = (x @ params[part]["w"] + params[part].get("b", 0) for part in ("query", "key", "value"))
        heads = []
        for head in range(4):
            own, shared = (slice(2 * at, 2 * at + 2) for at in (head, head * kv_heads // 4))
            e = np.exp(q[..., own] @ k[..., shared].swapaxes(-1, -2) / math.sqrt(2))
            heads.append(e / e.sum(axis=-1, keepdims=True) @ v[..., shared])
        expected = np.concatenate(heads, axis=-1) @ params["output"]["w"] + params["output"].get("b", 0)
        found.append(_difference(y, expected))
    return Finding(max(found) < CLOSE, f"heads computed one by one differ by {max(found):.1e}")


def scores_of_size_one() -> Finding:
    """Attention scores of random queries and keys must have a standard deviation of about one, whatever the width."""
    rng, spread = np.random.default_rng(0), []
    for heads in (1, 8):
        model, _ = _model(DecoderConfig(vocab=9, context=8, width=64, heads=heads, layers=1))
        scale = model.stack.block.attention.scale
        q, k = rng.normal(size=(2, 1, 64, 64 // heads))
        spread.append(float(ops.attention_scores(q, k, scale=scale).std()))
    evidence = f"scores spread by {spread[0]:.2f} with 1 head, {spread[1]:.2f} with 8"
    return Finding(all(0.8 < one < 1.25 for one in spread), evidence)


def distances_alone() -> Finding:
    """Move all positions by five: rotated scores and products of sinusoids must depend on distances alone."""
    rng, at, found = np.random.default_rng(0), np.arange(6), []
    for pairing in ("halves", "interleaved"):
        q, k = rng.normal(size=(2, 6, 8))

        def scores(shift: int, q: Array = q, k: Array = k, pairing: str = pairing) -> Array:
            cos, sin = ops.rotary_angles(at + shift, 8)
            turned = [ops.rotary(x, cos, sin, pairing=pairing)[0] for x in (q, k)]
            return turned[0] @ turned[1].T

        found.append(_difference(scores(0), scores(5)))
    near, far = (ops.sinusoidal(at + shift, 8) for shift in (0, 5))
    found.append(_difference(near @ near.T, far @ far.T))
    return Finding(max(found) < CLOSE, f"a shift of all positions moves scores by {max(found):.1e}")


def formulas() -> Finding:
    """Compare ops with their formulas, written once more."""
    x = np.random.default_rng(0).normal(size=(3, 6))
    centered = x - x.mean(-1, keepdims=True)
    normed = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 0.1)
    normal = np.array([[v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in row] for row in x])
    model: Any = build(EncoderConfig(**SIZES, classes=3, norm_eps=0.1))
    norm = model.stack.block.norm.forward({"gamma": np.ones(6), "beta": np.zeros(6)}, x)[0]
    angles = np.array([[p / 10_000 ** (i // 2 * 2 / 6) for i in range(6)] for p in range(3)])
    waves = np.where(np.arange(6) % 2, np.cos(angles), np.sin(angles))
    pairs = {
        "layer norm": (ops.layer_norm(x, np.ones(6), np.zeros(6), eps=0.1)[0], normed),
        "the norm of a model": (norm, normed),
        "GELU": (ops.gelu(x)[0], normal),
        "the sinusoids": (ops.sinusoidal(np.arange(3), 6), waves),
    }
    errors = {name: _difference(*pair) for name, pair in pairs.items()}
    name = max(errors, key=lambda one: errors[one])
    return Finding(errors[name] < CLOSE, f"{name} is off by {errors[name]:.1e}")


def accumulation() -> Finding:
    """Split a batch in two: the gradients must be those of the whole, also where targets are ignored."""
    model, params = _model(DecoderConfig(**SIZES))
    targets = np.array([[4, 2, 7], [4, ops.IGNORE, ops.IGNORE], [3, 3, ops.IGNORE], [1, 2, 3]])
    batch = Batch(np.array([[1, 4, 2], [5, 4, 2], [1, 3, 3], [8, 1, 2]]), targets)
    whole, parts = (Trainer(model, Recipe(steps=1, batch=4, accumulate=count, clip=0.01)) for count in (1, 2))
    state = whole.first(params)
    one, two = whole.gradients(state, batch)[1], parts.gradients(state, batch)[1]
    off = max(_difference(one[name], two[name]) for name in one) / max(float(np.abs(g).max()) for g in one.values())
    return Finding(off < 1e-6, f"gradients of two halves differ from those of the whole by {off:.1e} of the largest")


def first_step() -> Finding:
    """The first step of Adam must be the learning rate, in the direction against the gradient's sign."""
    params, grads = {"w": np.zeros((2, 2))}, {"w": np.array([[3.0, -0.2], [1e-3, 40.0]])}
    adam = Adam()
    moved, _ = adam.update(params, grads, adam.init(params), lr=0.01)
    off = _difference(moved["w"], -0.01 * np.sign(grads["w"]))
    return Finding(off < 1e-6, f"the first step of Adam is off by {off / 0.01:.1%} of the learning rate")


def decay_spares_norms() -> Finding:
    """Without a gradient, weight decay must shrink matrices and leave norms and biases as they are."""
    params = {"norm": {"gamma": np.ones(3)}, "w": np.ones((3, 3))}
    adamw = AdamW(weight_decay=0.5)
    grads = {"norm": {"gamma": np.zeros(3)}, "w": np.zeros((3, 3))}
    moved, _ = adamw.update(params, grads, adamw.init(params), lr=0.1)
    gain, weight = float(moved["norm"]["gamma"][0]), float(moved["w"][0, 0])
    return Finding(gain == 1 and weight < 1, f"the gain of a norm went from 1 to {gain:.3f}")


def next_token() -> Finding:
    """The target of every position must be the token after it."""
    batch = Windows(np.arange(100), 8).batch(0, 4, 0)
    ahead = (batch.targets - batch.tokens).reshape(-1)
    [(most, count)] = Counter(ahead.tolist()).most_common(1)
    where = "1 token ahead" if most == 1 else f"{most} tokens ahead, not 1"
    return Finding(bool((ahead == 1).all()), f"{count} of {ahead.size} targets lie {where}")


def enough_candidates() -> Finding:
    """Top-p must keep at least p of the probability, and top-k exactly k tokens."""
    logits = np.log(np.array([0.5, 0.41, 0.05, 0.04]))
    nucleus = distribution(logits, None, Sampling(top_p=0.9)) > 0
    mass, count = float(np.exp(logits)[nucleus].sum()), int((distribution(logits, None, Sampling(top_k=2)) > 0).sum())
    return Finding(mass >= 0.9 and count == 2, f"top-p 0.9 keeps {mass:.2f}, top-k 2 keeps {count} tokens")


def beam_scores() -> Finding:
    """A beam's score must be the mean logarithm of its own tokens, however long the prompt is."""
    model, params = _model(DecoderConfig(**SIZES))
    best = beam_search(model, params, [1, 4, 2, 7], beams=2, max_new_tokens=3)[0]
    off = abs(best.score - sum(best.log_probabilities) / len(best.log_probabilities))
    return Finding(off < CLOSE, f"the score is off by {off:.1e}")


def residual_identity() -> Finding:
    """With all output matrices zero, every block must return its input."""
    model, params = _model(DecoderConfig(**SIZES, final_norm=False))
    for block in params["blocks"]:
        for part in (block["attention"]["output"], block["feed_forward"]["down"]):
            part.update({name: 0 * array for name, array in part.items()})
    x = np.random.default_rng(0).normal(size=(3, 8))
    off = _difference(model.stack.forward(params, x)[0], x)
    return Finding(off < CLOSE, f"blocks that add nothing change the stream by {off:.1e}")


CHECKS: dict[str, Callable[[], Finding]] = {
    "causality": causality, "padding": padding, "cache": cache_agrees, "heads": heads_one_by_one,
    "scores": scores_of_size_one, "distances": distances_alone, "formulas": formulas, "accumulation": accumulation,
    "first step": first_step, "decay": decay_spares_norms, "next token": next_token, "candidates": enough_candidates,
    "beam": beam_scores, "identity": residual_identity,
}  # fmt: skip
"""The checks of the museum by name; "gradients: ROW" proves a row of `glassformer check`."""


def run_check(name: str) -> Finding:
    """Run a check by its name."""
    try:
        return gradients(name.partition(": ")[2]) if name.startswith("gradients: ") else CHECKS[name]()
    except (ArithmeticError, LookupError, ValueError) as error:  # a mistake may also end in an exception
        return Finding(False, f"{type(error).__name__}: {error}")


def _model(config: Any) -> tuple[Any, Any]:
    """Return a model made afresh, so that a mistake in its making shows, and parameters far from their first values."""
    model = build(config)
    return model, _random(model.init(0))


def _random(params: Any) -> Any:
    rng = np.random.default_rng(3)
    return map_named(lambda name, array: array.astype(np.float64) + 0.3 * rng.normal(size=array.shape), params)


def _logits(model: Any, params: Any, tokens: Any, **inputs: Any) -> Array:
    if "source" in inputs:
        return model.forward(params, inputs.pop("source"), np.asarray(tokens), **inputs)[0]
    return model.forward(params, np.asarray(tokens), **inputs)[0]


def _difference(x: Array, y: Array) -> float:
    return float(np.abs(x - y).max())
