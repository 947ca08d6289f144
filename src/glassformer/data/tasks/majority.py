"""Which token occurs most often: the smallest question that needs attention to every position."""

import itertools

import numpy as np

from ...errors import ConfigError
from ...models.model import Batch
from ...text.chars import CharTokenizer
from ..examples import Examples, check_seed
from ..task import Task, recipe

LENGTH, TOKENS = 8, 3


def majority(*, seed: int = 0, train: int = 1600, held_out: int = 400) -> Task:
    """Build the task from distinct random sequences, so that none of the held-out ones was ever trained on.

    train      sequences to train on
    held_out   sequences to be judged by
    """
    check_seed(seed)
    every = np.array(list(itertools.product(range(TOKENS), repeat=LENGTH)), dtype=np.int64)
    if train < 1 or held_out < 1 or train + held_out > len(every):
        raise ConfigError(
            f"{train:,} sequences to train on, {held_out:,} held out", hint=f"there are {len(every):,} different ones"
        )
    chosen = np.random.default_rng(seed).permutation(len(every))[: train + held_out]
    tokens = every[chosen]
    classes = answers(tokens)
    tokenizer = CharTokenizer("012")
    return Task(
        name="majority",
        architecture="encoder",
        tokenizer=tokenizer,
        train=Examples(Batch(tokens[:train], classes[:train])),
        held_out=Examples(Batch(tokens[train:], classes[train:])),
        settings={
            "vocab": TOKENS, "classes": TOKENS, "context": LENGTH,
            "width": 32, "heads": 4, "feed_forward": 64, "layers": 1, "pooling": "mean", "positions": "sinusoidal",
            "activation": "gelu_tanh",
        },
        recipe=recipe(steps=600, batch=32, lr=3e-3, weight_decay=0.01, eval_every=100),
        metric="classes",
        encode_input=lambda text: Batch(tokenizer.encode("".join(text.split()))[None]),
        decode_answer=tokenizer.decode,
        prompts=("00112220", "21021021", "11110222"),
    )  # fmt: skip


def answers(tokens: np.ndarray) -> np.ndarray:
    """Return the most frequent token of each row (N, 8); `argmax` takes the first of equals, the smallest."""
    counts = (tokens[:, :, None] == np.arange(TOKENS)).sum(axis=1)
    return counts.argmax(axis=1)
