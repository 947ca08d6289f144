"""The views of `glassformer look`: each calls one method of `glassformer.interpret` and returns rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.format import bytes_text, shorten, signed, visible
from ..core.reporting import ShowCount
from ..interpret import (
    Logit,
    Run,
    ablate_heads,
    attribute,
    gradient_flow,
    gradient_times_input,
    gradients,
    head_scores,
    lens,
    neuron_attribution,
    patch_stream,
)
from ..interpret.batched import MEMORY, bytes_at_once
from ..weights.loaded_model import LoadedModel

WIDTH = 24


class ViewInput(NamedTuple):
    """A question about a run."""

    subject: LoadedModel
    run: Run
    target: Logit
    source: Run | None
    way: str
    show: ShowCount


@dataclass(frozen=True)
class View:
    """The result of a view: rows of text for people, records for programs, and a function that draws a figure.

    stopped   how much of it was measured before Ctrl-C; None if all of it was
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    records: list[dict[str, Any]]
    draw: Callable[[str], Any]  # takes the title and returns a figure
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stopped: str | None = None


def view_lens(asked: ViewInput) -> View:
    """Show what the head would predict at each point of the residual stream."""
    run, target, subject = asked.run, asked.target, asked.subject
    seen = lens(run, positions=None if subject.is_classifier else target.position)
    ids, odds = seen.top(min(3, seen.logits.shape[-1]))
    chances, ranks = seen.probabilities(target.token), seen.ranks(target.token)
    rows: list[tuple[str, ...]] = []
    records: list[dict[str, Any]] = []
    for n, point in enumerate(seen.points):
        says = [(run.label(int(i)), float(p)) for i, p in zip(ids[n].reshape(-1), odds[n].reshape(-1), strict=True)]
        chance, rank = float(chances[n].reshape(-1)[0]), int(ranks[n].reshape(-1)[0])
        shown = "  ".join(f"{_word(word)} {_share(p)}" for word, p in says)
        rows.append((point.label, shown, _share(chance), f"{rank + 1:,}"))
        records.append({"point": point.label, "name": point.name, "says": says, "p": chance, "rank": rank + 1})

    def draw(title: str) -> Any:
        from ..plots.predictions import MOST_POSITIONS, lens_map

        if subject.is_classifier:
            return lens_map(seen, title=title)
        last = slice(-MOST_POSITIONS, None)  # more would not be drawn
        return lens_map(lens(run, positions=last), title=title)

    columns = ("after", "predicts", ">p", ">rank")
    return View("What each layer would predict, beside {target}", columns, rows, records, draw)


def view_attribution(asked: ViewInput) -> View:
    """Show what each part adds to the logit."""
    found = attribute(asked.run, asked.target)
    records = [{**row, "value": float(row["value"])} for row in found.rows()]
    rows = [(_part(r["name"], r["head"]), r["kind"].replace("_", "-"), signed(r["value"], 4)) for r in records]
    kinds = "  ".join(f"{kind.replace('_', '-')} {value:+.4f}" for kind, value in found.by_kind().items())
    facts = {"logit": float(found.value), "by_kind": {kind: float(v) for kind, v in found.by_kind().items()}}
    notes = [f"all parts sum to the logit, {found.value:.4f}: {kinds}"]
    draw = _bars([row[0] for row in rows], [r["value"] for r in records], "adds to the logit")
    return View("What adds to the logit of {target}", ("part", "kind", ">adds"), rows, records, draw, facts, notes)


def view_ablation(asked: ViewInput) -> View:
    """Show how the logit and the loss change without each head."""
    run = asked.run
    sweep = _Sweep(asked, run.heads * run.model.config.layers)
    found = ablate_heads(run, asked.way, targets=[asked.target], progress=sweep, keep_partial=True)
    measured = sweep.measured(found.logits[:, 0])
    order = [n for n in np.argsort(-np.abs(found.logits[:, 0]), kind="stable") if measured[n]]
    records: list[dict[str, Any]] = []
    for n in order:
        part = found.parts[n]
        loss = None if found.loss is None else float(found.loss[n])
        records.append({"name": part.name, "head": part.head, "logit": float(found.logits[n, 0]), "loss": loss})
    rows = [
        (_part(r["name"], r["head"]), signed(r["logit"], 4), "" if r["loss"] is None else signed(r["loss"], 4))
        for r in records
    ]
    columns = ("without", ">change of logit", ">change of loss")
    draw = _bars([row[0] for row in rows], [r["logit"] for r in records], "change of the logit without it")
    title = "How the logit of {target} and the loss change without a head"
    return View(title, columns, rows, records, draw, stopped=sweep.stopped("heads"))


