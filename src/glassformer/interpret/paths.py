"""Paths: what one part of a model tells another directly, with everything else as it was.

    1. The sender has its value of the source. The sublayers after it are held as they are in the run: what reaches a
       receiver differs by what the sender wrote.
    2. The receiver has the value it got then, in a run that is otherwise as it was. The answer is measured.

    patch_paths(run, source, of)                                            from every part to the logits
    patch_paths(run, source, of, at("blocks.1.attention.attend.q", head=0))      to the queries of one head
    patch_paths(run, source, of, receivers(run), senders=at("blocks.0.attention.output.x", head=1))

Norms are not held: they compute as ever. By default all sublayers are held, so that a path is a direct one. Wang et al.
(2022) hold attention alone and let feed-forward layers compute: `hold="attention"`.

Edge attribution estimates all direct paths at once by gradients (Syed et al. 2023):

    estimate = Σ (what the sender wrote in the source − in the run) · d(what the receiver reads)

It takes one backward pass, and is exact where the model is linear. All estimates of one sender sum to the one of
`patch_heads`, as every gradient of the stream is the sum of those of its readers. With post-norm, y = norm(x + f(x)), a
path leads through every norm between its ends: the gradient goes back through each of them, and through nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..core.arrays import Array
from ..core.errors import ConfigError
from ..core.quantized import unpacked
from ..core.settings import check_known
from ..core.show import Result
from ..core.tree import flatten
from .changes import Change, freeze, put, take, transform
from .gradients import NORMS, Gradients, gradients
from .names import LOGITS, Selection, Where, check_name
from .run import Run
from .stream import ATTENTIONS, KINDS, Sublayer, head_results, points, stacks, sublayers
from .sweep import MEMORY, Answer, Effects, Progress, answer, check_alike, effects

HOLDS = {"sublayers": tuple(KINDS), "attention": ATTENTIONS}
"""Which sublayers are held as they are in the run."""

READ_BY = (*NORMS, "copy")
"""The ops by which sublayers read the stream; without norms, a copy."""

PROJECTIONS = {"q": "query", "k": "key", "v": "value"}


class Place(NamedTuple):
    """A value of a run, or some of its entries."""

    name: str
    where: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join([self.name, *(f"{axis}={part}" for axis, part in self.where.items())])


class PathEffect(NamedTuple):
    """The effect of a path on the answer of a run.

    effect        the change of the answer
    run, source   the answers of the two
    """

    effect: float
    run: float
    source: float


@dataclass(frozen=True, eq=False, repr=False)
class Paths(Effects):
    """The effect of each path on the answer of a run.

    effect        (senders, receivers), NaN where no path leads
    is_estimate   whether gradients estimated the effects
    """

    senders: list[Place]
    receivers: list[Place]
    is_estimate: bool

    def rows(self) -> list[dict[str, Any]]:
        """Return one record per path, the one with the largest effect first."""
        order = np.argsort(-np.nan_to_num(np.abs(self.effect), nan=-1.0), axis=None, kind="stable")
        pairs = np.stack(np.unravel_index(order, self.effect.shape), axis=-1).tolist()
        return [
            {"sender": str(self.senders[n]), "receiver": str(self.receivers[m]), "effect": float(self.effect[n, m])}
            for n, m in pairs
            if not np.isnan(self.effect[n, m])
        ]

    def result(self) -> Result:
        """Return a row for each path, the one with the largest effect first."""
        records = self.rows()
        title = f"{self.label}, from {self.run:.4g} to {self.source:.4g}, by path"
        columns = ("from", "to", ">estimated effect" if self.is_estimate else ">effect")
        rows = [list(record.values()) for record in records]
        facts = {"run": self.run, "source": self.source}
        return Result(title, columns, rows, records=records, facts=facts, figure=self)


def at(name: str, **where: Selection) -> Place:
    """Return where a path begins or ends."""
    Where(**where)  # refuses other words
    return Place(name, where)


def all_senders(run: Run) -> list[Place]:
    """Return all that writes to the stream: embeddings, every head, every feed-forward layer."""
    found = [at(_start(run, stack)) for stack in stacks(run)]
    for one in sublayers(run):
        own = one.kind in ATTENTIONS
        found += [at(f"{one.name}.output.x", head=n) for n in range(run.heads)] if own else [at(one.name)]
    return found


def all_receivers(run: Run) -> list[Place]:
    """Return all that reads the stream: queries, keys and values of every head, feed-forward layers, the logits."""
    found = []
    for one in sublayers(run):
        own = [f"{one.name}.attend.{letter}" for letter in PROJECTIONS] if one.kind in ATTENTIONS else []
        found += [at(name, head=n) for name in own for n in range(run[name].shape[1])] or [at(one.name)]
    return [*found, at(LOGITS)]


def patch_path(
    run: Run, source: Run, sender: Place, receiver: Place, of: Answer, *, hold: str = "sublayers"
) -> PathEffect:
    """Return what the sender, as it was in the source, does to the answer by way of the receiver alone.

    hold   "sublayers": the path is direct; "attention": it may pass through feed-forward layers (Wang et al. 2022)
    """
    found = patch_paths(run, source, of, receiver, senders=sender, hold=hold)
    return PathEffect(float(found.effect[0, 0]), found.run, found.source)


Places = Place | Sequence[Place]


def patch_paths(
    run: Run,
    source: Run,
    of: Answer,
    receivers: Places | None = None,
    *,
    senders: Places | None = None,
    hold: str = "sublayers",
    memory: int = MEMORY,
    progress: Progress | None = None,
) -> Paths:
    """Return what each sender, as it was in the source, does to the answer by way of each receiver alone.

    receivers   where the paths end: one place or several, such as `all_receivers(run)`; the logits unless given
    senders     where they begin: `all_senders(run)` unless given
    hold        "sublayers": paths are direct; "attention": they may pass feed-forward layers (Wang et al. 2022)
    memory      bytes that the variants may take at once; progress is called after each lot of them
    """
    check_known("hold is", hold, HOLDS)
    check_alike(run, source)
    ends = _checked(run, at(LOGITS) if receivers is None else receivers)
    starts = _checked(run, all_senders(run) if senders is None else senders)
    leads = _leads(run, starts, ends)
    later = [one.name for one in sublayers(run, kinds=HOLDS[hold])]
    settings: dict[str, Any] = {"memory": memory, "progress": progress}
    reached: dict[tuple[int, int], Array] = {}

    def sent(n: int) -> list[Change]:
        """Return the changes that give a sender its value of the source, note what receivers get, and hold the rest."""

        def note(m: int, value: Array) -> Array:
            return reached.setdefault((n, m), value.copy())

        notes = [
            transform(end.name, partial(note, m), **end.where)
            for m, end in enumerate(ends)
            if leads[n, m] and end != at(LOGITS)
        ]
        return [take(starts[n].name, source, **starts[n].where), *notes, *_held(run, starts[n], later)]

    effect = np.where(leads, 0.0, np.nan)
    leading = np.flatnonzero(leads.any(axis=1)).tolist()
    (before,), direct = effects(run, [sent(n) for n in leading], [of], **settings)
    effect[np.ix_(leading, [end == at(LOGITS) for end in ends])] = direct
    entries = [run[end.name][_index(run, end)] for end in ends]
    moved = [pair for pair, value in reached.items() if not np.array_equal(value, entries[pair[1]])]
    variants = [[put(ends[m].name, reached[n, m], **ends[m].where)] for n, m in moved]
    for pair, (value,) in zip(moved, effects(run, variants, [of], **settings)[1] if moved else (), strict=True):
        effect[pair] = value
    return Paths(of.label(run), effect, float(before), answer(of, source), starts, ends, is_estimate=False)


def _leads(run: Run, starts: list[Place], ends: list[Place]) -> Array:
    """Return whether each sender comes before each receiver; refuse where none does."""
    leads = np.less.outer(*([run.addresses[place.name].number for place in some] for some in (starts, ends)))
    if not leads.any():
        raise ConfigError(
            f"{starts[0].name} does not come before {ends[0].name}",
            hint="a path leads from an earlier value to a later",
        )
    return leads


def _held(run: Run, sender: Place, sublayers: list[str]) -> list[Change]:
    """Return what holds the sublayers after a sender; its own goes on."""
    number = run.addresses[sender.name].number
    return [
        replace(freeze(name), value=run[name])
        for name in sublayers
        if run.addresses[name].number > number and not sender.name.startswith(f"{name}.")
    ]


def _index(run: Run, place: Place) -> tuple[Any, ...]:
    return Where(**place.where).index(place.name, run[place.name].shape, run.heads)


def _checked(run: Run, places: Places) -> list[Place]:
    """Return the places as a list; refuse what a run does not have."""
    found = [places] if isinstance(places, Place) else list(places)
    for place in found:
        check_name(place.name, run)
        _index(run, place)
    if not found:
        raise ConfigError("there is no place for a path to begin or to end", hint="leave it out, or give some: [at(…)]")
    return found


def _start(run: Run, stack: str) -> str:
    """Return the name of the stream as it enters a stack."""
    start = points(run, stack)[0].name
    names = ("embedding", "source_embedding")
    return next((name for name in names if run.addresses.get(name) == run.addresses[start]), start)


# --- edge attribution ------------------------------------------------------------------------------------------------


class _End(NamedTuple):
    """One end of an edge: what was written to a stream, or the gradient of what is read from it, (B, T, D)."""

    place: Place
    stack: str
    number: int  # of the call after which it was written, or that made the stream as it is read
    value: Array


def attribute_edges(run: Run, source: Run, of: Answer) -> Paths:
    """Estimate what each sender, as it was in the source, does to the answer by way of each receiver alone.

    The estimates stand for the direct paths of `patch_paths(run, source, of, all_receivers(run))`, of all positions.
    """
    check_alike(run, source)
    norms = _stream_norms(run)
    grads = gradients(run, of)
    wrote = [end for stack in stacks(run) for end in _written(run, source, stack)]
    reads = [end for one in sublayers(run) for end in _read(run, grads, one)]
    last = points(run)[-1].name
    reads.append(_End(at(LOGITS), list(stacks(run))[-1], run.addresses[last].number, grads[last]))
    effect = np.full((len(wrote), len(reads)), np.nan)
    for stack in stacks(run):
        rows, columns = ([n for n, end in enumerate(ends) if end.stack == stack] for ends in (wrote, reads))
        slopes = [reads[n].value for n in columns]  # for the stream as it is behind the norms not yet gone through
        for norm in (*reversed(norms[stack]), -1):
            own = [n for n in rows if wrote[n].number > norm]
            rows = [n for n in rows if wrote[n].number < norm]
            if own:
                moved, sent = np.stack([wrote[n].value.ravel() for n in own]), np.stack([x.ravel() for x in slopes])
                leads = np.less_equal.outer([wrote[n].number for n in own], [reads[n].number for n in columns])
                effect[np.ix_(own, columns)] = np.where(leads, moved @ sent.T, np.nan)
            slopes = [
                _undo_norm(run, norm, x) if 0 <= norm <= reads[n].number else x
                for n, x in zip(columns, slopes, strict=True)
            ]
    starts, ends = ([end.place for end in some] for some in (wrote, reads))
    return Paths(of.label(run), effect, answer(of, run), answer(of, source), starts, ends, is_estimate=True)


def _written(run: Run, source: Run, stack: str) -> list[_End]:
    """Return by how much differs what each sender wrote: the stream is the sum of it all."""
    start = _start(run, stack)
    found = [_End(at(start), stack, run.addresses[start].number, source[start] - run[start])]
    for one in sublayers(run, stack):
        number = run.addresses[one.name].number
        if one.kind not in ATTENTIONS:
            found.append(_End(at(one.name), stack, number, source[one.name] - run[one.name]))
            continue
        moved = head_results(source, one.name) - head_results(run, one.name)
        found += [_End(at(f"{one.name}.output.x", head=n), stack, number, moved[:, n]) for n in range(run.heads)]
    return found


def _read(run: Run, grads: Gradients, one: Sublayer) -> list[_End]:
    """Return the gradients of what a sublayer reads of the stream, for queries, keys and values by head.

    q = norm(x) w, so that head h adds norm_backward(dq w_hᵀ) to the gradient of x; with post-norm q = x w.
    """
    norm, reader = None if _is_on_stream(run, one) else f"{one.name}_norm", f"{one.name}.{KINDS[one.kind]}"
    if one.kind not in ATTENTIONS:
        dy = sum(grads[name] for part in ("up", "gate") if (name := f"{one.name}.{part}.input") in run)
        return [_End(at(one.name), one.stack, *_before(run, norm, reader, dy))]
    found = []
    for letter, matrix in PROJECTIONS.items():
        stack = one.stack
        if one.kind == "cross_attention" and letter != "q":  # what the encoder returned
            stack, reader = "encoder", f"{one.name}.key"
            norm = "encoder.final_norm" if "encoder.final_norm" in run else None
        name = f"{one.name}.attend.{letter}"
        heads = run[name].shape[1]
        dy = grads[f"{one.name}.{matrix}"]  # (B, T, heads·C)
        w = unpacked(flatten(run.params)[f"{one.name}.{matrix}.w"])  # (D, heads·C)
        parts = zip(*(np.split(x, heads, axis=-1) for x in (dy, w)), strict=True)
        places = [(at(name, head=n), own @ x.T) for n, (own, x) in enumerate(parts)]
        found += [_End(place, stack, *_before(run, norm, reader, dx)) for place, dx in places]
    return found


def _before(run: Run, norm: str | None, matrix: str, dy: Array) -> tuple[int, Array]:
    """Return which call made the stream that a matrix reads, perhaps by way of a norm, and its gradient for dy."""
    if norm is None:
        return run.addresses[f"{matrix}.x"].number, dy
    return run.addresses[f"{norm}.x"].number, _undo_norm(run, run.addresses[norm].number, dy)


def _undo_norm(run: Run, number: int, dy: Array) -> Array:
    """Return the gradient of what a norm read for that of what it returned."""
    call = run.calls[number]
    dx = getattr(ops, f"{call.name}_backward")(dy, call.outputs[1])
    return dx[0] if isinstance(dx, tuple) else dx


def _is_on_stream(run: Run, one: Sublayer) -> bool:
    """Return whether the norm of a sublayer comes after it, and so reads the sum of the stream and what it wrote."""
    return run.addresses[f"{one.name}_norm"].number > run.addresses[one.name].number


def _stream_norms(run: Run) -> dict[str, list[int]]:
    """Return the calls of norms on the stream by stack; refuse a stream that is not made by sums and norms of ours."""
    if run.changes:
        raise ConfigError("the run has changes", hint="attribute the edges of a run without, or use patch_paths")
    norms: dict[str, list[int]] = {stack: [] for stack in stacks(run)}
    for stack, found in norms.items():
        total, *_, last = (run[point.name] for point in points(run, stack))
        known, gaps = True, []  # by how much the stream differs from what the sums and norms before it make
        for one in sublayers(run, stack):
            norm = f"{one.name}_norm"
            known = known and norm in run and run.calls[run.addresses[norm].number].name in READ_BY
            total = total + run[one.name]
            if known and _is_on_stream(run, one):
                gaps.append(np.abs(total - run[f"{norm}.x"]).max())
                found.append(run.addresses[norm].number)
                total = run[norm]
        near = np.abs(last).max() * np.finfo(last.dtype).eps ** 0.75
        if not known or not np.max([*gaps, np.abs(total - last).max()]) <= near:
            raise ConfigError(
                f"the stream of the {stack} is not made by adding what its parts wrote, and by norms",
                hint="edges can be attributed with LayerNorm, RMSNorm or none, before sublayers or after sums; "
                "patch_paths takes every model",
            )
    return norms
