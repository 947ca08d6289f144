"""The facts that tours read from a run: a function for each thing that steps of tours.toml are about.

Words of a step name facts in {…}. Its question is about one of them, or about a measure before and after a change of
the value `name`. The guide points at `point`, the scene shows `look`, and the formula is that of an entry at `index`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..interpret import Run, attribute, head_scores, lens, products, score_scale
from ..interpret.reading import logit_of
from ..interpret.run import has_no_head
from ..interpret.scene import growth, lengths
from ..interpret.stream import is_classifier, points
from .run_session import probabilities
from .tour_run import Probability, TourRun, prediction, quoted, shown

Facts = dict[str, Any]
PARTS = {"head": "attention heads", "feed_forward": "feed-forward layers", "embedding": "embeddings"}


class Options(NamedTuple):
    """The right key, all keys, and how each is called."""

    right: int
    keys: Sequence[int]
    label: Callable[[int], str]


def text(tour: TourRun) -> Facts:
    """Return facts about the tokens and what the model predicts."""
    words = [quoted(word) for word in tour.source]
    embedding, run = tour.stacks[0].start[0].name, tour.run
    facts = {
        "point": "tokens", "look": tour.open(), "embedding": embedding, "source": len(words),
        "words": ", ".join(words[:6]) + (", …" if len(words) > 6 else "."), "width": run[embedding].shape[-1],
    }  # fmt: skip
    if has_no_head(run.model):
        return facts
    few = sorted(np.argsort(-probabilities(run), kind="stable")[:4])
    predictions = Options(prediction(run)[0], few, lambda n: quoted(run.label(int(n))))
    what = "class" if is_classifier(run) else "next token"
    return {**facts, **predicted(tour), "what": what, "predictions": predictions}


def predicted(tour: TourRun) -> Facts:
    """Return the likeliest token or class, and its probability."""
    _, label, p = prediction(tour.run)
    return {"predicted": quoted(label), "p": p}


def embedding_gradient(tour: TourRun) -> Facts:
    """Return facts about the gradient that arrives at the embedding of the last stack."""
    name = tour.stacks[-1].start[0].name
    sizes = lengths(tour.gradient(name, tour.loss))[-len(tour.tokens) :]
    by_token = Options(int(np.argmax(sizes)), range(len(sizes)), lambda at: quoted(tour.tokens[at], at))
    target = "the loss" if tour.loss.kind == "loss" else "the likeliest logit"
    return {"point": name, "look": tour.open(), "by_token": by_token, "size": np.max(sizes), "target": target}


# --- the residual stream ---------------------------------------------------------------------------------------------


def stream(tour: TourRun) -> Facts:
    """Return facts about the stream around the first sublayer, and at its ends."""
    names = [point.name for point in points(tour.run, tour.stacks[-1].stack)]
    inside = tour.stations(0, "adds")
    ends = tuple(float(np.mean(lengths(tour.run[name]))) for name in (names[0], names[-1]))
    x, added, total = (float(tour.run[name][0, -1, 0]) for name in (names[0], inside[0], names[1]))
    return {
        "name": names[1], "index": [0, tour.run[names[1]].shape[1] - 1, 0], "x": x, "added": added, "total": total,
        "point": inside[0], "end": names[-1], "lengths": ends, "look": tour.open(), "last_block": tour.open(-1),
        "growth": {name: value for name, value in growth(tour.run).items() if name in inside},
    }  # fmt: skip


def early_readings(tour: TourRun) -> Facts:
    """Return what the head reads at each point of the stream."""
    found = lens(tour.run, positions=None if is_classifier(tour.run) else [-1])
    tops = found.logits.reshape(len(found.points), -1).argmax(axis=-1).tolist()
    right = next(at for at in range(len(tops)) if len({*tops[at:]}) == 1)
    settled = Options(right, range(len(tops)), lambda at: f"after {found.points[at].label}")
    end = points(tour.run, tour.stacks[-1].stack)[-1].name
    start = quoted(tour.run.label(tops[0]))
    return {**predicted(tour), "point": end, "look": tour.open(-1), "settled": settled, "start": start}


def logit_parts(tour: TourRun) -> Facts:
    """Return what each kind of sublayer adds to the logit."""
    found = attribute(tour.run, logit_of(tour.run, None, None, -1))
    parts = {PARTS.get(kind, kind): float(value) for kind, value in found.by_kind().items()}
    return {**predicted(tour), "point": "answers", "look": tour.open(), "parts": parts, "value": float(found.value)}


# --- a norm ----------------------------------------------------------------------------------------------------------


def norm(tour: TourRun) -> Facts:
    """Return facts about the norm behind all blocks, at the vector that answers."""
    name, run = tour.norm, tour.run
    row = 0 if is_classifier(run) else run[name].shape[1] - 1
    has_mean = f"{name}.rstd" in run
    x, scale = (float(run[f"{name}.{part}"][0, row, 0]) for part in ("x", "rstd" if has_mean else "rrms"))
    mean = float(run[f"{name}.mean"][0, row, 0]) if has_mean else 0.0
    kind = "A layer norm subtracts the mean of a vector and divides by its spread." if has_mean else (
        "An RMS norm divides a vector by the root of its mean square; it subtracts nothing.")  # fmt: skip
    return {"name": name, "index": [0, row, 0], "point": name, "look": tour.open(-1), "row": row, "kind": kind,
            "mean": mean, "x": x, "scale": scale, "scaled": (x - mean) * scale, "has_mean": has_mean}  # fmt: skip


def norm_gradient(tour: TourRun) -> Facts:
    """Return facts about the gradient of the vector that the norm reads."""
    facts = norm(tour)
    both = tour.run[f"{tour.norm}.x"], tour.gradient(f"{tour.norm}.x", tour.logit)
    x, dx = (np.asarray(a[0, facts["row"]], np.float64) for a in both)
    question, because = "What is x · dx, the vector times its gradient?", "To grow along itself changes nothing"
    if facts["has_mean"]:
        question = "What does the gradient of the vector sum to?"
        because = "The same number added everywhere changes nothing"
    total = dx.sum() if facts["has_mean"] else dx @ x
    return {**facts, "question": question, "because": because, "sum": total, "size": np.abs(dx).sum()}


# --- heads -----------------------------------------------------------------------------------------------------------


def head(tour: TourRun, layer: int = 0, part: str = "attention", query: int = -1, number: int | None = None) -> Facts:
    """Return facts about a head of a layer; unless one is named, one whose query is neither sure nor torn."""
    name = tour.stations(layer, "weights", part)[0].removesuffix(".attend.weights")
    weights = tour.run[f"{name}.attend.weights"][0]
    query, layer = query % weights.shape[1], layer % len(tour.stacks[-1].blocks)
    if number is None:
        number = int(np.argmin(np.abs(weights[:, query].max(axis=-1) - 0.6)))
    mask = np.broadcast_to(tour.run[f"{name}.attend.mask"], (1, *weights.shape))[0, number]
    row, scores = weights[number, query], tour.run[f"{name}.attend.scores"][0, number, query]
    best, allowed = int(np.argmax(row)), np.flatnonzero(mask[query]).tolist()
    words = tour.source if part == "cross_attention" else tour.tokens
    words = ["[CLS]"] * (len(row) - len(words)) + words  # a learned vector may stand before the tokens
    return {
        "name": name, "index": [0, number, query, best], "point": f"{name}.attend.weights",
        "look": tour.open(layer, number, part, query), "matrix": tour.open(layer, number, part),
        "lane": tour.open(lane=query), "layer": layer, "head": number, "query": query, "row": row,
        "token": quoted(tour.tokens[query % len(tour.tokens)]), "best": quoted(words[best], best),
        "weight": row[best], "sum": row.sum(), "count": len(tour.tokens), "allowed": allowed,
        "first_sees_last": bool(mask[0, -1]),
        "keys": Options(best, allowed, lambda key: quoted(words[key], key)),
        "scored": Options(best, allowed, lambda key: f"position {key}, score {shown(scores[key])}"),
    }  # fmt: skip


def score(tour: TourRun) -> Facts:
    """Return the score of the first head: a product of query and key, and the factor."""
    facts = head(tour)
    product = float(products(tour.run, facts["name"])[tuple(facts["index"])])
    scale = score_scale(tour.run, facts["name"])
    bias = ", before a bias is added" if f"{facts['name']}.attend.bias" in tour.run else ""
    return {**facts, "product": product, "scale": scale, "score": product * scale, "bias": bias}


def score_gradient(tour: TourRun) -> Facts:
    """Return the gradient of the scores of the first head."""
    facts = head(tour)
    rows = tour.gradient(f"{facts['name']}.attend.scores", tour.logit)
    return {**facts, "sum": rows[0, facts["head"], facts["query"]].sum()}


def mask(tour: TourRun) -> Facts:
    """Return whether the first token may look at the last one, and why."""
    facts = head(tour)
    all_seen = "This model reads the whole text and predicts none of it, so every token may look at every other."
    hidden = "It would see the tokens that it is to predict. A mask makes these weights exactly 0: the empty corner."
    return {**facts, "because": all_seen if facts["first_sees_last"] else hidden}


def last_head(tour: TourRun) -> Facts:
    """Return facts about a head of the last block, and what the model predicts."""
    return head(tour, -1)


def cross_head(tour: TourRun) -> Facts:
    """Return facts about the head of the last block whose second token is surest where to look in the source."""
    query = min(1, len(tour.tokens) - 1)
    weights = tour.run[tour.stations(-1, "weights", "cross_attention")[0]]
    facts = head(tour, -1, "cross_attention", query, int(np.argmax(weights[0, :, query].max(axis=-1))))
    follows = "".join(f" What comes next is {quoted(word)}." for word in tour.tokens[query + 1 : query + 2])
    blocks = len(tour.stacks[-1].blocks)
    names = [name for layer in range(blocks) for name in tour.stations(layer, "adds", "cross_attention")]
    return {**facts, "source": len(tour.source), "columns": len(facts["row"]), "follows": follows, "names": names,
            "heads": blocks * tour.run.heads}  # fmt: skip


def source_gradient(tour: TourRun) -> Facts:
    """Return the gradient that arrives at the embedding of the source."""
    name = tour.stacks[0].start[0].name
    size = float(np.linalg.norm(tour.gradient(name, tour.loss)))
    return {**cross_head(tour), "point": name, "size": size, "reached": bool(size)}


def induction_head(tour: TourRun) -> Facts:
    """Return facts about the head that looks most at what followed an earlier copy of the last token."""
    last, place = tour.repetition or (0, 0)
    found = tour.once("head scores", lambda: head_scores(tour.run)["decoder"])
    scores, before = (np.asarray(found.scores[kind]) for kind in ("induction", "previous token"))
    layer, number = (int(n) for n in np.unravel_index(np.argmax(scores[1:]), scores[1:].shape))
    early, other = (int(n) for n in np.unravel_index(np.argmax(before[: layer + 1]), before[: layer + 1].shape))
    facts, name_of = head(tour, layer + 1, query=last, number=number), lambda at: quoted(tour.tokens[at], at)
    right = place + 1
    last_of = {word: at for at, word in [*enumerate(tour.tokens), (right, tour.tokens[right])]}  # each token once
    seen = sorted({facts["index"][-1], 0, place, right, last})
    return {
        **facts, **predicted(tour), "place": place, "after": quoted(tour.tokens[right]), "early": early,
        "other": other, "back": before[early, other], "score": scores[layer + 1, number],
        "chance": found.chance.get("induction", 0.0), "expected": facts["row"][right],
        "id_after": int(np.asarray(tour.run.batch.tokens)[0, right]),
        "earlier_weights": tour.stations(early, "weights")[0], "earlier_look": tour.open(early, other),
        "next": Options(right, sorted(last_of.values()), name_of),
        "blocks": Options(layer + 1, range(len(tour.stacks[-1].blocks)), lambda block: f"block {block}"),
        "seen": Options(facts["index"][-1], seen, name_of),
    }  # fmt: skip


# --- measures before and after a change ------------------------------------------------------------------------------


def _weights(run: Run, facts: Facts) -> Array:
    return np.asarray(run[f"{facts['name']}.attend.weights"][0, facts["head"], facts["query"]])


MEASURES: dict[str, Callable[[Run, Facts], Any]] = {
    "weights": _weights,
    "largest weight": lambda run, facts: float(_weights(run, facts).max()),
    "largest number": lambda run, facts: np.abs(run[facts["name"]][0, facts["row"]]).max(),
    "loss": lambda run, facts: float(run.loss),
    "prediction": lambda run, facts: prediction(run),
    "probability after": lambda run, facts: Probability(probabilities(run)[facts["id_after"]]),
}
ABOUT: dict[str, Callable[[TourRun], Facts]] = {
    make.__name__.replace("_", " "): make
    for make in (text, embedding_gradient, stream, early_readings, logit_parts, norm, norm_gradient, head, score,
                 score_gradient, mask, last_head, cross_head, source_gradient, induction_head)
}  # fmt: skip
