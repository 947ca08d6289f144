"""A model that has learned a task, and can be asked."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..data import Task
from ..generation.answer import answer, answer_length
from ..models import Batch, Model

TEMPERATURE = 0.7
"""What a language model says is drawn a little more carefully than by its own probabilities."""


@dataclass(frozen=True)
class Trained:
    """A model with its parameters and the task that says what its ids mean."""

    model: Model
    params: Tree
    task: Task

    def ask(self, text: str, *, length: int = 80, seed: int = 0) -> str:
        """Answer one typed input; a language model continues it by `length` tokens, drawn at random with a seed."""
        return self.task.decode_answer(self._answer(self.task.encode_input(text), length, seed))

    def samples(self, count: int = 3, length: int = 80) -> list[tuple[str, str]]:
        """Return some of the task's prompts, each with the answer to it."""
        return [(prompt, self.ask(prompt, length=length)) for prompt in self.task.prompts[:count]]

    def example(self, text: str) -> Batch:
        """Return one typed input as a batch of one, with the model's own answer behind it where it writes one."""
        batch = self.task.encode_input(text)
        if self.task.architecture == "encoder" or self.task.metric == "none":
            return batch
        ids = np.asarray(self._answer(batch, 0))
        end = self.task.answer_tokenizer.specials.get("<eos>")
        if end is not None and end in ids:
            ids = ids[: int(np.flatnonzero(ids == end)[0])]
        return batch._replace(tokens=np.concatenate([batch.tokens, ids[None]], axis=-1)[:, : self.model.config.context])

    def _answer(self, batch: Batch, length: int, seed: int = 0) -> Array:
        known = None if self.task.architecture == "encoder" else self.task.answer_tokenizer.size
        if self.task.metric == "none":
            drawn: dict[str, Any] = {"count": length, "rng": np.random.default_rng(seed), "temperature": TEMPERATURE}
            return answer(self.model, self.params, batch, known=known, **drawn)
        return answer(self.model, self.params, batch, known=known, count=answer_length(self.model, batch))
