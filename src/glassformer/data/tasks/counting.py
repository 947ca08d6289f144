"""Continue 1, 2, 3: the smallest language model."""

from ...models.model import Batch
from ...text.words import WordTokenizer
from ..examples import decoder_examples
from ..task import Task, recipe, until

VOCAB = 20


def counting(*, seed: int = 0, last: int = 6) -> Task:
    """Build the task: its whole data is one sequence, so what it measures is memory, and nothing is held out.

    last   the number to count to
    """
    del seed  # nothing is drawn
    tokenizer = WordTokenizer([str(number) for number in range(max(VOCAB, last + 1))])
    sequence = tokenizer.encode(" ".join(str(number) for number in range(1, last + 1)))
    examples = decoder_examples([sequence], [1])
    return Task(
        name="counting",
        architecture="decoder",
        tokenizer=tokenizer,
        train=examples,
        held_out=examples,
        settings={
            "vocab": tokenizer.size, "context": last, "width": 32, "heads": 4, "feed_forward": 64, "layers": 1,
            "activation": "relu", "norm_position": "post", "feed_forward_bias": False, "tied_head": False,
            "positions": "sinusoidal",
        },
        recipe=recipe(
            steps=300, batch=1, optimizer="sgd", lr=0.05, schedule="constant", warmup=0, weight_decay=0.0, clip=0.0,
            eval_every=50,
        ),
        metric="sequence",
        encode_input=lambda text: Batch(tokenizer.encode(text)[None]),
        # Up to and including the last number, after which there is nothing to count.
        decode_answer=lambda ids: tokenizer.decode(ids[: len(until(ids, last)) + 1]),
        prompts=("1",),
        notes=("the whole data is one sequence: the score measures memory, and nothing is held out",),
    )  # fmt: skip
