"""Attention: the attention layers of a run by kind, and what kind each head is."""

from typing import Any

from ...core.errors import LengthError
from ...core.settings import check_known
from ...interpret import Run, head_scores, score_scale
from ...interpret.stream import attentions
from ...text.tokenizer import CLS
from ..explorer import RunSession
from ..router import route
from .runs import tokens_of

TITLES = {"encoder": "the encoder looks at itself", "decoder": "the decoder looks at itself",
          "cross": "the decoder looks at the source"}  # fmt: skip


@route("attention")
def attention(session: RunSession) -> dict[str, Any]:
    """Return the kinds of attention, each with the names of its layers and the tokens of its queries and keys."""
    run, kinds = session.run, []
    for kind, names in attentions(run).items():
        queries, keys = run[f"{names[0]}.attend.weights"].shape[-2:]
        kinds.append({
            "kind": kind,
            "title": TITLES[kind],
            "layers": names,
            "heads": run.heads,
            "scales": [score_scale(run, name) for name in names],
            "queries": labels_at(run, kind, queries, looked_at=False),
            "keys": labels_at(run, kind, keys, looked_at=True),
        })  # fmt: skip
    return {"kinds": kinds}


@route("heads")
def heads(session: RunSession, kind: str, layer: int) -> dict[str, Any]:
    """Return what the heads of one layer do on this text: a word for each, and its score for every kind."""
    known = attentions(session.run)
    check_known("this model has no attention of kind", kind, known)
    count = len(known[kind])
    if not 0 <= layer < count:
        raise LengthError(f"there is no layer {layer}", hint=f"there are {count}, from 0 to {count - 1}")
    return session.once(f"heads {kind} {layer}", lambda: _heads(session.run, kind, layer))


def _heads(run: Run, kind: str, layer: int) -> dict[str, Any]:
    scored = head_scores(run, layers=[layer])[kind]
    return {
        "words": scored.kinds[0],
        "spread": [float(x) for x in 1 - scored.statistics.specialization[0]],
        "scores": [{word: float(x[0, head]) for word, x in scored.scores.items()} for head in range(run.heads)],
        "chance": scored.chance,
    }


def labels_at(run: Run, kind: str, count: int, *, looked_at: bool) -> list[str]:
    """Return the tokens at the queries, or at the keys, of a kind of attention."""
    of_source = run.batch.source is not None and (kind == "encoder" or (kind == "cross" and looked_at))
    tokens = tokens_of(run, "source" if of_source else "tokens") or []
    labels = [token["label"] for token in tokens]
    labels = [CLS] * (count - len(labels)) + labels  # a learned vector may stand before the tokens
    return labels if len(labels) == count else [*map(str, range(count))]
