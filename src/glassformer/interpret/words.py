"""The words that decided: how an encoder's answer about a text depends on each of its words.

    found = model.explain("The sofa is awful, really weak.")

Two measures, one number per word:

    left out               p(class | text) − p(class | text without the word)      each text is classified anew
    integrated gradients   Σ over the word's tokens, from a baseline to the text   what the word adds to the logit

The baseline is the embedding of a text as long, with the average of all tokens in place of each that is not special:
norms make the way steep near zero vectors, and not there. The logit is that of the class above the mean of all others,
since what all logits have in common moves no probability. So integrated gradients sum to this logit of the text minus
that of the baseline. For both measures a positive number speaks for the class, and a negative one against it.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, DataError
from ..core.format import percent, signed, visible
from ..core.show import Bars, Passage, Result, Tabled
from ..generation.answer import Prediction, classify, input_ids
from ..models import Batch
from ..text.tokenizer import id_of, spans_of
from ..weights.loaded_model import LoadedModel
from .changes import put
from .gradients import Sum, gradients
from .run import watch
from .saliency import INPUT, NODES
from .sweep import Progress

IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{IDEOGRAPHS}]|[^\W{IDEOGRAPHS}]+(?:[-'’.][^\W{IDEOGRAPHS}]+)*|[^\w\s]+")
"""A Chinese or Japanese character, a word, or signs without white space between them."""
LOT = 32
"""Texts without a word that are classified between two reports of progress."""
EDGES = (0.0, 0.125, 0.25, 0.5, 1.0)
"""Where the pieces of the way from the baseline to the text begin and end, at first."""
TOKENS = 1024
"""Tokens that are run back at once."""
MOST, TOLERANCE = 2048, 1e-3
"""Gradients after which pieces are no longer cut in two; what may be missing, of the larger of 1 and the difference."""

Span = tuple[int, int]


class Word(NamedTuple):
    """A word at text[start:end], and what both measures say.

    left_out     by how much the probability of the class is larger with it; None if nothing would be left to read
    integrated   what its tokens add to the logit, by integrated gradients
    """

    word: str
    start: int
    end: int
    left_out: float | None
    integrated: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Tabled):
    """The words of a text, in its order, and how the probability of a class depends on them.

    label, probability   the class in question: the likeliest one unless another was asked for
    difference           the logit of the text, above the mean of the other classes, minus that of the baseline
    rest                 what tokens outside of words add: white space
    gradients            how many gradients the integral took
    cut                  words behind the text that the context did not hold
    """

    text: str
    label: str
    probability: float
    words: list[Word]
    difference: float
    rest: float
    gradients: int
    cut: int = 0

    @property
    def missing(self) -> float:
        """By how much the integrated gradients miss the difference of the logits."""
        return self.difference - self.rest - sum(word.integrated for word in self.words)

    def without(self, number: int) -> str:
        """Return the text without the word of a number."""
        return text_without(self.text, (self.words[number].start, self.words[number].end))

    def result(self) -> Result:
        """Return a row for each word, those that move the probability most first, below the text in color."""
        ordered = sorted(self.words, key=lambda word: (-abs(word.left_out or 0), -abs(word.integrated)))
        rows = [
            (visible(word.word), "" if word.left_out is None else percent(self.probability - word.left_out),
             "" if word.left_out is None else f"{-word.left_out:+.2g}", signed(word.integrated, 3))
            for word in ordered
        ]  # fmt: skip
        notes = [
            f"integrated gradients sum to {self.difference:.4g}, the logit above that of average tokens, within "
            f"{abs(self.missing):.1g} ({self.gradients:,} gradients)"
        ]
        if self.cut:
            notes.append(f"the last {self.cut:,} words were cut off: the context holds no more")
        if abs(self.rest) > abs(self.missing):
            notes.append(f"white space between the words adds {signed(self.rest, 3)}")
        return Result(
            f"Which words decided: {self.label!r}, with {percent(self.probability)}",
            ("word", ">without it", ">change", ">integrated gradients"),
            rows,
            notes=notes,
            records=[word._asdict() for word in ordered],
            facts={
                "class": self.label, "probability": self.probability, "text": self.text, "cut": self.cut,
                "difference": self.difference, "missing": self.missing, "rest": self.rest,
            },
            figure=Bars([word.word for word in ordered], [word.left_out or 0.0 for word in ordered],
                        "adds to the probability"),
            passages=[
                Passage("left out", self._colored([word.left_out or 0.0 for word in self.words])),
                Passage("integrated gradients", self._colored([word.integrated for word in self.words])),
            ],
        )  # fmt: skip

    def _colored(self, values: list[float]) -> list[tuple[str, float]]:
        """Return the text in parts, words with their numbers and zero for what is between them."""
        parts, at = list[tuple[str, float]](), 0
        for word, value in zip(self.words, values, strict=True):
            parts += [(self.text[at : word.start], 0.0), (word.word, value)]
            at = word.end
        return [part for part in (*parts, (self.text[at:], 0.0)) if part[0]]


def explain(
    model: LoadedModel,
    text: str,
    of: int | str | None = None,
    *,
    truncate: bool = False,
    progress: Progress | None = None,
) -> Explanation:
    """Return how a class of a text depends on its words; see `TrainedModel.explain`."""
    if not isinstance(text, str):
        raise DataError(f"the text is {text!r:.60}", hint="pass one text; explain several one after the other")
    if not WORD.search(text):
        raise DataError("there are no words in the text", hint="pass a text of at least one word")
    text, cut = fitting(model, text) if truncate else (text, 0)
    answer = classify(model, text)
    chosen = answer.index if of is None else id_of(model.token_labels, of, len(answer.choices[0]), is_class=True)
    label = (model.token_labels.classes or str)(chosen)
    probability = _probability(answer, chosen)

    ids = input_ids(model, text)
    spans = spans_of(model.tokenizer, text)  # type: ignore[arg-type]  # a text was read
    words = words_of(text, spans)
    left_out = _left_out(model, text, words, chosen, probability, progress)
    weights = np.full(len(answer.choices[0]), -1 / max(1, len(answer.choices[0]) - 1))
    weights[chosen] = 1.0
    tokens, difference, used = integrate(model, ids, spans, weights)
    by_word, rest = _by_word(words, spans, tokens)
    each = [Word(text[start:end], start, end, without, adds)
            for (start, end), without, adds in zip(words, left_out, by_word, strict=True)]  # fmt: skip
    return Explanation(text, label, probability, each, difference, rest, used, cut)


def words_of(text: str, spans: list[Span]) -> list[Span]:
    """Return where the words of a text stand; of a text that is one word alone, its tokens."""
    words = [match.span() for match in WORD.finditer(text)]
    return words if len(words) > 1 else sorted({span for span in spans if span[0] < span[1]})


def text_without(text: str, span: Span) -> str:
    """Return a text without a part, and with the white space on one side of it only."""
    before, after = text[: span[0]], text[span[1] :]
    if not before or before[-1].isspace():
        after = after.lstrip()
    return before + after if after else before.rstrip()


def fitting(model: LoadedModel, text: str) -> tuple[str, int]:
    """Return the text up to the last word that the context of a model holds, and how many words come after it."""
    if model.tokenizer is None:
        raise ConfigError("this model has no tokenizer to read text with", hint="give it one")
    spans, words = spans_of(model.tokenizer, text), [match.span() for match in WORD.finditer(text)]
    over = len(spans) - model.config.context
    if over <= 0:
        return text, 0
    inside = [end for start, end in spans if start < end]
    kept = [word for word in words if word[1] <= max(inside[:-over], default=0)]
    if not kept:
        raise DataError("the context does not hold the first word of the text", hint="shorten it")
    return text[: kept[-1][1]], len(words) - len(kept)


def integrate(model: LoadedModel, ids: Array, spans: list[Span], weights: Array) -> tuple[Array, float, int]:
    """Return Σ (x − x₀) · ∫ dx from x₀ to x for a sum of weighed logits, (T,); its difference; how many gradients.

    A piece of the way whose integral by Gauss's rule is not what the sum did on it is cut in two.
    Pieces are rows of one batch, each with its two ends and the nodes of the rule between them.
    """
    gauss, shares = np.polynomial.legendre.leggauss(NODES)
    rule, nodes = np.pad(shares / 2, 1), (1 + np.array([-1, *gauss, 1])) / 2
    run = watch(model, Batch(ids[None]))
    rows = run["embedding.tokens"].copy()
    average = run.params["embedding"]["tokens"]["table"].mean(axis=0) * run.model.embedding.tokens.scale
    rows[0, [start < end for start, end in spans]] = average
    baseline = run.changed(put("embedding.tokens", rows))
    start, x = baseline[INPUT], (run[INPUT] - baseline[INPUT])[0]
    difference = float((run.logits[0] - baseline.logits[0]) @ weights)
    allowed, total, used = TOLERANCE * max(1.0, abs(difference)), np.zeros(len(ids)), 0
    lot, pieces = max(1, TOKENS // (len(ids) * len(nodes))), list(pairwise(EDGES))
    while pieces:
        ends, pieces = np.array(pieces[:lot]), pieces[lot:]
        lengths = np.diff(ends)  # (P, 1)
        along = (ends[:, :1] + lengths * nodes).reshape(-1, 1, 1)
        many = watch(model, Batch(np.tile(ids, (len(along), 1)))).changed(put(INPUT, start + along * x))
        dx = gradients(many, Sum("logits", np.tile(weights, (len(along), 1))))[INPUT]
        added = np.einsum("pn,pntd,td->pt", lengths * rule, dx.reshape(len(ends), len(nodes), *x.shape), x)
        values = (many.logits @ weights).reshape(len(ends), len(nodes))
        missing = np.abs(values[:, -1] - values[:, 0] - added.sum(axis=1))
        used += len(along)
        # Short pieces, where the way is steep, may miss more than their length's share: there are few of them.
        is_done = (missing <= allowed * np.maximum(lengths[:, 0], 0.02)) | (used >= MOST)
        total += added[is_done].sum(axis=0)
        for a, b in ends[~is_done].tolist():
            pieces += [(a, (a + b) / 2), ((a + b) / 2, b)]
    return total, difference, used


def _left_out(
    model: LoadedModel, text: str, words: list[Span], chosen: int, probability: float, progress: Progress | None
) -> list[float | None]:
    """Return for each word by how much the probability is larger with it."""
    found: list[float | None] = [None] * len(words)
    texts = {number: text_without(text, word) for number, word in enumerate(words)}
    readable = [number for number, rest in texts.items() if rest]
    for start in range(0, len(readable), LOT):
        lot = readable[start : start + LOT]
        for number, answer in zip(lot, classify(model, [texts[number] for number in lot]), strict=True):
            found[number] = probability - _probability(answer, chosen)
        if progress is not None:
            progress(start + len(lot), len(readable))
    return found


def _probability(answer: Prediction, chosen: int) -> float:
    return next(choice.probability for choice in answer.choices[0] if choice.id == chosen)


def _by_word(words: list[Span], spans: list[Span], values: Array) -> tuple[list[float], float]:
    """Return the sum over the tokens of each word, and what is left; a token of several words is shared by letters."""
    sums, rest = np.zeros(len(words)), 0.0
    for (start, end), value in zip(spans, values.tolist(), strict=True):
        shared = np.array([max(0, min(end, last) - max(start, first)) for first, last in words])
        if shared.any():
            sums += value * shared / shared.sum()
        else:
            rest += value
    return sums.tolist(), rest
