"""The computations by which edits show, for `edits.py`: three steps of training, and texts written with a cache."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

SIZES = {"vocab": 11, "width": 16, "heads": 2, "layers": 1, "context": 12, "feed_forward": 24}
LLAMA = {"norm": "rms", "activation": "silu", "gated": True, "positions": "rotary", "kv_heads": 1}
T5 = {"norm": "rms", "positions": "relative", "relative_buckets": 8, "relative_distance": 6, "scale_scores": False}
# A bias of keys moves nothing: Adam would divide rounding by rounding.
FREE = {**SIZES, "attention_bias": False}
PROMPTS = ["1 2 3 4", "5 6"]
NOT_ON_JAX = ("written: int8", "written: int4", "written: float16", "log-softmax", "embedded")
"""The engine jax keeps no weights in blocks, and computes where arrays are unless it trains or writes."""


VISIBLE = 2e-3
"""How far numbers must lie apart, relative to the largest of their computation, to be told from rounding."""
LR = {"sgd": 0.05, "muon": 0.01}
"""Adam and Lion step by the sign of gradients, which may be that of rounding: one such step must not show."""
LR_OF_SIGNS = 0.002


def panel(engine: str, jitter: float = 0.0, phase: float = 0.0) -> dict[str, Callable[[], Any]]:
    """Return computations by name, each of one vector; those whose names begin with "written" write texts.

    jitter   moves all parameters by about such a share, in ways that differ by `phase`: how far results move shows what
             rounding may do to them
    """
    import numpy as np

    import glassformer as gf
    from glassformer import ops
    from glassformer.core import dispatch, tree
    from glassformer.training import Recipe

    rng = np.random.default_rng(0)
    tokens, targets = rng.integers(1, 11, (2, 4, 6))
    mask = np.arange(6) < np.array([6, 4, 6, 5])[:, None]
    decoder, encoder, both = gf.DecoderConfig, gf.EncoderConfig, gf.EncoderDecoderConfig
    gpt = decoder(**{**FREE, "layers": 2})
    llama = decoder(**{**SIZES, "layers": 2}, **LLAMA)
    window = decoder(**SIZES, window=3, positions="alibi")
    pairs = both(**FREE, positions="sinusoidal", embedding_scale=True)
    t5 = both(**FREE, **T5, shared_embedding=True, tied_head=True, head_scale=True)
    batch, masked = gf.Batch(tokens, targets), gf.Batch(tokens, targets, mask=mask)
    labels = gf.Batch(tokens, np.array([0, 2, 1, 0]), mask=mask)
    source = gf.Batch(tokens, np.where(mask, targets, ops.IGNORE), source=targets[:, :4], source_mask=mask[:, 2:])
    segments = gf.Batch(np.where(mask, tokens, 0), targets, mask=mask, segments=tokens % 2)

    def start(model: Any) -> Any:
        def moved(p: Any) -> Any:
            bumps = np.cos(1 + np.arange(p.size)).reshape(p.shape)
            moves = np.cos(phase + 7.0 * np.arange(p.size)).reshape(p.shape)
            return ((p + 0.2 * bumps) * (1 + jitter * moves)).astype(p.dtype)

        return tree.tree_map(moved, model.init(0))

    def flat(result: Any) -> Any:
        leaves = tree.flatten(result)
        return np.concatenate([np.ravel(np.asarray(leaves[name], np.float64)) for name in sorted(leaves)])

    def trained(config: Any, batch: Any, optimizer: str, **settings: Any) -> Callable[[], Any]:
        how = {name: settings.pop(name) for name in ("attention_tile", "remat", "scan") if name in settings}

        def steps() -> Any:
            model = gf.build(config, **how)
            recipe = Recipe(optimizer=optimizer, steps=3, batch=4, **settings)
            trainer = dispatch.current().executor.trainer(model, recipe)
            state = trainer.first(start(model))
            figures = []
            for number in range(3):
                now = trainer.batch(Same(batch), number)
                state, said = trainer.step(state, now, LR.get(optimizer, LR_OF_SIGNS), keep=lambda *_: None)
                figures.append([float(x) for x in said][:2])
            state = trainer.take(state)
            averages = [] if state.ema is None else [flat(state.ema)]
            return np.concatenate([np.ravel(figures), flat(state.params), *averages])

        return steps

    def drawn(config: Any) -> Any:
        trainer = dispatch.current().executor.trainer(gf.build(config), Recipe(seed=4))
        return flat(trainer.take(trainer.first()).params)

    def embedded(texts: list[str]) -> Any:
        model = gf.build(encoder(**SIZES, head="none"))
        return gf.TrainedModel(model, start(model), Ids()).embed(texts).ravel()

    def written(config: Any, prompts: Any = "1 2 3 4", weights: str | None = None, **settings: Any) -> Any:
        def write() -> Any:
            model = gf.build(config)
            text = gf.TrainedModel(model, start(model), Ids())
            text = text.kept_as(weights) if weights else text
            text.end_ids, text.start_id = (), 0
            found = text.generate(prompts, **{"max_new_tokens": 5, "temperature": 0.0, **settings})
            numbers: list[float] = []
            for answer in found if isinstance(found, list) else [found]:
                numbers += [*answer.ids, -1]
                if settings.get("log_probabilities") is not None:
                    numbers += [*answer.log_probabilities, *(p for _, p in sorted(answer.top[-1]))]
            return np.array(numbers, np.float64)

        return write

    wide = decoder(**{**SIZES, "width": 32}, **LLAMA)
    rows = np.cos(1.0 + np.arange(10, dtype=np.float32)).reshape(2, 5)
    every = {
        "gpt, adamw": trained(gpt, batch, "adamw", ema=0.9),
        "llama, lion": trained(llama, masked, "lion", weight_decay=5.0),
        "post-norm, ALiBi, dropout, sgd": trained(
            decoder(**SIZES, norm_position="post", positions="alibi", dropout=0.2), batch, "sgd", momentum=0.9
        ),
        "tiles, relative, sgd": trained(
            decoder(**FREE, positions="relative", activation="gelu_tanh"), masked, "sgd", attention_tile=3
        ),
        "tiles, window, dropout, sgd": trained(
            decoder(**FREE, window=3, attention_dropout=0.2), masked, "sgd", attention_tile=2
        ),
        "tiles, stride, sgd": trained(decoder(**FREE, stride=3), batch, "sgd", attention_tile=2),
        "muon": trained(decoder(**FREE), batch, "muon"),
        "stride, relu, sgd": trained(
            decoder(**SIZES, window=3, stride=2, activation="relu", tied_head=False), batch, "sgd", clip=0.5
        ),
        "parallel, adam": trained(
            decoder(**FREE, block="parallel", positions="sinusoidal"), batch, "adam", weight_decay=0.5
        ),
        "rotary, interleaved, sgd": trained(
            decoder(
                **SIZES,
                positions="rotary",
                rotary_pairing="interleaved",
                rotary_channels=4,
                rotary_scaling={"factor": 4.0, "original_context": 16},
                activation="gelu_tanh",
                gated=True,
            ),
            batch,
            "sgd",
            weight_decay=0.1,
            accumulate=2,
        ),
        "attention only, recomputed": trained(
            decoder(**{**FREE, "layers": 2}, block="attention_only", norm_bias=False), batch, "sgd", remat=True
        ),
        "feed-forward only": trained(
            decoder(**FREE, block="feed_forward_only", norm="none", head_bias=True, feed_forward_bias=False),
            batch,
            "sgd",
        ),
        "no residual": trained(decoder(**SIZES, block="no_residual", embedding_norm=True), batch, "sgd"),
        "classes, cls": trained(
            encoder(**SIZES, classes=3, pooling="cls"), labels, "sgd", class_weights=(1.0, 2.0, 3.0)
        ),
        "classes, mean": trained(
            encoder(**FREE, classes=3, activation="silu", pooled_norm=True), labels, "adamw", freeze=("embedding",)
        ),
        "masked words": trained(
            encoder(**FREE, head="tokens", head_bias=True, padding_id=0, segments=2, norm_position="post"),
            segments,
            "sgd",
        ),
        "pairs, smoothed": trained(pairs, source, "adamw", label_smoothing=0.1, weight_decay=5.0),
        "t5": trained(t5, source, "sgd"),
        "first parameters": lambda: drawn(llama),
        "embedded": lambda: embedded(PROMPTS),
        "written": written(gpt, log_probabilities=2),
        "written: sampled": written(llama, log_probabilities=2, temperature=0.8, top_p=0.9, top_k=8, seed=3),
        "written: in bursts": written(
            llama, PROMPTS, temperature=1.5, top_p=0.9, top_k=9, min_p=0.05, seed=5, max_new_tokens=8
        ),
        "written: drawn": written(gpt, PROMPTS, temperature=2.0, seed=1, max_new_tokens=8),
        "written: likeliest": written(gpt, PROMPTS, max_new_tokens=8),
        "written: penalties": written(
            gpt, temperature=1.5, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.3, max_new_tokens=8
        ),
        "written: window": written(window, PROMPTS, log_probabilities=2, max_new_tokens=8),
        "written: stride": written(decoder(**SIZES, window=2, stride=3), log_probabilities=2, max_new_tokens=6),
        "written: pairs": written(pairs, PROMPTS, log_probabilities=2),
        "written: t5": written(t5, log_probabilities=2),
        "written: int8": written(wide, weights="int8", log_probabilities=2),
        "written: int4": written(wide, weights="int4", log_probabilities=2),
        "written: float16": written(wide, PROMPTS, weights="float16", log_probabilities=2),
        "log-softmax": lambda: flat(ops.log_softmax_backward(rows, ops.log_softmax(rows)[1])),
    }
    return {name: make for name, make in every.items() if engine != "jax" or name not in NOT_ON_JAX}


class Same:
    """Data with one batch."""

    def __init__(self, batch: Any) -> None:
        self.all = batch

    def batch(self, step: int, size: int, seed: int, rows: Any = slice(None)) -> Any:
        return type(self.all)(*(None if part is None else part[rows] for part in self.all))


class Ids:
    """A tokenizer of texts that are ids in figures."""

    kind, size = "ids", 11

    def __init__(self) -> None:
        self.specials: dict[str, int] = {}

    def encode(self, text: str) -> Any:
        import numpy as np

        return np.array([int(word) for word in text.split()])

    def decode(self, ids: Any) -> str:
        return " ".join(str(int(i)) for i in ids)


def differ(have: Any, want: Any) -> bool:
    """Tell whether numbers are visibly others."""
    import numpy as np

    return not distance(have, want) <= VISIBLE * max(1, np.abs(want[np.isfinite(want)]).max(initial=0))


def distance(have: Any, want: Any) -> float:
    """Return how far numbers lie apart at most; infinity if others of them are finite."""
    import numpy as np

    if have.shape != want.shape or not np.array_equal(np.isfinite(have), np.isfinite(want)):
        return float("inf")
    finite = np.isfinite(want)
    return float(np.abs(have[finite] - want[finite]).max(initial=0))


@contextlib.contextmanager
def token_by_token() -> Iterator[None]:
    """Make NumPy read prompts token by token inside a `with` block, as other engines may."""
    from glassformer.generation.reader import CachedReader

    begin: Any = CachedReader.__init__

    def begin_by_tokens(self: Any, *arguments: Any, **settings: Any) -> None:
        begin(self, *arguments, **{**settings, "chunk": 1})

    CachedReader.__init__ = begin_by_tokens  # type: ignore[method-assign]
    try:
        yield
    finally:
        CachedReader.__init__ = begin  # type: ignore[method-assign]
