"""The contenders of `embed`: ours, and transformers with the sentences sorted by length."""

from typing import Any

import glassformer  # isort: skip  # noqa: F401  before NumPy: it sets how long the threads of BLAS wait for work
import numpy as np

from glassformer.api.loading import load
from glassformer.core.dispatch import set_engine
from glassformer.weights.stores import locate

TOLD = 20  # vectors
WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so said what about
mountain river library theorem kitchen engine gardener yesterday translation violet understanding"""


def sentences() -> list[str]:
    """Return sentences of 4 to 60 words that are frequent in English, in no order."""
    words = WORDS.split()
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, size=int(rng.integers(4, 61)))) + "." for _ in range(300)]


class Embedder:
    """Base of the contenders: embeds all sentences, and tells the first vectors."""

    def __init__(self) -> None:
        self.sentences = sentences()
        self.vectors: Any = None

    def facts(self) -> dict[str, Any]:
        """Return the first vectors."""
        return {"vectors": np.asarray(self.vectors[:TOLD], dtype=float).round(7).tolist()}


class Ours(Embedder):
    """`embed`."""

    def __init__(self, *, engine: str) -> None:
        super().__init__()
        set_engine(engine)
        self.model = load("minilm")

    def step(self) -> None:
        """Embed all sentences."""
        self.vectors = self.model.embed(self.sentences)


class HuggingFace(Embedder):
    """transformers on PyTorch as sentence-transformers uses it: sorted by length, in batches, each padded."""

    def __init__(self, *, batch: int) -> None:
        super().__init__()
        import torch
        import transformers

        path = locate("minilm")
        self.torch, self.batch = torch, batch
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        self.model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32).eval()

    def step(self) -> None:
        """Embed all sentences."""
        torch = self.torch
        order = sorted(range(len(self.sentences)), key=lambda i: -len(self.sentences[i]))
        found = torch.empty(len(order), self.model.config.hidden_size)
        with torch.inference_mode():
            for start in range(0, len(order), self.batch):
                rows = order[start : start + self.batch]
                read = self.tokenizer([self.sentences[i] for i in rows], padding=True, return_tensors="pt")
                vectors, mask = self.model(**read)[0], read["attention_mask"][..., None].float()
                pooled = (vectors * mask).sum(1) / mask.sum(1)
                found[rows] = torch.nn.functional.normalize(pooled, dim=-1)
        self.vectors = found.numpy()
