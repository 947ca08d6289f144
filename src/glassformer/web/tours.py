"""The numbers of the guide: what each step of a tour says of the run that is open. Its words are in tours.toml.

A function makes one step: `right` is the answer, one of `choices` or a number; `point` is what the guide points at in
the scene, `look` what the scene shows, `then` what the page shows once the answer is there. The rest fills in words.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..interpret import attribute, head_scores, lens, products, score_scale
from ..interpret.reading import logit_of
from ..interpret.run import has_no_head
from ..interpret.scene import growth, lengths
from ..interpret.stream import is_classifier, points
from .run_session import probabilities
from .state import Changed
from .walk import Facts, Head, Walk, among, best_of, first_head, head_of, last_head, lines, number, on, percent, quoted

STEPS: dict[str, dict[str, tuple[Callable[[Walk], Facts], Callable[[Walk], bool]]]] = {}
"""The steps of each tour by their names: what makes them, and whether a run has what they need."""


def step(tour: str, name: str, has: Callable[[Walk], bool] = lambda walk: True) -> Callable[..., Any]:
    """Register a step of a tour."""

    def register(make: Callable[[Walk], Facts]) -> Callable[[Walk], Facts]:
        STEPS.setdefault(tour, {})[name] = make, has
        return make

    return register


def has_head(walk: Walk) -> bool:
    """Whether the model predicts."""
    return not has_no_head(walk.run.model)


def has_sums(walk: Walk) -> bool:
    """Whether sublayers add to a stream."""
    return walk.run.model.config.block != "no_residual"


def lacks(walk: Walk, tour: str) -> str:
    """Return what a run lacks for a tour, empty for nothing."""
    stack = walk.stacks[-1]
    if tour == "residual" and not has_sums(walk):
        return "This model has no residual connections."
    if walk.run.model.config.block == "feed_forward_only" and tour not in ("norm", "residual"):
        return "This model has no attention."
    if tour == "norm" and not norm_name(walk):
        return "This model has no norm behind its blocks."
    if tour == "cross" and len(walk.stacks) == 1:
        return "This tour needs an encoder-decoder: `glassformer train dates` trains one."
    if tour == "induction" and (len(walk.stacks) > 1 or stack.stack != "decoder" or len(stack.blocks) < 2):
        return "This tour needs a decoder of at least two blocks: `glassformer train induction` trains one."
    if tour == "induction" and repetition(walk) is None:
        return "This tour needs a text whose last token stands in it earlier, such as “a b c a”."
    return "" if len(walk.tokens) > 2 else "This tour needs a text of at least three tokens."


# --- a first look ----------------------------------------------------------------------------------------------------


@step("first", "tokens")
def _(walk: Walk) -> Facts:
    words = [quoted(word) for word in walk.source]
    shown = ", ".join(words[:6]) + (", …" if len(words) > 6 else ".")
    return {"right": len(words), "tolerance": 0, "words": shown, "point": "tokens", "look": walk.open()}


@step("first", "vectors")
def _(walk: Walk) -> Facts:
    name = walk.stacks[0].start[0].name
    return {"right": walk.run[name].shape[-1], "tolerance": 0, "point": name, "look": walk.open()}


step("first", "attention")(lambda walk: on(walk, first_head(walk)))


@step("first", "adds", has_sums)
def _(walk: Walk) -> Facts:
    grown = {name: value for name, value in growth(walk.run).items() if name in walk.stations(0, "adds")}
    parts = {name.rpartition(".")[2].replace("_", "-"): value for name, value in grown.items()}
    best = int(np.argmax(list(grown.values())))
    return {"right": best, "choices": [*parts], "lines": lines(parts), "point": [*grown][best], "look": walk.open()}


@step("first", "answer", has_head)
def _(walk: Walk) -> Facts:
    few = sorted(np.argsort(-probabilities(walk.run), kind="stable")[:4])
    found = among(walk.likeliest()[0], few, lambda n: quoted(walk.run.label(int(n))))
    what = "class" if is_classifier(walk.run) else "next token"
    return {**found, **best_of(walk), "what": what, "point": "answers", "look": walk.open()}


@step("first", "backward", has_head)
def _(walk: Walk) -> Facts:
    name, of = walk.stacks[-1].start[0].name, walk.loss
    sizes = lengths(walk.gradient(name, of))[-len(walk.tokens) :]
    best = int(np.argmax(sizes))
    found = among(best, range(len(sizes)), lambda at: quoted(walk.tokens[at], at))
    return {**found, "size": number(sizes[best]), "of": "the loss" if of.kind == "loss" else "the likeliest logit",
            "point": name, "look": walk.open(), "then": {"look": {"shown": "gradients"}, "of": of}}  # fmt: skip


# --- softmax ---------------------------------------------------------------------------------------------------------


@step("softmax", "weights")
def _(walk: Walk) -> Facts:
    head = first_head(walk)
    name, index = f"{head.name}.attend.weights", [0, head.head, head.query, head.best]
    found = on(walk, head)
    scored = among(head.best, head.allowed, lambda key: f"position {key}, score {number(head.scores[key])}")
    return {**found, **scored, "sum": number(head.weights.sum()), "math": walk.math(name, index),
            "then": {"card": {"name": name, "index": index}}}  # fmt: skip


def rescored(walk: Walk, word: Any, value: float) -> tuple[Head, Any, Facts]:
    """Return a head, its weights after a change of its scores, and what is shown of it."""
    head = first_head(walk)
    where: Any = {"head": head.head, "position": head.query}
    change = Changed(word, f"{head.name}.attend.scores", where, value)
    after = walk.changed([change]).run[f"{head.name}.attend.weights"][0, head.head, head.query]
    return head, after, {**on(walk, head), "choices": None, "then": {"changes": [change]}}


@step("softmax", "shifted")
def _(walk: Walk) -> Facts:
    head, after, found = rescored(walk, "add", 5.0)
    most = float(np.max(np.abs(after - head.weights)))
    return {**found, "right": int(most < 1e-5), "most": number(most)}


@step("softmax", "sharper", lambda walk: len(first_head(walk).allowed) > 1)
def _(walk: Walk) -> Facts:
    head, after, found = rescored(walk, "scale", 2.0)
    before, now = float(head.weights.max()), float(after.max())
    return {**found, "right": int(now <= before), "before": number(before), "now": number(now)}


@step("softmax", "backward")
def _(walk: Walk) -> Facts:
    head = first_head(walk)
    name, index = f"{head.name}.attend.scores", (0, head.head, head.query, head.best)
    row = walk.gradient(name, walk.of)[0, head.head, head.query]
    return {**on(walk, head), "choices": [], "right": 0, "tolerance": 1e-3, "sum": number(row.sum()),
            "math": walk.math(name, index, gradient=walk.of),
            "then": {"of": walk.of, "look": {"shown": "gradients"}}}  # fmt: skip


# --- attention -------------------------------------------------------------------------------------------------------


@step("attention", "score")
def _(walk: Walk) -> Facts:
    head = first_head(walk)
    name, index = f"{head.name}.attend.scores", [0, head.head, head.query, head.best]
    product, scale = float(products(walk.run, head.name)[tuple(index)]), score_scale(walk.run, head.name)
    bias = ", before a bias is added" if f"{head.name}.attend.bias" in walk.run else ""
    return {**on(walk, head), "choices": [], "right": product * scale, "product": number(product), "bias": bias,
            "scale": number(scale), "math": walk.math(name, index),
            "then": {"card": {"name": name, "index": index}}}  # fmt: skip


@step("attention", "mask")
def _(walk: Walk) -> Facts:
    head = first_head(walk)
    weights, mask = walk.run[f"{head.name}.attend.weights"], walk.run[f"{head.name}.attend.mask"]
    may = bool(np.broadcast_to(mask, weights.shape)[0, head.head, 0, -1])
    all_seen = "This model reads the whole text and predicts none of it, so every token may look at every other."
    hidden = "It would see the tokens that it is to predict. A mask makes these weights exactly 0: the empty corner."
    return {**on(walk, head), "choices": None, "right": int(not may), "because": all_seen if may else hidden,
            "count": len(walk.tokens), "look": walk.open(0, head.head)}  # fmt: skip


step("attention", "last")(lambda walk: on(walk, last_head(walk)))


@step("attention", "without", has_head)
def _(walk: Walk) -> Facts:
    head = last_head(walk)
    change = Changed("zero", f"{head.name}.output.x", {"head": head.head})
    (was, label, p), (now, other, q) = walk.likeliest(), walk.likeliest(walk.changed([change]).run)
    return {**on(walk, head), "choices": None, "right": int(was != now), "was": quoted(label), "p": percent(p),
            "now": quoted(other), "q": percent(q), "point": "answers", "then": {"changes": [change]}}  # fmt: skip


# --- the residual stream ---------------------------------------------------------------------------------------------


def stream(walk: Walk) -> list[str]:
    """Return the names of the points of the stream."""
    return [point.name for point in points(walk.run, walk.stacks[-1].stack)]


@step("residual", "sum", lambda walk: walk.run.model.config.norm_position == "pre")
def _(walk: Walk) -> Facts:
    before, after, adds = *stream(walk)[:2], walk.stations(0, "adds")[0]
    x, added, total = (float(walk.run[name][0, -1, 0]) for name in (before, adds, after))
    index = [0, walk.run[after].shape[1] - 1, 0]
    return {"right": total, "x": number(x), "added": number(added), "point": adds, "look": walk.open(),
            "math": walk.math(after, index), "then": {"card": {"name": after, "index": index}}}  # fmt: skip


@step("residual", "length")
def _(walk: Walk) -> Facts:
    names = stream(walk)
    first, last = (float(np.mean(lengths(walk.run[name]))) for name in (names[0], names[-1]))
    return {"right": int(last <= first), "first": number(first), "last": number(last), "point": names[-1],
            "look": walk.open(len(walk.stacks[-1].blocks) - 1)}  # fmt: skip


@step("residual", "early", has_head)
def _(walk: Walk) -> Facts:
    found = lens(walk.run, positions=None if is_classifier(walk.run) else [-1])
    tops = found.logits.reshape(len(found.points), -1).argmax(axis=-1).tolist()
    right = next(at for at in range(len(tops)) if len({*tops[at:]}) == 1)
    chosen = among(right, range(len(tops)), lambda at: f"after {found.points[at].label}")
    return {**chosen, **best_of(walk), "start": quoted(walk.run.label(tops[0])), "point": stream(walk)[-1],
            "look": walk.open(len(walk.stacks[-1].blocks) - 1)}  # fmt: skip


@step("residual", "parts", has_head)
def _(walk: Walk) -> Facts:
    found = attribute(walk.run, logit_of(walk.run, None, None, -1))
    words = {"head": "attention heads", "feed_forward": "feed-forward layers", "embedding": "embeddings"}
    kinds = {words.get(kind, kind): float(value) for kind, value in found.by_kind().items()}
    return {**best_of(walk), "right": int(np.argmax([*kinds.values()])), "choices": [*kinds], "lines": lines(kinds),
            "value": number(found.value), "point": "answers", "look": walk.open()}  # fmt: skip


# --- a norm, backward ------------------------------------------------------------------------------------------------


def norm_name(walk: Walk) -> str:
    """Return the norm behind all blocks, which alone reads its vector; empty where there is none."""
    return next((one.name for one in walk.stacks[-1].end if one.kind == "norm"), "")


def on_norm(walk: Walk) -> tuple[str, list[int], bool, Facts]:
    """Return the name of a norm, the first entry of the vector that answers, whether it has a mean, and where it is."""
    name = norm_name(walk)
    row = 0 if is_classifier(walk.run) else walk.run[name].shape[1] - 1
    look = walk.open(len(walk.stacks[-1].blocks) - 1)
    return name, [0, row, 0], f"{name}.rstd" in walk.run, {"point": name, "look": look}


@step("norm", "forward")
def _(walk: Walk) -> Facts:
    name, index, is_layer, found = on_norm(walk)
    x, scale = (float(walk.run[f"{name}.{part}"][tuple(index)]) for part in ("x", "rstd" if is_layer else "rrms"))
    mean = float(walk.run[f"{name}.mean"][tuple(index)]) if is_layer else 0.0
    kind = "A layer norm subtracts the mean of a vector and divides by its spread." if is_layer else (
        "An RMS norm divides a vector by the root of its mean square; it subtracts nothing.")  # fmt: skip
    return {**found, "right": (x - mean) * scale, "kind": kind, "row": index[1], "mean": number(mean), "x": number(x),
            "scale": number(scale), "math": walk.math(name, index),
            "then": {"card": {"name": name, "index": index}}}  # fmt: skip


@step("norm", "doubled")
def _(walk: Walk) -> Facts:
    name, (_, row, _), _, found = on_norm(walk)
    change = Changed("scale", f"{name}.x", {}, 2.0)
    before, now = (np.abs(run[name][0, row]).max() for run in (walk.run, walk.changed([change]).run))
    right = int(np.argmin(np.abs(np.array([2.0, 1.0, 0.5]) - now / before)))
    return {**found, "right": right, "before": number(before), "now": number(now), "then": {"changes": [change]}}


@step("norm", "backward")
def _(walk: Walk) -> Facts:
    name, index, is_layer, found = on_norm(walk)
    both = walk.run[f"{name}.x"], walk.gradient(f"{name}.x", walk.of)
    x, dx = (np.asarray(a[0, index[1]], np.float64) for a in both)
    question, because = "What is x · dx, the vector times its gradient?", "To grow along itself changes nothing"
    if is_layer:
        question = "What does the gradient of the vector sum to?"
        because = "The same number added everywhere changes nothing"
    card = {"name": f"{name}.x", "index": index, "gradient": True}
    return {**found, "right": 0, "tolerance": 1e-3, "question": question, "because": because,
            "sum": number(float(dx.sum() if is_layer else dx @ x)),
            "size": number(np.abs(dx).sum()), "math": walk.math(f"{name}.x", index, gradient=walk.of),
            "then": {"of": walk.of, "look": {"shown": "gradients"}, "card": card}}  # fmt: skip


# --- cross-attention -------------------------------------------------------------------------------------------------


def cross_head(walk: Walk) -> Head:
    """Return the head of the last block whose second token is surest where to look in the source."""
    layer, query = len(walk.stacks[-1].blocks) - 1, min(1, len(walk.tokens) - 1)
    weights = walk.run[walk.stations(layer, "weights", "cross_attention")[0]]
    return head_of(walk, layer, "cross_attention", query, int(np.argmax(weights[0, :, query].max(axis=-1))))


@step("cross", "texts")
def _(walk: Walk) -> Facts:
    head = cross_head(walk)
    return {**on(walk, head, "cross_attention"), "choices": [], "right": len(head.weights), "tolerance": 0,
            "source": len(walk.source), "count": len(walk.tokens)}  # fmt: skip


@step("cross", "look")
def _(walk: Walk) -> Facts:
    head = cross_head(walk)
    follows = "".join(f" What comes next is {quoted(word)}." for word in walk.tokens[head.query + 1 : head.query + 2])
    heads = len(walk.stacks[-1].blocks) * walk.run.heads
    return {**on(walk, head, "cross_attention"), "follows": follows, "heads": heads}


@step("cross", "without", lambda walk: walk.run.batch.targets is not None)
def _(walk: Walk) -> Facts:
    layers = range(len(walk.stacks[-1].blocks))
    names = [name for layer in layers for name in walk.stations(layer, "adds", "cross_attention")]
    changes = [Changed("zero", f"{name}.output.x") for name in names]
    before, now = float(walk.run.loss), float(walk.changed(changes).run.loss)
    return {**on(walk, cross_head(walk), "cross_attention"), "choices": None, "right": int(now > before),
            "before": number(before), "now": number(now), "point": "answers", "then": {"changes": changes}}  # fmt: skip


@step("cross", "backward", lambda walk: walk.run.batch.targets is not None)
def _(walk: Walk) -> Facts:
    name = walk.stacks[0].start[0].name
    size = float(np.linalg.norm(walk.gradient(name, walk.loss)))
    return {**on(walk, cross_head(walk), "cross_attention"), "choices": None, "right": int(not size),
            "size": number(size), "point": name, "then": {"of": walk.loss, "look": {"shown": "gradients"}}}  # fmt: skip


# --- induction -------------------------------------------------------------------------------------------------------


def repetition(walk: Walk) -> tuple[int, int] | None:
    """Return the last position of a text, and an earlier one with the same token."""
    ids = np.asarray(walk.run.batch.tokens)[0]
    found = np.flatnonzero(ids[:-2] == ids[-1])
    return (len(ids) - 1, int(found[-1])) if found.size else None


def looking_back(walk: Walk) -> tuple[Head, Facts]:
    """Return the head that looks most at what followed an earlier copy of a token, and what is said of it."""

    def find() -> tuple[Head, Facts]:
        last, place = repetition(walk) or (0, 0)
        found = head_scores(walk.run)["decoder"]
        score, before = (np.asarray(found.scores[kind]) for kind in ("induction", "previous token"))
        layer, head = (int(n) for n in np.unravel_index(np.argmax(score[1:]), score[1:].shape))
        early, other = (int(n) for n in np.unravel_index(np.argmax(before[: layer + 1]), before[: layer + 1].shape))
        said = {"place": place, "after": quoted(walk.tokens[place + 1]), "early": early, "other": other,
                "before": number(before[early, other]), "score": number(score[layer + 1, head]),
                "chance": number(found.chance.get("induction", 0.0))}  # fmt: skip
        return head_of(walk, layer + 1, query=last, head=head), said

    return walk.once("induction", find)


@step("induction", "next")
def _(walk: Walk) -> Facts:
    head, said = looking_back(walk)
    right = said["place"] + 1
    last_of = {word: at for at, word in [*enumerate(walk.tokens), (right, walk.tokens[right])]}  # each token once
    found = among(right, sorted(last_of.values()), lambda at: quoted(walk.tokens[at], at))
    return {**on(walk, head), **said, **found, **best_of(walk), "point": "tokens", "look": walk.open(lane=head.query)}


@step("induction", "heads")
def _(walk: Walk) -> Facts:
    head, said = looking_back(walk)
    name, look = walk.stations(said["early"], "weights")[0], walk.open(said["early"], said["other"])
    found = among(head.layer, range(len(walk.stacks[-1].blocks)), lambda layer: f"block {layer}")
    return {**on(walk, head), **said, **found, "point": name, "look": look,
            "then": {"look": walk.open(head.layer, head.head)}}  # fmt: skip


@step("induction", "look")
def _(walk: Walk) -> Facts:
    head, said = looking_back(walk)
    places = sorted({head.best, 0, said["place"], said["place"] + 1, head.query})
    found = among(head.best, places, lambda key: quoted(walk.tokens[key], key))
    return {**on(walk, head), **said, **found, "expected": number(head.weights[said["place"] + 1])}


@step("induction", "without")
def _(walk: Walk) -> Facts:
    head, said = looking_back(walk)
    change = Changed("zero", f"{head.name}.output.x", {"head": head.head})
    token = int(np.asarray(walk.run.batch.tokens)[0, said["place"] + 1])
    before, now = (float(probabilities(run)[token]) for run in (walk.run, walk.changed([change]).run))
    right = 2 if abs(now - before) < 0.001 else int(now < before)
    return {**on(walk, head), **said, "choices": None, "right": right, "before": percent(before), "now": percent(now),
            "point": "answers", "then": {"changes": [change]}}  # fmt: skip