class _Sweep:
    """The progress of a sweep over changed runs, which Ctrl-C may end early."""

    def __init__(self, asked: ViewInput, total: int) -> None:
        self.show, self.done, self.total = asked.show, 0, total
        self.note = f"changed runs, about {bytes_text(bytes_at_once(asked.run, total, MEMORY))} at a time"
        self(0, total)

    def __call__(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        self.show(done, total, self.note)

    def measured(self, values: Array) -> Array:
        """Return which values were measured; where one of those is not finite, all, so that they are refused."""
        finite = np.isfinite(values)
        return finite if finite.sum() == self.done else np.ones_like(finite)

    def stopped(self, what: str) -> str | None:
        """Return how much was measured before Ctrl-C; None if all of it was."""
        return None if self.done == self.total else f"interrupted: {self.done:,} of {self.total:,} {what} are measured"


def view_patching(asked: ViewInput) -> View:
    """Show which position of the residual stream carries the difference to the other text."""
    run, source = asked.run, asked.source
    assert source is not None
    sweep = _Sweep(asked, (2 * run.model.config.layers + 1) * run.logits.shape[1])
    found = patch_stream(run, source, asked.target, estimate=False, progress=sweep, keep_partial=True)
    share = found.share
    measured = sweep.measured(share)
    words = source.tokens[0]
    records = [
        {
            "point": label,
            "position": t,
            "token": words[t],
            "effect": float(found.effect[n, t]),
            "share": float(share[n, t]),
        }
        for n, label in enumerate(found.rows)
        for t in np.flatnonzero(measured[n]).tolist()
    ]
    rows = [
        (label, *(signed(one, 2).removeprefix("+") if np.isfinite(one) else "" for one in own))
        for label, own in zip(found.rows, share, strict=True)
        if np.isfinite(own).any()
    ]
    columns = ("stream after", *(f">{_word(word)}" for word in words[: share.shape[1]]))
    facts = {"run": float(found.run), "source": float(found.source)}
    notes = [f"the logit is {found.run:.4f} here and {found.source:.4f} for the other text"]
    title = "How far the other text's stream at one position moves the logit of {target}: 1.00 is all of the way"

    def draw(_: str) -> Any:
        from ..plots import patching_map

        return patching_map(found, words[: share.shape[1]], title="What the other text's stream does to the logit")

    return View(title, columns, rows, records, draw, facts, notes, sweep.stopped("places"))


def view_gradients(asked: ViewInput) -> View:
    """Show how the gradient flows back."""
    found = gradients(asked.run, asked.target)
    flows = gradient_flow(found)[::-1]
    records = [flow._asdict() for flow in flows]
    rows = [(flow.name, f"{flow.leaving:.3g}", f"{flow.through:.3g}", _share(flow.share)) for flow in flows]
    words = asked.run.tokens[0]
    notes: list[str] = []
    facts: dict[str, Any] = {}
    if len(words) == asked.run.batch.tokens.shape[1] and "embedding" in asked.run:
        each = gradient_times_input(asked.run, asked.target)[0]
        facts["tokens"] = [{"token": word, "value": float(v)} for word, v in zip(words, each, strict=False)]
        notes.append(
            "gradient × input: " + "  ".join(f"{_word(w)} {v:+.3f}" for w, v in zip(words, each, strict=False))
        )
    columns = ("before", ">gradient", ">through it", ">share")
    draw = _bars(
        [flow.name for flow in flows], [flow.leaving for flow in flows], "size of the gradient before it", len(flows)
    )
    return View("How the gradient of the logit of {target} flows back", columns, rows, records, draw, facts, notes)


def view_heads(asked: ViewInput) -> View:
    """Show what each head looks at."""
    scores = head_scores(asked.run)
    records: list[dict[str, Any]] = [
        {"attention": kind, **row} for kind, found in scores.items() for row in found.rows()
    ]
    records.sort(key=lambda r: -r["score"])
    names = [f"{r['attention']} block {r['layer']} head {r['head']}" for r in records]
    rows = [
        (name, r["kind"], f"{r['score']:.2f}", f"{r['distance']:.1f}") for name, r in zip(names, records, strict=True)
    ]
    columns = ("head", "looks at", ">how surely", ">distance")

    def draw(title: str) -> Any:
        from ..plots import head_specialization

        return head_specialization(list(scores.values())[-1], title=title)

    return View("What the heads look at", columns, rows, records, draw)


def view_neurons(asked: ViewInput) -> View:
    """Show the neurons that add most to the logit."""
    found = neuron_attribution(asked.run, asked.target)
    if not found:
        raise ConfigError("this model has no feed-forward layers, so it has no neurons", hint="look at its heads")
    records: list[dict[str, Any]] = [
        {"name": name, "neuron": int(n), "value": float(values[n])}
        for name, values in found.items()
        for n in range(len(values))
    ]
    records.sort(key=lambda r: -abs(r["value"]))
    rows = [(r["name"], str(r["neuron"]), signed(r["value"], 4)) for r in records]
    draw = _bars([f"{row[0]} {row[1]}" for row in rows], [r["value"] for r in records], "adds to the logit")
    return View("Which neurons add to the logit of {target}", ("layer", ">neuron", ">adds"), rows, records, draw)


VIEWS: dict[str, Callable[[ViewInput], View]] = {
    "lens": view_lens,
    "attribution": view_attribution,
    "ablation": view_ablation,
    "patching": view_patching,
    "gradients": view_gradients,
    "heads": view_heads,
    "neurons": view_neurons,
}


def _bars(names: Sequence[str], values: Sequence[float], unit: str, top: int = 20) -> Callable[[str], Any]:
    """Return a function that draws the first numbers as bars."""

    def draw(title: str) -> Any:
        from ..plots import signed_bars

        return signed_bars(names, np.asarray(values), top=top, title=title, unit=unit)

    return draw


def _part(name: str, head: int | None) -> str:
    return name.removesuffix(".output.x") + ("" if head is None else f" head {head}")


def _word(text: str) -> str:
    return shorten(visible(text), WIDTH)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
